package vip_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/test/lab"
)

// lease returns the Lease that setup creates.
func lease(namespace string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "proxy"},
	}
}

// TestIPv6AddressMoves connects to the IPv6 address before and after a failover.
func TestIPv6AddressMoves(t *testing.T) {
	t.Parallel()
	s := newSite(t, xdsdHold, 2)
	holder := s.holder(t)
	by6 := func() (name string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = s.machine.Do(func() error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(floating6.String(), strconv.Itoa(port)))
			if err == nil {
				name, err = lab.Greeting(ctx, conn)
				_ = conn.Close()
			}
			return err
		})
		return name
	}
	lab.Poll(t, holder.name+" to respond by IPv6", func() bool { return by6() == holder.name })
	other := s.others(holder)[0]
	from := time.Now()
	powerOff(t, s, holder)
	lab.Poll(t, other.name+" to respond by IPv6", func() bool { return by6() == other.name })
	t.Logf("the other replica responds by IPv6 after %s", time.Since(from).Round(10*time.Millisecond))
}

// TestMoveResetsConnections moves the addresses while clients that only receive are connected. They must notice it.
func TestMoveResetsConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t, xdsdHold, 2)
	holder := s.holder(t)
	s.awaitPeers(t)
	connect := func(to netip.Addr) net.Conn {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		conn, err := s.machine.Dial(ctx, netip.Addr{}, netip.AddrPortFrom(to, port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if name, err := lab.Greeting(ctx, conn); err != nil || name != holder.name {
			t.Fatalf("%s is %q, %v", to, name, err)
		}
		return conn
	}
	var moved []net.Conn
	for _, a := range []netip.Addr{floating, floating6} {
		moved = append(moved, connect(a))
	}
	var kept []net.Conn
	for _, own := range holder.own {
		kept = append(kept, connect(netip.MustParsePrefix(own).Addr()))
	}
	holder.Terminate(t)
	for _, conn := range moved {
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("connection to %s after the move: %v", conn.RemoteAddr(), err)
		}
	}
	if now := s.holder(t); now == holder {
		t.Error("the address did not move")
	}
	for _, conn := range kept {
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Errorf("connection to the replica's own address %s: %v", conn.RemoteAddr(), err)
		}
	}
}

// TestThreeReplicas powers off the holder while the API server is down, so that two replicas compete for its
// address.
func TestThreeReplicas(t *testing.T) {
	s := newSite(t, xdsdHold, 3)
	holder := s.holder(t)
	s.awaitPeers(t)
	outage := lab.StartOutage(t, s.cp)
	from := time.Now()
	repair := powerOff(t, s, holder)
	lab.Poll(t, "another replica to answer", func() bool {
		macs := s.answeringMACs(4)
		return len(macs) == 1 && macs[0] != holder.mac
	})
	noService := s.timeWithoutService(t, from)
	now := s.holder(t)
	t.Logf("%.1f seconds without service; two replicas answered for %s", noService.Seconds(), s.timeWithTwoHolders(from))
	outage.End(t)
	repair()
	if after := s.awaitSingleHolder(t); after != now {
		t.Errorf("the address moved from %s to %s", now.name, after.name)
	}
}

// TestRestartedReplicaKnowsItsPeers restarts a standby replica while the API server is down, and then fails
// the holder.
func TestRestartedReplicaKnowsItsPeers(t *testing.T) {
	s := newSite(t, xdsdHold, 2)
	holder := s.holder(t)
	s.awaitPeers(t)
	other := s.others(holder)[0]
	lab.StartOutage(t, s.cp)
	other.Kill(t)
	other.Start(t)
	if peers := other.state(t).Peers; peers[holder.mac] != holder.name {
		t.Errorf("the restarted replica knows %v", peers)
	}
	powerOff(t, s, holder)
	lab.Poll(t, other.name+" to answer", func() bool { return slices.Equal(s.answeringMACs(4), []string{other.mac}) })

	// A corrupt state file is discarded, and does not prevent a start.
	other.Kill(t)
	state := filepath.Join(other.dir, "state.json")
	if err := os.WriteFile(state, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	other.Start(t)
	lab.Poll(t, "the state file to be renamed", func() bool {
		discarded, err := os.ReadFile(state + ".unusable")
		return err == nil && string(discarded) == "{"
	})
}

// A tenant is a host on the VLAN that claims an address that is not its own.
type tenant struct{ conn *packet.Conn }

const tenantMAC = "02:00:00:00:06:66"

func newTenant(t *testing.T, s *site) *tenant {
	t.Helper()
	at := lab.NewNamespace(t)
	bridge := strings.Replace(s.trunk, "trunk", "near", 1)
	if err := lab.Cable(lab.End{Bridge: bridge}, lab.End{In: at, Device: "eth0", MAC: tenantMAC}); err != nil {
		t.Fatal(err)
	}
	n := &tenant{}
	err := at.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			n.conn, err = packet.Listen(i, packet.Datagram, unix.ETH_P_ARP, nil)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.conn.Close() })
	return n
}

// claim claims the floating address for a MAC address during d, a hundred times a second, by ARP requests and
// replies.
func (n *tenant) claim(t *testing.T, text string, d time.Duration) {
	t.Helper()
	by, err := net.ParseMAC(text)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for operation := range byte(2) {
			if _, err := n.conn.WriteTo(frame(operation+1, by, floating), &packet.Addr{HardwareAddr: net.HardwareAddr{255, 255, 255, 255, 255, 255}}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestATenantClaimsTheAddress shows the effect of forged claims: neighbours send to the forged MAC address
// until the claims stop, as for any address, and no replica releases the address while it has the Lease.
func TestATenantClaimsTheAddress(t *testing.T) {
	s := newSite(t, xdsdHold, 2)
	holder := s.holder(t)
	s.awaitPeers(t)
	attacker := newTenant(t, s)
	const duration = 4 * time.Second
	for _, tc := range []struct{ name, mac, counted string }{
		{"with its own MAC address", tenantMAC, "stranger"},
		{"with the MAC address of the other replica", s.others(holder)[0].mac, "peer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := holder.state(t)
			attacker.claim(t, tc.mac, duration)
			stopped := time.Now()
			s.timeWithoutService(t, stopped)
			after := holder.state(t)
			if !after.Holding || !after.Leased || after.Conflicts[tc.counted] == before.Conflicts[tc.counted] {
				t.Errorf("before %+v, after %+v", before, after)
			}
			if lines := holder.Log.Lines("releasing the address"); len(lines) > 0 {
				t.Errorf("%v", lines)
			}
			t.Logf("service resumed %.1f seconds after the claims stopped", s.timeWithoutService(t, stopped).Seconds())
		})
	}
	outage := lab.StartOutage(t, s.cp)
	lab.Poll(t, "the Lease to expire", func() bool { return !holder.state(t).Leased })
	t.Run("with its own MAC address, API server down", func(t *testing.T) {
		attacker.claim(t, tenantMAC, duration)
		if !holder.state(t).Holding {
			t.Error("the holder released the address")
		}
		if now := s.holder(t); now != holder {
			t.Errorf("the address moved from %s to %s", holder.name, now.name)
		}
	})
	t.Run("with the MAC address of the other replica, API server down", func(t *testing.T) {
		attacker.claim(t, s.others(holder)[0].mac, duration)
		stopped := time.Now()
		noService := s.timeWithoutService(t, stopped)
		t.Logf("service resumed %.1f seconds after the claims stopped; %s has the address", noService.Seconds(), s.holder(t).name)
	})
	outage.End(t)
	s.awaitSingleHolder(t)
}

// TestSilentHost connects a host with the floating addresses that sends nothing but answers. The state of each replica has
// it as long as it answers.
func TestSilentHost(t *testing.T) {
	t.Parallel()
	s := newSite(t, xdsdHold, 2)
	holder := s.awaitSingleHolder(t)
	answers := func(i *replica) (found []string) {
		for _, a := range i.state(t).Answers {
			if a.MAC == tenantMAC && a.Last.Sub(a.First) >= 2*time.Second {
				found = append(found, a.Address.String())
			}
		}
		return found
	}
	for _, i := range s.replicas {
		if found := answers(i); len(found) > 0 {
			t.Errorf("%s has answers for %v", i.name, found)
		}
	}
	host := lab.NewMachine(t, strings.Replace(s.trunk, "trunk", "near", 1), tenantMAC)
	host.Run(t, "ip", "address", "add", floating.String()+"/24", "dev", "eth0")
	host.Run(t, "ip", "address", "add", floating6.String()+"/64", "dev", "eth0", "nodad")
	for _, i := range s.replicas {
		lab.Poll(t, i.name+" to have the answers of both hosts", func() bool {
			other := slices.ContainsFunc(i.state(t).Answers, func(a broadcastAnswer) bool { return a.MAC == holder.mac && a.Address == floating })
			return len(answers(i)) == 2 && other == (i != holder)
		})
	}
	heldTwice := func(i *replica) bool { return strings.Contains(i.page(t, "problems"), `"code": "AddressHeldTwice"`) }
	for _, i := range s.replicas {
		lab.Poll(t, i.name+" to report the host", func() bool { return heldTwice(i) })
	}
	host.Run(t, "ip", "link", "set", "eth0", "down")
	for _, i := range s.replicas {
		lab.Poll(t, i.name+" to report no host", func() bool { return !heldTwice(i) })
		lab.Poll(t, i.name+" to forget the host", func() bool { return len(answers(i)) == 0 })
	}
}

// TestSilentHostWithAnOwnAddress connects a host with the own addresses of a replica that sends nothing but answers. The replica
// reports its answers to control as long as it answers.
func TestSilentHostWithAnOwnAddress(t *testing.T) {
	t.Parallel()
	s := newSite(t, xdsdHold, 2)
	s.awaitSingleHolder(t)
	first := s.replicas[0]
	answers := func() (list []string) {
		var report problem.Report
		if err := json.Unmarshal([]byte(first.page(t, "problems")), &report); err != nil {
			t.Fatal(err)
		}
		if len(report.Problems) > 0 {
			t.Errorf("got problems %v", report.Problems)
		}
		for _, a := range report.Answers {
			list = append(list, a.Address.String()+" "+a.MAC)
		}
		return list
	}
	if list := answers(); len(list) > 0 {
		t.Errorf("got answers %v", list)
	}
	host := lab.NewMachine(t, strings.Replace(s.trunk, "trunk", "near", 1), tenantMAC)
	for _, address := range first.own {
		host.Run(t, "ip", "address", "add", address, "dev", "eth0", "nodad")
	}
	want := []string{"192.0.2.11 " + tenantMAC, "2001:db8::11 " + tenantMAC}
	lab.Poll(t, "the answers of the host", func() bool { return slices.Equal(answers(), want) })
	host.Run(t, "ip", "link", "set", "eth0", "down")
	lab.Poll(t, "no answer", func() bool { return len(answers()) == 0 })
}

// TestHTTPEndpoints reads metrics, readiness and state of a replica, and checks its capabilities.
func TestHTTPEndpoints(t *testing.T) {
	t.Parallel()
	s := newSite(t, xdsdHold, 2)
	holder := s.awaitSingleHolder(t)
	for _, want := range []string{"xdsd_hold_holding 1", "xdsd_hold_transitions_total 1", `xdsd_hold_conflicts_total{by="peer"} 0`} {
		if !strings.Contains(holder.page(t, "metrics"), "\n"+want+"\n") {
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
