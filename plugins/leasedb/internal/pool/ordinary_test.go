package pool_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

func TestLeaseTimeDoesNotExceedTheStoredEnd(t *testing.T) {
	b := newOrdinaryHarness(t)
	c := client("a")
	addr := b.dora(c)
	written := b.store.writes.Load()

	b.clock.Step(10 * time.Minute)
	if a := b.verify(c, addr); a.Lease != 50*time.Minute || b.store.writes.Load() != written {
		t.Errorf("early renewal: %s after %d writes", a.Lease, b.store.writes.Load()-written)
	}
	b.clock.Step(20 * time.Minute)
	if a := b.verify(c, addr); a.Lease != time.Hour || b.store.writes.Load() != written+1 {
		t.Errorf("renewal at half of the lease time: %s after %d writes", a.Lease, b.store.writes.Load()-written)
	}
	b.store.unavailable.Store(true)
	b.clock.Step(45 * time.Minute)
	if a := b.verify(c, addr); a.Verdict != pool.Grant || a.Lease != 15*time.Minute {
		t.Errorf("during an outage: %+v", a)
	}
	b.clock.Step(15 * time.Minute)
	wantVerdict(t, b.verify(c, addr), pool.Silent, pool.ReasonNotSynced)
	b.store.unavailable.Store(false)
	if a := b.verify(c, addr); a.Verdict != pool.Grant || a.Lease != time.Hour {
		t.Errorf("after the outage, while the address is free: %+v", a)
	}
}

func TestGrantedLeaseStaysValidIfAWriteFails(t *testing.T) {
	b := newOrdinaryHarness(t)
	c := client("a")
	addr := b.dora(c)
	b.clock.Step(30 * time.Minute)
	b.store.duringWrite = func() { b.store.unavailable.Store(true) } // unavailable during the write
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	b.stop = func() {}
	if a := b.verify(c, addr); a.Verdict != pool.Grant || a.Lease != 30*time.Minute {
		t.Errorf("got %+v", a)
	}
}

func TestFailedWriteGrantsNothing(t *testing.T) {
	b := newOrdinaryHarness(t)
	for i, name := range names("client-", 5) {
		offer := b.Discover(client(name), netip.Addr{})
		b.store.failing.Store(true)
		wantVerdict(t, b.Select(t.Context(), client(name), offer.Addr), pool.Silent, pool.ReasonStore)
		b.store.failing.Store(false)
		if s := b.Stats(); s.Bound != i {
			t.Errorf("after %d failures: %+v", i+1, s)
		}
		if a := b.recordGrant(client(name), b.Select(t.Context(), client(name), offer.Addr)); a.Verdict != pool.Grant {
			t.Errorf("after a retry: %+v", a)
		}
	}
	if n := b.logCount("cannot write a binding"); n != 1 {
		t.Errorf("logged %d times in a minute, want once", n)
	}
}

func TestExpiredLeaseIsReusedAfterTheGracePeriod(t *testing.T) {
	b := newOrdinaryHarness(t, withRange("192.0.2.10-192.0.2.10"))
	addr := b.dora(client("a"))
	b.advance(time.Hour + 30*time.Second)
	wantVerdict(t, b.Discover(client("b"), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
	b.advance(time.Minute)
	if got := b.dora(client("b")); got != addr {
		t.Errorf("got %v", got)
	}
	wantVerdict(t, b.verify(client("a"), addr), pool.Silent, pool.ReasonNoBinding)
}

func TestReleasedLease(t *testing.T) {
	b := newOrdinaryHarness(t)
	a := client("a")
	addr := b.dora(a)
	if why := b.Release(t.Context(), client("b"), addr); why != pool.ReasonNotYours {
		t.Errorf("by another client: %s", why)
	}
	if why := b.Release(t.Context(), a, addr); why != pool.ReasonDone {
		t.Errorf("got %s", why)
	}
	b.granted.GaveUp(addr, a.Holder, b.clock.Now())
	if s := b.Stats(); s.Bound != 0 || s.Released != 1 || s.Free != 10 {
		t.Errorf("got %+v", s)
	}
	for _, name := range names("other-", 9) {
		if got := b.dora(client(name)); got == addr {
			t.Errorf("%s got the released address although others were free", name)
		}
	}
	if got := b.dora(a); got != addr {
		t.Errorf("had %v, got %v", addr, got)
	}
}

func TestOldBindingsAreDeleted(t *testing.T) {
	b := newOrdinaryHarness(t)
	b.dora(client("expired"))
	addr := b.dora(client("released"))
	b.Release(t.Context(), client("released"), addr)
	b.advance(23 * time.Hour)
	if s := b.Stats(); s.Released != 2 {
		t.Errorf("after 23 hours: %+v", s)
	}
	b.advance(3 * time.Hour)
	if s := b.Stats(); s.Released != 0 || len(b.Bindings()) != 0 {
		t.Errorf("after 26 hours: %+v", s)
	}
	b.open()
	if n := len(b.Bindings()); n != 0 {
		t.Errorf("the file has %d bindings", n)
	}
}

func TestUnknownClientsAreNeverRefused(t *testing.T) {
	b := newOrdinaryHarness(t)
	addr := b.dora(client("a"))
	for name, wanted := range map[string]string{
		"of another client": addr.String(), "free": "192.0.2.18", "outside of the ranges": "192.0.200.1", "of another network": "198.51.100.1",
	} {
		if a := b.verify(client("unknown"), netip.MustParseAddr(wanted)); a.Verdict != pool.Silent {
			t.Errorf("%s: %+v", name, a)
		}
	}
	wantVerdict(t, b.verify(client("a"), netip.MustParseAddr("198.51.100.1")), pool.Refuse, pool.ReasonWrongNet)
	for i := range b.Ranges.Size() {
		if other := b.Ranges.Addr(i); other != addr {
			wantVerdict(t, b.verify(client("a"), other), pool.Refuse, pool.ReasonMismatch)
			break
		}
	}
}

func TestSelect(t *testing.T) {
	b := newOrdinaryHarness(t)
	offer := b.Discover(client("a"), netip.Addr{})
	wantVerdict(t, b.Select(t.Context(), client("b"), offer.Addr), pool.Refuse, pool.ReasonTaken)
	wantVerdict(t, b.Select(t.Context(), client("b"), netip.MustParseAddr("192.0.2.2")), pool.Refuse, pool.ReasonTaken)
	b.Forget(client("a"))
	if a := b.recordGrant(client("b"), b.Select(t.Context(), client("b"), offer.Addr)); a.Verdict != pool.Grant {
		t.Errorf("after the first client selected another server: %+v", a)
	}
	wantVerdict(t, b.Select(t.Context(), client("a"), offer.Addr), pool.Refuse, pool.ReasonTaken)
}

func TestWantedAddressIsOfferedIfFree(t *testing.T) {
	b := newOrdinaryHarness(t)
	wanted := netip.MustParseAddr("192.0.2.14")
	if a := b.Discover(client("a"), wanted); a.Addr != wanted {
		t.Errorf("offered %v", a.Addr)
	}
	for _, not := range []netip.Addr{wanted, netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.7.7")} {
		if a := b.Discover(client("b"), not); a.Addr == not || a.Verdict != pool.Grant {
			t.Errorf("requested %v: %+v", not, a)
		}
	}
}

func TestFloodOfDiscovers(t *testing.T) {
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

func TestExhaustionIsLogged(t *testing.T) {
	b := newOrdinaryHarness(t, withRange("192.0.2.10-192.0.2.11"))
	b.dora(client("a"))
	b.dora(client("b"))
	for i := range 100 {
		wantVerdict(t, b.Discover(client(fmt.Sprint(i)), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
	}
	if s := b.Stats(); s.Exhausted != 100 || s.Free != 0 {
		t.Errorf("got %+v", s)
	}
	if n := b.logCount("no address is left"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	b.clock.Step(time.Minute)
	b.Discover(client("c"), netip.Addr{})
	if n := b.logCount("no address is left"); n != 2 {
		t.Errorf("a minute later: logged %d times", n)
	}
}

func TestOtherRangesAfterARestart(t *testing.T) {
	b := newVMHarness(t)
	addrs := map[string]netip.Addr{}
	for _, name := range names("worker-", 10) {
		addrs[name] = b.dora(b.directory.boot(name))
	}
	b.open(withRange("192.0.2.15-192.0.2.34"))
	if n := b.logCount("outside of the ranges"); n != 5 {
		t.Errorf("%d bindings outside of the ranges were logged, want 5", n)
	}
	for name, addr := range addrs {
		c := b.directory.boot(name)
		if a := b.verify(c, addr); a.Verdict != pool.Grant {
			t.Errorf("%s, %s: %+v", name, addr, a)
		}
		if got := b.dora(c); got != addr {
			t.Errorf("%s moved from %s to %s", name, addr, got)
		}
		if _, kept := b.Ranges.Number(addr); kept {
			continue
		}
		// The address of a deleted VM is leased to no other one.
		b.directory.remove(name, true)
		b.advance(2 * time.Minute)
		b.granted.GaveUp(addr, c.Holder, b.clock.Now())
		wantVerdict(t, b.verify(b.directory.boot(name+"-new"), addr), pool.Refuse, pool.ReasonTaken)
	}
}

// TestClockSetForwardDuringARestart sets the clock forward while the server does not run, so that it cannot measure
// the elapsed time. No address may be leased twice within the granted time.
func TestClockSetForwardDuringARestart(t *testing.T) {
	b := newOrdinaryHarness(t, withRange("192.0.2.10-192.0.2.11"))
	b.dora(client("previous"))
	b.advance(50 * time.Minute)
	addr := b.dora(client("a"))
	b.advance(20 * time.Minute) // the first lease expires, which the file shows
	b.granted.GaveUp(addr, client("a").Holder, b.clock.Now())

	b.clock.Step(2 * time.Hour)
	b.open(withRange("192.0.2.10-192.0.2.11"))
	if got := b.dora(client("b")); got == addr {
		t.Fatalf("%v is leased twice", got)
	}
	wantVerdict(t, b.Discover(client("c"), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
	if s := b.Stats(); s.Bound != 2 {
		t.Errorf("got %+v", s)
	}
	if a := b.verify(client("a"), addr); a.Verdict != pool.Grant || a.Lease != time.Hour {
		t.Errorf("renewal of the client: %+v", a)
	}
	b.advance(time.Hour + 2*time.Minute)
	if got := b.dora(client("c")); !got.IsValid() {
		t.Error("the address is never reused")
	}
}

// TestReplicaWithAnotherClock covers a binding of a replica whose clock is two hours behind: it is valid for an
// hour from its arrival.
func TestReplicaWithAnotherClock(t *testing.T) {
	b := newOrdinaryHarness(t, withRange("192.0.2.10-192.0.2.10"))
	behind := b.clock.Now().Add(-2 * time.Hour)
	b.Set(store.Binding{Addr: netip.MustParseAddr("192.0.2.10"), Holder: "mac:other", Used: behind, Expires: behind.Add(time.Hour), Revision: 7})
	wantVerdict(t, b.Discover(client("a"), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
	b.advance(time.Hour + 2*time.Minute)
	if a := b.Discover(client("a"), netip.Addr{}); a.Verdict != pool.Grant {
		t.Errorf("got %+v", a)
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
