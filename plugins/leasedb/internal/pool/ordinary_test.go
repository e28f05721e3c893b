package pool_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

func TestOrdinaryLeaseIsNeverPromisedPastItsEnd(t *testing.T) {
	b := ordinary(t)
	c := client("a")
	addr := b.dora(c)
	written := b.store.writes.Load()

	b.clock.Step(10 * time.Minute)
	if a := b.verify(c, addr); a.Lease != 50*time.Minute || b.store.writes.Load() != written {
		t.Errorf("while it is young: %s after %d writes", a.Lease, b.store.writes.Load()-written)
	}
	b.clock.Step(20 * time.Minute)
	if a := b.verify(c, addr); a.Lease != time.Hour || b.store.writes.Load() != written+1 {
		t.Errorf("at half its time: %s after %d writes", a.Lease, b.store.writes.Load()-written)
	}
	b.store.away.Store(true)
	b.clock.Step(45 * time.Minute)
	if a := b.verify(c, addr); a.Verdict != pool.Grant || a.Lease != 15*time.Minute {
		t.Errorf("during an outage: %+v", a)
	}
	b.clock.Step(15 * time.Minute)
	wantVerdict(t, b.verify(c, addr), pool.Silent, pool.ReasonNotSynced)
	b.store.away.Store(false)
	if a := b.verify(c, addr); a.Verdict != pool.Grant || a.Lease != time.Hour {
		t.Errorf("after the outage, while nobody else has it: %+v", a)
	}
}

func TestPromiseHoldsWhereAWriteFails(t *testing.T) {
	b := ordinary(t)
	c := client("a")
	addr := b.dora(c)
	b.clock.Step(30 * time.Minute)
	b.store.meanwhile = func() { b.store.away.Store(true) } // it was there a moment ago
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	b.stop = func() {}
	if a := b.verify(c, addr); a.Verdict != pool.Grant || a.Lease != 30*time.Minute {
		t.Errorf("got %+v", a)
	}
}

func TestFailedWriteIsNoPromise(t *testing.T) {
	b := ordinary(t)
	for i, name := range names("client-", 5) {
		offer := b.Discover(client(name), netip.Addr{})
		b.store.failing.Store(true)
		wantVerdict(t, b.Select(t.Context(), client(name), offer.Addr), pool.Silent, pool.ReasonStore)
		b.store.failing.Store(false)
		if s := b.Stats(); s.Bound != i {
			t.Errorf("after %d failures: %+v", i+1, s)
		}
		if a := b.note(client(name), b.Select(t.Context(), client(name), offer.Addr)); a.Verdict != pool.Grant {
			t.Errorf("asked again: %+v", a)
		}
	}
	if n := b.logged("could not be written"); n != 1 {
		t.Errorf("logged %d times in a minute", n)
	}
}

func TestExpiredLeaseGoesToOthersAfterAGrace(t *testing.T) {
	b := ordinary(t, withRange("192.0.2.10-192.0.2.10"))
	addr := b.dora(client("a"))
	b.pass(time.Hour + 30*time.Second)
	wantVerdict(t, b.Discover(client("b"), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
	b.pass(time.Minute)
	if got := b.dora(client("b")); got != addr {
		t.Errorf("got %v", got)
	}
	wantVerdict(t, b.verify(client("a"), addr), pool.Silent, pool.ReasonNoBinding)
}

func TestReleasedLease(t *testing.T) {
	b := ordinary(t)
	a := client("a")
	addr := b.dora(a)
	if why := b.Release(t.Context(), client("b"), addr); why != pool.ReasonNotYours {
		t.Errorf("by somebody else: %s", why)
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
			t.Errorf("%s got it although others were free", name)
		}
	}
	if got := b.dora(a); got != addr {
		t.Errorf("had %v, is given %v", addr, got)
	}
}

func TestOldBindingsAreForgotten(t *testing.T) {
	b := ordinary(t)
	b.dora(client("expired"))
	addr := b.dora(client("released"))
	b.Release(t.Context(), client("released"), addr)
	b.pass(23 * time.Hour)
	if s := b.Stats(); s.Released != 2 {
		t.Errorf("after 23 hours: %+v", s)
	}
	b.pass(3 * time.Hour)
	if s := b.Stats(); s.Released != 0 || len(b.Bindings()) != 0 {
		t.Errorf("after 26 hours: %+v", s)
	}
	b.open()
	if n := len(b.Bindings()); n != 0 {
		t.Errorf("the file still holds %d", n)
	}
}

func TestUnknownClientsAreNeverRefused(t *testing.T) {
	b := ordinary(t)
	addr := b.dora(client("a"))
	for name, wanted := range map[string]string{
		"another's": addr.String(), "a free one": "192.0.2.18", "none of ours": "192.0.200.1", "another network's": "198.51.100.1",
	} {
		if a := b.verify(client("stranger"), netip.MustParseAddr(wanted)); a.Verdict != pool.Silent {
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
	b := ordinary(t)
	offer := b.Discover(client("a"), netip.Addr{})
	wantVerdict(t, b.Select(t.Context(), client("b"), offer.Addr), pool.Refuse, pool.ReasonTaken)
	wantVerdict(t, b.Select(t.Context(), client("b"), netip.MustParseAddr("192.0.2.2")), pool.Refuse, pool.ReasonTaken)
	b.Forget(client("a"))
	if a := b.note(client("b"), b.Select(t.Context(), client("b"), offer.Addr)); a.Verdict != pool.Grant {
		t.Errorf("after its client chose another server: %+v", a)
	}
	wantVerdict(t, b.Select(t.Context(), client("a"), offer.Addr), pool.Refuse, pool.ReasonTaken)
}

func TestWantedAddressIsOfferedIfFree(t *testing.T) {
	b := ordinary(t)
	wanted := netip.MustParseAddr("192.0.2.14")
	if a := b.Discover(client("a"), wanted); a.Addr != wanted {
		t.Errorf("offered %v", a.Addr)
	}
	for _, not := range []netip.Addr{wanted, netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.7.7")} {
		if a := b.Discover(client("b"), not); a.Addr == not || a.Verdict != pool.Grant {
			t.Errorf("wants %v: %+v", not, a)
		}
	}
}

func TestFloodOfDiscovers(t *testing.T) {
	b := ordinary(t)
	known := b.dora(client("known"))
	for i := range 20_000 {
		if a := b.Discover(client(fmt.Sprint("random-", i)), netip.Addr{}); a.Verdict != pool.Grant {
			t.Fatalf("flooded after %d: %s", i, a.Reason)
		}
		if i%2_000 == 0 {
			b.dora(client(fmt.Sprint("honest-", i/4_000)))
			if a := b.verify(client("known"), known); a.Verdict != pool.Grant {
				t.Fatalf("a client that has an address: %+v", a)
			}
		}
	}
	if s := b.Stats(); s.Held+s.Bound > s.Size {
		t.Errorf("got %+v", s)
	}
}

func TestExhaustionIsLoud(t *testing.T) {
	b := ordinary(t, withRange("192.0.2.10-192.0.2.11"))
	b.dora(client("a"))
	b.dora(client("b"))
	for i := range 100 {
		wantVerdict(t, b.Discover(client(fmt.Sprint(i)), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
	}
	if s := b.Stats(); s.Exhausted != 100 || s.Free != 0 {
		t.Errorf("got %+v", s)
	}
	if n := b.logged("no address is left"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	b.clock.Step(time.Minute)
	b.Discover(client("c"), netip.Addr{})
	if n := b.logged("no address is left"); n != 2 {
		t.Errorf("a minute later: logged %d times", n)
	}
}

func TestOtherRangesAfterARestart(t *testing.T) {
	b := machines(t)
	addrs := map[string]netip.Addr{}
	for _, name := range names("worker-", 10) {
		addrs[name] = b.dora(b.directory.boot(name))
	}
	b.open(withRange("192.0.2.15-192.0.2.34"))
	if n := b.logged("outside of the ranges"); n != 5 {
		t.Errorf("%d dropped bindings were logged, want 5", n)
	}
	for name, addr := range addrs {
		c := b.directory.boot(name)
		if _, kept := b.Ranges.Number(addr); kept {
			if a := b.verify(c, addr); a.Verdict != pool.Grant {
				t.Errorf("%s, which is still inside: %+v", addr, a)
			}
			continue
		}
		wantVerdict(t, b.verify(c, addr), pool.Refuse, pool.ReasonTaken)
		b.granted.GaveUp(addr, c.Holder, b.clock.Now())
		if got, ok := b.Ranges.Number(b.dora(c)); !ok {
			t.Errorf("%s moved to %v", name, got)
		}
	}
}

// TestClockThatIsSetForward has the clock jump while the server does not run, so that nothing tells it how much time has
// passed: no address is given twice within what its client was promised.
func TestClockThatIsSetForward(t *testing.T) {
	b := ordinary(t, withRange("192.0.2.10-192.0.2.11"))
	b.dora(client("gone"))
	b.pass(50 * time.Minute)
	addr := b.dora(client("a"))
	b.pass(20 * time.Minute) // the first lease has ended, and so the file knows
	b.granted.GaveUp(addr, client("a").Holder, b.clock.Now())

	b.clock.Step(2 * time.Hour)
	b.open(withRange("192.0.2.10-192.0.2.11"))
	if got := b.dora(client("b")); got == addr {
		t.Fatalf("%v is given twice", got)
	}
	wantVerdict(t, b.Discover(client("c"), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
	if s := b.Stats(); s.Bound != 2 {
		t.Errorf("got %+v", s)
	}
	if a := b.verify(client("a"), addr); a.Verdict != pool.Grant || a.Lease != time.Hour {
		t.Errorf("its client renews: %+v", a)
	}
	b.pass(time.Hour + 2*time.Minute)
	if got := b.dora(client("c")); !got.IsValid() {
		t.Error("it is kept for ever")
	}
}

// TestNewsOfAnotherClock has a replica whose clock is two hours behind: what it promises holds for an hour from when it is told.
func TestNewsOfAnotherClock(t *testing.T) {
	b := ordinary(t, withRange("192.0.2.10-192.0.2.10"))
	behind := b.clock.Now().Add(-2 * time.Hour)
	b.Set(store.Binding{Addr: netip.MustParseAddr("192.0.2.10"), Holder: "mac:other", Used: behind, Expires: behind.Add(time.Hour), Revision: 7})
	wantVerdict(t, b.Discover(client("a"), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
	b.pass(time.Hour + 2*time.Minute)
	if a := b.Discover(client("a"), netip.Addr{}); a.Verdict != pool.Grant {
		t.Errorf("got %+v", a)
	}
}

func TestClockThatJumpsIsLoud(t *testing.T) {
	var ahead time.Duration
	b := ordinary(t, func(c *pool.Config) { c.Wall = func() time.Time { return c.Clock.Now().Add(ahead) } })
	addr := b.dora(client("a"))
	b.pass(time.Minute)
	if s := b.Stats(); s.ClockJumps != 0 {
		t.Errorf("it did not jump: %+v", s)
	}
	ahead = 2 * time.Hour
	b.pass(20 * time.Second)
	if s := b.Stats(); s.ClockJumps != 1 || s.ClockOffset != 7200 || b.logged("clock") != 1 {
		t.Errorf("got %+v\n%s", s, b.log)
	}
	if a := b.Discover(client("b"), addr); a.Addr == addr {
		t.Error("it is given twice")
	}
	for _, l := range b.Leases() { // for people, by the clock that they have
		if want := start.Add(3 * time.Hour); l.Expires.Sub(want).Abs() > time.Minute {
			t.Errorf("it ends at %s, not at %s", l.Expires, want)
		}
	}
}
