package pool_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

func TestDecline(t *testing.T) {
	b := ordinary(t)
	ctx, a := t.Context(), client("a")
	addr := b.dora(a)
	if why := b.Decline(ctx, client("b"), addr, true); why != pool.ReasonNotYours {
		t.Errorf("by somebody else: %s", why)
	}
	b.Decline(ctx, a, addr, true)
	b.granted.GaveUp(addr, a.Holder, b.clock.Now())
	second := b.dora(a)
	if second == addr {
		t.Error("it is offered what it declined")
	}
	b.open()
	for _, name := range names("other-", 8) {
		if got := b.dora(client(name)); got == addr {
			t.Errorf("%s got it after a restart", name)
		}
	}
	wantVerdict(t, b.Discover(client("late"), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
	b.pass(10*time.Minute + 10*time.Second)
	if got := b.dora(client("late")); got != addr {
		t.Errorf("after the quarantine: %v", got)
	}
}

func TestDeclineIsHeededWithoutAStore(t *testing.T) {
	for name, ours := range map[string]bool{"ours, the store is away": true, "another replica's": false} {
		t.Run(name, func(t *testing.T) {
			b := machines(t)
			c := b.directory.boot("worker-0")
			addr := b.dora(c)
			b.store.away.Store(true)
			if why := b.Decline(t.Context(), c, addr, ours); why != pool.ReasonDone {
				t.Fatalf("got %s", why)
			}
			if a := b.Discover(c, netip.Addr{}); a.Verdict == pool.Grant {
				t.Errorf("it is offered %v again", a.Addr)
			}
			b.granted.GaveUp(addr, c.Holder, b.clock.Now())
			b.store.away.Store(false)
			if got := b.dora(c); got == addr {
				t.Errorf("it is given %v again", got)
			}
		})
	}
}

func TestFloodOfDeclines(t *testing.T) {
	t.Run("by one client", func(t *testing.T) {
		b := ordinary(t, withRange("192.0.2.10-192.0.2.109"))
		var last pool.Reason
		for range 10 {
			addr := b.dora(client("a"))
			last = b.Decline(t.Context(), client("a"), addr, true)
			b.granted.GaveUp(addr, client("a").Holder, b.clock.Now())
		}
		if s := b.Stats(); s.Quarantined != 3 || last != pool.ReasonTooMany {
			t.Errorf("got %s and %+v", last, s)
		}
	})
	t.Run("by many", func(t *testing.T) {
		b := ordinary(t, withRange("192.0.2.10-192.0.2.109"))
		for _, name := range names("random-", 200) {
			offer := b.Discover(client(name), netip.Addr{})
			if a := b.note(client(name), b.Select(t.Context(), client(name), offer.Addr)); a.Verdict == pool.Grant {
				b.Decline(t.Context(), client(name), a.Addr, true)
				b.Release(t.Context(), client(name), a.Addr)
				b.granted.GaveUp(a.Addr, client(name).Holder, b.clock.Now())
			}
		}
		if s := b.Stats(); s.Quarantined > 26 || s.Free == 0 {
			t.Errorf("got %+v", s)
		}
	})
}
