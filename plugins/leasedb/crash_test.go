package leasedb

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/plugins/leasedb/internal/leasetest"
	"github.com/densityops/oooi/test/lab"
)

// Environment variables that make the test binary run as a server, which the test kills.
const (
	childFile  = "LEASEDB_TEST_FILE"
	childFirst = "LEASEDB_TEST_FIRST"
)

const wide = " cidr=10.0.0.0/12 server=10.0.0.2 range=10.0.1.0-10.8.255.255"

// runServer serves clients as fast as possible. It prints each ACK on a separate line once the handler has
// returned it.
func runServer(file string) {
	first, err := strconv.Atoi(os.Getenv(childFirst))
	if err != nil {
		panic(err)
	}
	c, err := parse(strings.Fields("store=bolt file=" + file + wide))
	if err != nil {
		panic(err)
	}
	i, err := open(c, nil, discard())
	if err != nil {
		panic(err)
	}
	i.run()
	for !i.pool.Loaded() {
		time.Sleep(time.Millisecond)
	}
	var group sync.WaitGroup
	for worker := range 16 {
		group.Go(func() {
			for n := first + worker; ; n += 16 {
				offer, ok := exchange(i, message(dhcpv4.MessageTypeDiscover, mac(n)))
				if !ok {
					panic("a client got no offer")
				}
				ack, ok := exchange(i, message(dhcpv4.MessageTypeRequest, mac(n), withServer("10.0.0.2"), withWanted(offer.YourIPAddr)))
				if ok && ack.MessageType() == dhcpv4.MessageTypeAck {
					fmt.Printf("%s %s\n", mac(n), ack.YourIPAddr)
				}
			}
		})
	}
	group.Wait()
}

// exchange passes a message to the handler, for goroutines and benchmarks, which cannot fail a test.
func exchange(i *instance, m *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) {
	resp, err := dhcpv4.NewReplyFromRequest(m)
	if err != nil {
		panic(err)
	}
	resp, _ = i.handle4(m, resp)
	return resp, resp != nil
}

func TestEveryAckedBindingOutlivesKill9(t *testing.T) {
	files, restarts := lab.Length(2, 10), 10 // for each file
	for range files {
		file := filepath.Join(t.TempDir(), "leases.db")
		acked := map[string]netip.Addr{}
		var granted leasetest.Log
		for n := range restarts {
			for line := range killAfter(t, file, n*100_000, rand.IntN(200)) {
				hw, text, _ := strings.Cut(line, " ")
				addr := netip.MustParseAddr(text)
				acked[hw] = addr
				granted.Granted(addr, hw, begin, lease)
			}
		}
		checkBound(t, file, acked)
		lab.Report(t, granted.Check())
	}
}

// checkBound checks that every acknowledged binding is in the file and is confirmed.
func checkBound(t *testing.T, file string, acked map[string]netip.Addr) {
	t.Helper()
	i := serve(t, nil, "store=bolt file="+file+wide)
	defer closeInstance(t, i)
	bound := map[string]netip.Addr{}
	for _, l := range i.pool.Leases() {
		bound[l.MAC] = l.Addr
	}
	for hw, addr := range acked {
		if bound[hw] != addr {
			t.Fatalf("%s was acknowledged %v; in the file it has %v", hw, addr, bound[hw])
		}
		m, err := net.ParseMAC(hw)
		lab.Must(t, err)
		want(t, i, message(dhcpv4.MessageTypeRequest, m, dhcpv4.WithClientIP(addr.AsSlice())), dhcpv4.MessageTypeAck)
	}
	t.Logf("%d ACKs; %d bindings in the file", len(acked), len(bound))
}

// killAfter starts a server, kills it after a number of ACKs, and returns the lines of all ACKs that it printed.
func killAfter(t *testing.T, file string, first, acks int) map[string]bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childFile+"="+file, fmt.Sprint(childFirst, "=", first))
	out, err := cmd.StdoutPipe()
	lab.Must(t, err)
	lab.Must(t, cmd.Start())
	lines := map[string]bool{}
	reader := bufio.NewReader(out)
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			break // an incomplete line is not an ACK
		}
		if lines[strings.TrimSpace(line)] = true; len(lines) == acks+1 {
			lab.Must(t, cmd.Process.Kill())
		}
	}
	if err := cmd.Wait(); err == nil || len(lines) <= acks {
		t.Fatalf("the server exited after %d ACKs, before it was killed: %v", len(lines), err)
	}
	return lines
}
