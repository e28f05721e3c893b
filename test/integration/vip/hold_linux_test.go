package vip_test

import (
	"context"
	"net"
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

	"github.com/densityops/oooi/test/lab"
)

// lease is as setup makes it.
func lease(namespace string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "proxy"},
	}
}

// TestIPv6MovesToo asks by IPv6 who is there, before and after.
func TestIPv6MovesToo(t *testing.T) {
	t.Parallel()
	s := newSite(t, ours, 2)
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
	lab.Poll(t, holder.name+" to be there by IPv6", func() bool { return by6() == holder.name })
	other := s.others(holder)[0]
	from := time.Now()
	cutOff(t, s, holder)
	lab.Poll(t, other.name+" to be there by IPv6", func() bool { return by6() == other.name })
	t.Logf("by IPv6 the other one is there after %s", time.Since(from).Round(10*time.Millisecond))
}

// TestWithThree has two compete for the address of a lost one while the API server is away.
func TestWithThree(t *testing.T) {
	s := newSite(t, ours, 3)
	holder := s.holder(t)
	s.known(t)
	outage := lab.StartOutage(t, s.cp)
	from := time.Now()
	mend := cutOff(t, s, holder)
	lab.Poll(t, "another instance to answer", func() bool {
		macs := s.answering(4)
		return len(macs) == 1 && macs[0] != holder.mac
	})
	without := s.without(t, from)
	now := s.holder(t)
	t.Logf("%.1f seconds without service; two answered for %s", without.Seconds(), s.doubled(from))
	outage.End(t)
	mend()
	if after := s.settled(t); after != now {
		t.Errorf("it moved from %s to %s", now.name, after.name)
	}
}

// TestARestartedOneKnowsItsPeers restarts a standby while the API server is away, and takes the
// holder away.
func TestARestartedOneKnowsItsPeers(t *testing.T) {
	s := newSite(t, ours, 2)
	holder := s.holder(t)
	s.known(t)
	other := s.others(holder)[0]
	lab.StartOutage(t, s.cp)
	other.Kill(t)
	other.Start(t)
	if peers := other.state(t).Peers; peers[holder.mac] != holder.name {
		t.Errorf("it knows %v", peers)
	}
	cutOff(t, s, holder)
	lab.Poll(t, other.name+" to answer", func() bool { return slices.Equal(s.answering(4), []string{other.mac}) })

	// A damaged file costs this knowledge, not the start.
	other.Kill(t)
	state := filepath.Join(other.dir, "state.json")
	if err := os.WriteFile(state, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	other.Start(t)
	lab.Poll(t, "the file to be set aside", func() bool {
		aside, err := os.ReadFile(state + ".unusable")
		return err == nil && string(aside) == "{"
	})
}

// A tenant is somebody on the VLAN who claims what is not his.
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

// claim claims the floating address for a MAC address for some time, a hundred times a second,
// in each way in which that can be said.
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

// TestATenantClaimsTheAddress shows what that comes to: his neighbours believe him while he goes
// on, as they would of any address; no instance does while there is a Lease.
func TestATenantClaimsTheAddress(t *testing.T) {
	s := newSite(t, ours, 2)
	holder := s.holder(t)
	s.known(t)
	bad := newTenant(t, s)
	const long = 4 * time.Second
	for _, tc := range []struct{ name, mac, counted string }{
		{"as himself", tenantMAC, "stranger"},
		{"as the other instance", s.others(holder)[0].mac, "peer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := holder.state(t)
			bad.claim(t, tc.mac, long)
			stopped := time.Now()
			s.without(t, stopped)
			after := holder.state(t)
			if !after.Holding || !after.Leased || after.Conflicts[tc.counted] == before.Conflicts[tc.counted] {
				t.Errorf("before %+v, after %+v", before, after)
			}
			if lines := holder.Log.Lines("releasing the address"); len(lines) > 0 {
				t.Errorf("%v", lines)
			}
			t.Logf("service is back %.1f seconds after he stopped", s.without(t, stopped).Seconds())
		})
	}
	outage := lab.StartOutage(t, s.cp)
	lab.Poll(t, "the Lease to be over", func() bool { return !holder.state(t).Leased })
	t.Run("as himself, while the API server is away", func(t *testing.T) {
		bad.claim(t, tenantMAC, long)
		if !holder.state(t).Holding {
			t.Error("the holder believes the tenant")
		}
		if now := s.holder(t); now != holder {
			t.Errorf("it moved from %s to %s", holder.name, now.name)
		}
	})
	t.Run("as the other instance, while the API server is away", func(t *testing.T) {
		bad.claim(t, s.others(holder)[0].mac, long)
		stopped := time.Now()
		without := s.without(t, stopped)
		t.Logf("service is back %.1f seconds after he stopped; %s has the address", without.Seconds(), s.holder(t).name)
	})
	outage.End(t)
	s.settled(t)
}

// TestPages reads what an instance says of itself.
func TestPages(t *testing.T) {
	t.Parallel()
	s := newSite(t, ours, 2)
	holder := s.settled(t)
	for _, want := range []string{"xdsd_hold_holding 1", "xdsd_hold_leased 1", "xdsd_hold_transitions_total 1", `xdsd_hold_conflicts_total{by="peer"} 0`, "xdsd_hold_proxy_ready 1", "xdsd_hold_interface_up 1", "xdsd_hold_lease_reachable 1"} {
		if !strings.Contains(holder.page(t, "metrics"), "\n"+want+"\n") {
			t.Errorf("%s is not among the metrics", want)
		}
	}
	for _, page := range []string{"readyz", "state"} {
		if text := holder.page(t, page); !strings.Contains(text, `"identity": "`+holder.name+`"`) {
			t.Errorf("/%s: %s", page, text)
		}
	}
	if caps := holder.Run(t, "sh", "-c", "grep CapEff /proc/$(ss -Hltnp sport = :9906 | sed 's/.*pid=\\([0-9]*\\).*/\\1/')/status"); !strings.Contains(caps, "0000000000003000") {
		t.Errorf("its capabilities are %s", caps) // 12 is NET_ADMIN, 13 is NET_RAW
	}
}
