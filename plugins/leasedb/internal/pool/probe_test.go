package pool_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// A lan is a network with the MAC addresses that use its addresses.
type lan struct {
	users       map[netip.Addr]string
	unreachable bool // addresses cannot be probed
	stale       bool // the kernel's entries are stale
	err         error
	probed      []netip.Addr
}

func (l *lan) probe(_ context.Context, addrs []netip.Addr) (map[netip.Addr]neighbours.Result, error) {
	l.probed = append(l.probed, addrs...)
	found := map[netip.Addr]neighbours.Result{}
	for _, a := range addrs {
		mac, err := net.ParseMAC(l.users[a])
		switch {
		case l.unreachable:
		case err == nil:
			found[a] = neighbours.Result{Use: neighbours.Used, MAC: mac}
			if l.stale {
				found[a] = neighbours.Result{Use: neighbours.Unknown, MAC: mac}
			}
		default:
			found[a] = neighbours.Result{Use: neighbours.Free}
		}
	}
	return found, l.err
}

func withLAN(l *lan, ahead int) option {
	return func(c *pool.Config) { c.Probe, c.Ahead = l.probe, ahead }
}

const otherMAC = "02:00:00:00:ff:ff"

func inUse(texts ...string) map[netip.Addr]string {
	users := map[netip.Addr]string{}
	for _, text := range texts {
		users[netip.MustParseAddr(text)] = otherMAC
	}
	return users
}

// usedFrom returns n addresses that one host uses.
func usedFrom(first string, n int) map[netip.Addr]string {
	users := map[netip.Addr]string{}
	for addr := netip.MustParseAddr(first); len(users) < n; addr = addr.Next() {
		users[addr] = otherMAC
	}
	return users
}

func TestAddressInUseIsNotLeased(t *testing.T) {
	l := &lan{users: inUse("192.0.2.11", "192.0.2.12", "192.0.2.17")}
	b := newOrdinaryHarness(t, withLAN(l, 4))
	for _, name := range names("client-", 7) {
		b.ProbeFree(t.Context())
		if got := b.dora(client(name)); l.users[got] != "" {
			t.Errorf("%s got %v", name, got)
		}
	}
	b.ProbeFree(t.Context())
	if s := b.Stats(); s.Quarantined != 3 || s.InUse != 3 || s.Unused != 0 || s.Free != 0 || b.logCount(otherMAC) != 3 {
		t.Errorf("got %+v:\n%s", s, b.log)
	}
	wantVerdict(t, b.Discover(client("late"), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
	wantVerdict(t, b.Discover(client("late"), netip.MustParseAddr("192.0.2.11")), pool.Silent, pool.ReasonExhausted)

	delete(l.users, netip.MustParseAddr("192.0.2.12"))
	b.advance(10*time.Minute + 10*time.Second)
	b.ProbeFree(t.Context())
	if got := b.dora(client("late")); got != netip.MustParseAddr("192.0.2.12") {
		t.Errorf("after the quarantine: %v", got)
	}
	if n := b.logCount(otherMAC); n != 5 {
		t.Errorf("addresses in use were logged %d times, want 5", n)
	}
}

// TestVMGetsTheAddressThatItUses covers a VM whose binding was lost with the store.
func TestVMGetsTheAddressThatItUses(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.13")
	l := &lan{users: map[netip.Addr]string{}}
	b := newVMHarness(t, withLAN(l, 10))
	owner, other := b.directory.boot("worker-0"), b.directory.boot("worker-1")
	other.MAC = "02:00:00:00:00:99"
	l.users[addr] = owner.MAC
	b.ProbeFree(t.Context())
	wantVerdict(t, b.verify(other, addr), pool.Refuse, pool.ReasonTaken)
	wantVerdict(t, b.verify(owner, addr), pool.Grant, "")
	owner.MAC = "02:00:00:00:00:77" // restarted
	wantVerdict(t, b.verify(owner, addr), pool.Grant, "")
}

func TestAddressesAreProbedInAdvance(t *testing.T) {
	l := &lan{}
	b := newOrdinaryHarness(t, withLAN(l, 3))
	b.ProbeFree(t.Context())
	b.ProbeFree(t.Context())
	first := slices.Clone(l.probed)
	if len(first) != 3 {
		t.Fatalf("probed %v", first)
	}
	for i, name := range names("client-", 4) {
		got := b.dora(client(name))
		if i < 3 != slices.Contains(first, got) {
			t.Errorf("%s has %v of %v", name, got, first)
		}
	}
	b.ProbeFree(t.Context())
	b.advance(time.Hour)
	b.ProbeFree(t.Context())
	if n := len(l.probed); n != 9 { // three times three: results are valid for five minutes
		t.Errorf("%d addresses were probed: %v", n, l.probed)
	}
	for _, a := range l.probed[3:] {
		if slices.Contains(first, a) {
			t.Errorf("the bound address %v was probed", a)
		}
	}
}

// TestReleasedAddressesAreProbedLast has a range whose addresses are all bound or released.
func TestReleasedAddressesAreProbedLast(t *testing.T) {
	l := &lan{}
	b := newOrdinaryHarness(t, withRange("192.0.2.10-192.0.2.12"), withLAN(l, 2))
	for _, name := range names("client-", 3) {
		addr := b.dora(client(name))
		if name != "client-0" {
			b.Release(t.Context(), client(name), addr)
			b.granted.GaveUp(addr, client(name).Holder, b.clock.Now())
			l.users = map[netip.Addr]string{addr: otherMAC}
		}
	}
	b.advance(2 * time.Minute)
	b.ProbeFree(t.Context())
	if s := b.Stats(); s.Unused != 1 || s.Quarantined != 1 {
		t.Errorf("got %+v", s)
	}
	if got := b.dora(client("new")); l.users[got] != "" {
		t.Errorf("got %v", got)
	}
	wantVerdict(t, b.Discover(client("late"), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
}

func TestClientsAreServedIfProbesFail(t *testing.T) {
	for name, l := range map[string]*lan{"another network": {unreachable: true}, "no rights": {err: errors.New("no rights")}} {
		t.Run(name, func(t *testing.T) {
			b := newOrdinaryHarness(t, withLAN(l, 3))
			for _, name := range names("client-", 10) {
				b.ProbeFree(t.Context())
				b.dora(client(name))
			}
			if n := b.logCount("cannot probe free addresses"); n != 1 {
				t.Errorf("the failure was logged %d times, want once", n)
			}
		})
	}
}

// TestHostThatAnswersForAllAddresses covers a host that answers for every address: a quarter of them is
// quarantined.
func TestHostThatAnswersForAllAddresses(t *testing.T) {
	l := &lan{users: usedFrom("192.0.2.10", 100)}
	b := newOrdinaryHarness(t, withRange("192.0.2.10-192.0.2.109"), withLAN(l, 20))
	for range 10 {
		b.ProbeFree(t.Context())
	}
	if s := b.Stats(); s.Quarantined != 26 || s.Free != 74 {
		t.Errorf("got %+v", s)
	}
	for _, name := range names("client-", 74) {
		b.dora(client(name))
	}
}
