package pool_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/neighbour"
	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// lan is who uses which address of a network.
type lan struct {
	users  map[netip.Addr]string
	away   bool // nothing can be told of anybody
	stale  bool // whoever has answered has done so before
	err    error
	looked []netip.Addr
}

func (l *lan) look(_ context.Context, addrs []netip.Addr) (map[netip.Addr]neighbour.Found, error) {
	l.looked = append(l.looked, addrs...)
	found := map[netip.Addr]neighbour.Found{}
	for _, a := range addrs {
		mac, err := net.ParseMAC(l.users[a])
		switch {
		case l.away:
		case err == nil:
			found[a] = neighbour.Found{Use: neighbour.Used, MAC: mac}
			if l.stale {
				found[a] = neighbour.Found{Use: neighbour.Unknown, MAC: mac}
			}
		default:
			found[a] = neighbour.Found{Use: neighbour.Free}
		}
	}
	return found, l.err
}

func on(l *lan, ahead int) option {
	return func(c *pool.Config) { c.Neighbours, c.Ahead = l.look, ahead }
}

const squatter = "02:00:00:00:ff:ff"

func addresses(texts ...string) map[netip.Addr]string {
	users := map[netip.Addr]string{}
	for _, text := range texts {
		users[netip.MustParseAddr(text)] = squatter
	}
	return users
}

func TestAnAddressInUseIsGivenToNobody(t *testing.T) {
	l := &lan{users: addresses("192.0.2.11", "192.0.2.12", "192.0.2.17")}
	b := ordinary(t, on(l, 4))
	for _, name := range names("client-", 7) {
		b.Look(t.Context())
		if got := b.dora(client(name)); l.users[got] != "" {
			t.Errorf("%s got %v", name, got)
		}
	}
	b.Look(t.Context())
	if s := b.Stats(); s.Quarantined != 3 || s.InUse != 3 || s.Unused != 0 || s.Free != 0 || b.logged(squatter) != 3 {
		t.Errorf("got %+v:\n%s", s, b.log)
	}
	wantVerdict(t, b.Discover(client("late"), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
	wantVerdict(t, b.Discover(client("late"), netip.MustParseAddr("192.0.2.11")), pool.Silent, pool.ReasonExhausted)

	delete(l.users, netip.MustParseAddr("192.0.2.12"))
	b.pass(10*time.Minute + 10*time.Second)
	b.Look(t.Context())
	if got := b.dora(client("late")); got != netip.MustParseAddr("192.0.2.12") {
		t.Errorf("after the quarantine: %v", got)
	}
	if n := b.logged(squatter); n != 5 {
		t.Errorf("it is logged %d times", n)
	}
}

// TestWhoUsesAnAddressMayHaveIt has a machine whose binding was lost with the store.
func TestWhoUsesAnAddressMayHaveIt(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.13")
	l := &lan{users: map[netip.Addr]string{}}
	b := machines(t, on(l, 10))
	owner, other := b.directory.boot("worker-0"), b.directory.boot("worker-1")
	other.MAC = "02:00:00:00:00:99"
	l.users[addr] = owner.MAC
	b.Look(t.Context())
	wantVerdict(t, b.verify(other, addr), pool.Refuse, pool.ReasonTaken)
	wantVerdict(t, b.verify(owner, addr), pool.Grant, "")
	owner.MAC = "02:00:00:00:00:77" // started anew
	wantVerdict(t, b.verify(owner, addr), pool.Grant, "")
}

func TestAddressesAreLookedAtAheadOfNeed(t *testing.T) {
	l := &lan{}
	b := ordinary(t, on(l, 3))
	b.Look(t.Context())
	b.Look(t.Context())
	first := slices.Clone(l.looked)
	if len(first) != 3 {
		t.Fatalf("looked at %v", first)
	}
	for i, name := range names("client-", 4) {
		got := b.dora(client(name))
		if i < 3 != slices.Contains(first, got) {
			t.Errorf("%s has %v of %v", name, got, first)
		}
	}
	b.Look(t.Context())
	b.pass(time.Hour)
	b.Look(t.Context())
	if n := len(l.looked); n != 9 { // three times three, since what was seen an hour ago counts no more
		t.Errorf("looked at %d: %v", n, l.looked)
	}
	for _, a := range l.looked[3:] {
		if slices.Contains(first, a) {
			t.Errorf("looked at %v, which is bound", a)
		}
	}
}

// TestWhatOthersHadIsLookedAtInTheEnd has a range that is all bound or released.
func TestWhatOthersHadIsLookedAtInTheEnd(t *testing.T) {
	l := &lan{}
	b := ordinary(t, withRange("192.0.2.10-192.0.2.12"), on(l, 2))
	for _, name := range names("client-", 3) {
		addr := b.dora(client(name))
		if name != "client-0" {
			b.Release(t.Context(), client(name), addr)
			b.granted.GaveUp(addr, client(name).Holder, b.clock.Now())
			l.users = map[netip.Addr]string{addr: squatter}
		}
	}
	b.pass(2 * time.Minute)
	b.Look(t.Context())
	if s := b.Stats(); s.Unused != 1 || s.Quarantined != 1 {
		t.Errorf("got %+v", s)
	}
	if got := b.dora(client("new")); l.users[got] != "" {
		t.Errorf("got %v", got)
	}
	wantVerdict(t, b.Discover(client("late"), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
}

func TestWithoutALookEverybodyIsServed(t *testing.T) {
	for name, l := range map[string]*lan{"another network": {away: true}, "no rights": {err: errors.New("no rights")}} {
		t.Run(name, func(t *testing.T) {
			b := ordinary(t, on(l, 3))
			for _, name := range names("client-", 10) {
				b.Look(t.Context())
				b.dora(client(name))
			}
			if n := b.logged("cannot be looked at"); n != 1 {
				t.Errorf("it is logged %d times", n)
			}
		})
	}
}

// TestWhoAnswersForAllKeepsAQuarter has a host that says it has every address.
func TestWhoAnswersForAllKeepsAQuarter(t *testing.T) {
	l := &lan{users: map[netip.Addr]string{}}
	for addr := netip.MustParseAddr("192.0.2.10"); addr != netip.MustParseAddr("192.0.2.110"); addr = addr.Next() {
		l.users[addr] = squatter
	}
	b := ordinary(t, withRange("192.0.2.10-192.0.2.109"), on(l, 20))
	for range 10 {
		b.Look(t.Context())
	}
	if s := b.Stats(); s.Quarantined != 26 || s.Free != 74 {
		t.Errorf("got %+v", s)
	}
	for _, name := range names("client-", 74) {
		b.dora(client(name))
	}
}
