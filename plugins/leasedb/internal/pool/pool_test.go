package pool_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

func TestDiscoverFlood(t *testing.T) {
	b := newOrdinaryHarness(t)
	known := b.dora(client("known"))
	for i := range 20_000 {
		if a := b.Discover(client(fmt.Sprint("random-", i)), netip.Addr{}); a.Verdict != pool.Grant {
			t.Fatalf("no offer after %d messages: %s", i, a.Reason)
		}
		if i%2_000 == 0 {
			b.dora(client(fmt.Sprint("honest-", i/4_000)))
			if a := b.verify(client("known"), known); a.Verdict != pool.Grant {
				t.Fatalf("a client with an address: %+v", a)
			}
		}
	}
	if s := b.Stats(); s.Held+s.Bound > s.Size {
		t.Errorf("got %+v", s)
	}
}

func TestClockJumpIsLogged(t *testing.T) {
	var ahead time.Duration
	b := newOrdinaryHarness(t, func(c *pool.Config) { c.Wall = func() time.Time { return c.Clock.Now().Add(ahead) } })
	addr := b.dora(client("a"))
	b.advance(time.Minute)
	if s := b.Stats(); s.ClockJumps != 0 {
		t.Errorf("a jump was counted: %+v", s)
	}
	ahead = 2 * time.Hour
	b.advance(20 * time.Second)
	if s := b.Stats(); s.ClockJumps != 1 || s.ClockOffset != 7200 || b.logCount("clock") != 1 {
		t.Errorf("got %+v\n%s", s, b.log)
	}
	if a := b.Discover(client("b"), addr); a.Addr == addr {
		t.Errorf("%v is leased twice", addr)
	}
	for _, l := range b.Leases() { // shown to users by the system clock
		if want := start.Add(3 * time.Hour); l.Expires.Sub(want).Abs() > time.Minute {
			t.Errorf("the lease ends at %s, want %s", l.Expires, want)
		}
	}
}

func TestNodePoolChurn(t *testing.T) {
	b := newVMHarness(t, withRange("192.0.10.1-192.0.12.88")) // 600 addresses
	generation := func(n int) []string { return names(fmt.Sprintf("g%d-", n), 500) }
	addrs := map[string]netip.Addr{}
	for _, name := range generation(0) {
		addrs[name] = b.dora(b.directory.boot(name))
	}
	for g := 1; g <= 4; g++ {
		before, after := generation(g-1), generation(g)
		for i := 0; i < 500; i += 50 {
			for _, name := range before[i : i+50] {
				b.directory.remove(name, true)
				b.granted.GaveUp(addrs[name], nicOf(name).String(), b.clock.Now())
			}
			for _, name := range after[i : i+50] { // before the addresses of deleted VMs are released
				addrs[name] = b.dora(b.directory.boot(name))
			}
			b.advance(70 * time.Second)
		}
	}
	if s := b.Stats(); s.Bound != 500 || s.Exhausted != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestReplicasChooseTheSameAddress(t *testing.T) {
	b := newVMHarness(t, withRange("192.0.2.10-192.0.2.109"))
	other := b.replica(withRange("192.0.2.10-192.0.2.109"))
	for _, name := range names("worker-", 60) {
		c := b.directory.boot(name)
		if x, y := b.Discover(c, netip.Addr{}), other.Discover(c, netip.Addr{}); x.Addr != y.Addr {
			t.Fatalf("%s is offered %v and %v", name, x.Addr, y.Addr)
		}
	}
}

func TestOneWriteAtATime(t *testing.T) {
	b := newVMHarness(t)
	c := b.directory.boot("worker-0")
	offer := b.Discover(c, netip.Addr{})
	b.store.duringWrite = func() {
		b.store.duringWrite = nil
		wantVerdict(t, b.Select(t.Context(), c, offer.Addr), pool.Silent, pool.ReasonInProgress)
		wantVerdict(t, b.Select(t.Context(), b.directory.boot("worker-1"), offer.Addr), pool.Silent, pool.ReasonInProgress)
		b.clock.Step(2 * time.Minute) // the offer expires
		b.Stats()
	}
	if a := b.recordGrant(c, b.Select(t.Context(), c, offer.Addr)); a.Verdict != pool.Grant {
		t.Errorf("got %+v", a)
	}
	if b.store.writes.Load() != 1 {
		t.Errorf("%d writes, want 1", b.store.writes.Load())
	}
}

func TestDeclineFloodFromManyClients(t *testing.T) {
	b := newOrdinaryHarness(t, withRange("192.0.2.10-192.0.2.109"))
	for _, name := range names("random-", 200) {
		offer := b.Discover(client(name), netip.Addr{})
		if a := b.recordGrant(client(name), b.Select(t.Context(), client(name), offer.Addr)); a.Verdict == pool.Grant {
			b.Decline(t.Context(), client(name), a.Addr, true)
			b.Release(t.Context(), client(name), a.Addr)
			b.granted.GaveUp(a.Addr, client(name).Holder, b.clock.Now())
		}
	}
	if s := b.Stats(); s.Quarantined > 26 || s.Free == 0 {
		t.Errorf("got %+v", s)
	}
}
