package vip_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/test/lab"
)

// TestTwoReplicas checks two replicas without a fault, beside a host that has their addresses, and when the floating
// addresses move.
func TestTwoReplicas(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, true)
	holder := s.awaitSingleHolder(t)
	s.awaitPeers(t)
	t.Run("HTTP endpoints and capabilities", func(t *testing.T) { s.testEndpoints(t, holder) })
	t.Run("a silent host with the floating addresses", s.testSilentHost)
	t.Run("a silent host with the addresses of a replica", s.testSilentHostOfAReplica)
	t.Run("connections when the addresses move", func(t *testing.T) { s.testMove(t, holder) })
}

// testEndpoints reads metrics, readiness and state of the replicas, and checks the holder's capabilities.
func (s *site) testEndpoints(t *testing.T, holder *replica) {
	metrics := holder.page(t, "metrics")
	for _, want := range []string{"xdsd_hold_holding 1", "xdsd_hold_transitions_total 1", `xdsd_hold_conflicts_total{by="peer"} 0`} {
		if !strings.Contains(metrics, "\n"+want+"\n") {
			t.Errorf("no metric %s", want)
		}
	}
	for _, i := range s.replicas {
		if text := i.page(t, "problems"); strings.Join(strings.Fields(text), "") != `{"problems":[]}` {
			t.Errorf("/problems of %s: %s", i.name, text)
		}
	}
	for _, page := range []string{"readyz", "state"} {
		if text := holder.page(t, page); !strings.Contains(text, `"identity": "`+holder.name+`"`) {
			t.Errorf("/%s: %s", page, text)
		}
	}
	if caps := holder.Run(t, "sh", "-c", "grep CapEff /proc/$(ss -Hltnp sport = :9906 | sed 's/.*pid=\\([0-9]*\\).*/\\1/')/status"); !strings.Contains(caps, "0000000000003000") {
		t.Errorf("capabilities %s", caps) // bit 12 is NET_ADMIN, bit 13 is NET_RAW
	}
}

// newSilentHost connects a host with addresses that sends only ARP and ND replies.
func (s *site) newSilentHost(t *testing.T, addresses ...string) *lab.Machine {
	t.Helper()
	host := lab.NewMachine(t, s.near, tenantMAC)
	for _, address := range addresses {
		host.Run(t, "ip", "address", "add", address, "dev", host.Device, "nodad")
	}
	return host
}

// testSilentHost checks that each replica's state contains the host's replies, and that it reports the host as long as the host replies.
func (s *site) testSilentHost(t *testing.T) {
	holder := s.awaitSingleHolder(t)
	answers := func(i *replica) (found []string) {
		for _, a := range i.state(t).Answers {
			if a.MAC == tenantMAC && a.Last.Sub(a.First) >= 2*time.Second {
				found = append(found, a.Address.String())
			}
		}
		return found
	}
	heldTwice := func(i *replica) bool { return strings.Contains(i.page(t, "problems"), `"code": "AddressHeldTwice"`) }
	host := s.newSilentHost(t, floating.String()+"/24", floating6.String()+"/64")
	for _, i := range s.replicas {
		lab.Poll(t, i.name+" to have the answers of both hosts", func() bool {
			other := slices.ContainsFunc(i.state(t).Answers, func(a broadcastAnswer) bool { return a.MAC == holder.mac && a.Address == floating })
			return len(answers(i)) == 2 && other == (i != holder)
		})
		lab.Poll(t, i.name+" to report the host", func() bool { return heldTwice(i) })
	}
	host.Run(t, "ip", "link", "set", host.Device, "down")
	for _, i := range s.replicas {
		lab.Poll(t, i.name+" to forget the host", func() bool { return !heldTwice(i) && len(answers(i)) == 0 })
	}
}

// testSilentHostOfAReplica checks that a replica reports the host to control as long as the host replies.
func (s *site) testSilentHostOfAReplica(t *testing.T) {
	first := s.replicas[0]
	answers := func() (list []string) {
		var report problem.Report
		lab.Must(t, json.Unmarshal([]byte(first.page(t, "problems")), &report))
		if len(report.Problems) > 0 {
			t.Errorf("got problems %v", report.Problems)
		}
		for _, a := range report.Answers {
			list = append(list, a.Address.String()+" "+a.MAC)
		}
		return list
	}
	host := s.newSilentHost(t, first.own...)
	want := []string{"192.0.2.11 " + tenantMAC, "2001:db8::11 " + tenantMAC}
	lab.Poll(t, "the answers of the host", func() bool { return slices.Equal(answers(), want) })
	host.Run(t, "ip", "link", "set", host.Device, "down")
	lab.Poll(t, "no answer", func() bool { return len(answers()) == 0 })
}

// testMove terminates the holder while clients that only receive are connected. Clients of the floating addresses must
// notice it, and reach the other replica.
func (s *site) testMove(t *testing.T, holder *replica) {
	connect := func(to netip.Addr) (conn net.Conn, name string, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if conn, err = s.machine.Dial(ctx, netip.Addr{}, netip.AddrPortFrom(to, port)); err != nil {
			return nil, "", err
		}
		t.Cleanup(func() { _ = conn.Close() })
		name, err = lab.Greeting(ctx, conn)
		if tcp, ok := conn.(*net.TCPConn); ok { // a keepalive packet would be reset by the next holder
			err = errors.Join(err, tcp.SetKeepAlive(false))
		}
		return conn, name, errors.Join(err, conn.SetDeadline(time.Now().Add(lab.WaitTimeout)))
	}
	await := func(to netip.Addr, by *replica) (conn net.Conn) {
		t.Helper()
		lab.Await(t, fmt.Sprintf("%s to lead to %s", to, by.name), func() string {
			var name string
			var err error
			if conn, name, err = connect(to); err != nil || name != by.name {
				return fmt.Sprintf("leads to %q: %v", name, err)
			}
			return ""
		})
		return conn
	}
	var moved, kept []net.Conn
	for _, a := range []netip.Addr{floating, floating6} {
		moved = append(moved, await(a, holder))
	}
	for _, own := range holder.own {
		kept = append(kept, await(netip.MustParsePrefix(own).Addr(), holder))
	}
	holder.Terminate(t)
	for _, conn := range moved {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("connection to %s after the move: %v", conn.RemoteAddr(), err)
		}
	}
	for _, a := range []netip.Addr{floating, floating6} {
		await(a, s.others(holder)[0])
	}
	for _, conn := range kept {
		for _, echo := range []func([]byte) (int, error){conn.Write, conn.Read} {
			if _, err := echo([]byte("x")); err != nil {
				t.Errorf("connection to the replica's own address %s: %v", conn.RemoteAddr(), err)
			}
		}
	}
}

// TestThreeReplicas restarts a standby replica while the API server is down, and then powers off the holder, so that two
// replicas compete for its address.
func TestThreeReplicas(t *testing.T) {
	s := newSite(t, 3, true)
	holder := s.holder(t)
	s.awaitPeers(t)
	outage := lab.StartOutage(t, s.cp)
	restarted := s.others(holder)[0]
	restarted.Kill(t)
	restarted.Start(t)
	if peers := restarted.state(t).Peers; peers[holder.mac] != holder.name {
		t.Errorf("the restarted replica knows %v", peers)
	}
	from := time.Now()
	repair := powerOff(t, s, holder)
	lab.Poll(t, "another replica to answer", func() bool {
		macs := s.Holders(briefly)
		return len(macs) == 1 && macs[0] != holder.mac
	})
	noService := s.timeWithoutService(t, from)
	now := s.holder(t)
	t.Logf("%.1f seconds without service; two replicas answered for %s", noService.Seconds(), s.TimeWithTwoHolders(from))
	outage.End(t)
	repair()
	if after := s.awaitSingleHolder(t); after != now {
		t.Errorf("the address moved from %s to %s", now.name, after.name)
	}

	// A corrupt state file is discarded, and does not prevent a start.
	holder.Kill(t)
	state := filepath.Join(holder.dir, "state.json")
	lab.Must(t, os.WriteFile(state, []byte("{"), 0o600))
	holder.Start(t)
	lab.Poll(t, "the state file to be renamed", func() bool {
		discarded, err := os.ReadFile(state + ".unusable")
		return err == nil && string(discarded) == "{"
	})
}

// tenantMAC is the MAC address of a host on the VLAN that has or claims addresses of other hosts.
const tenantMAC = "02:00:00:00:06:66"

// TestATenantClaimsTheAddress shows the effect of forged claims: neighbours send to the forged MAC address
// until the claims stop, as for any address, and no replica releases the address while it has the Lease. Without the API
// server the claims of a peer, which cannot be told from a real one, may move it.
func TestATenantClaimsTheAddress(t *testing.T) {
	s := newSite(t, 2, true)
	holder := s.holder(t)
	s.awaitPeers(t)
	host := lab.NewMachine(t, s.near, tenantMAC)
	attacker, _ := lab.ARPSocket(t, host.Namespace, host.Device)
	t.Cleanup(func() { _ = attacker.Close() })
	var outage *lab.Outage
	for _, tc := range []struct {
		name, mac, counted string
		outage, mayMove    bool
	}{
		{"with its own MAC address", tenantMAC, "stranger", false, false},
		{"with the MAC address of the other replica", s.others(holder)[0].mac, "peer", false, false},
		{"with its own MAC address, API server down", tenantMAC, "stranger", true, false},
		{"with the MAC address of the other replica, API server down", s.others(holder)[0].mac, "peer", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := holder.state(t)
			mac, err := net.ParseMAC(tc.mac)
			lab.Must(t, err)
			// A hundred times a second, by ARP requests and replies.
			for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				lab.Must(t, errors.Join(lab.SendARP(attacker, 1, mac, floating, floating), lab.SendARP(attacker, 2, mac, floating, floating)))
			}
			stopped := time.Now()
			noService := s.timeWithoutService(t, stopped)
			now := s.holder(t)
			t.Logf("service resumed %.1f seconds after the claims stopped; %s has the address", noService.Seconds(), now.name)
			after := holder.state(t)
			if !tc.mayMove && (now != holder || !after.Holding || after.Leased == tc.outage || after.Conflicts[tc.counted] == before.Conflicts[tc.counted]) {
				t.Errorf("before %+v, after %+v; %s has the address", before, after, now.name)
			}
			if lines := holder.Log.Lines("releasing the address"); !tc.mayMove && len(lines) > 0 {
				t.Errorf("%v", lines)
			}
		})
		if tc.counted == "peer" && !tc.outage {
			outage = lab.StartOutage(t, s.cp)
			lab.Poll(t, "the Lease to expire", func() bool { return !holder.state(t).Leased })
		}
	}
	outage.End(t)
	s.awaitSingleHolder(t)
}
