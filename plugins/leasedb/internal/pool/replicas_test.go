package pool_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// replica returns a second pool on the same store, which has not seen the writes of the first one.
func (b *harness) replica() *pool.Pool {
	p := pool.New(b.config())
	p.Replace(nil, 0)
	return p
}

func TestReplicasChooseTheSameAddress(t *testing.T) {
	b := newVMHarness(t, withRange("192.0.2.10-192.0.2.109"))
	other := pool.New(b.config(withRange("192.0.2.10-192.0.2.109")))
	other.Replace(nil, 0)
	for _, name := range names("worker-", 60) {
		c := b.directory.boot(name)
		if x, y := b.Discover(c, netip.Addr{}), other.Discover(c, netip.Addr{}); x.Addr != y.Addr {
			t.Fatalf("%s is offered %v and %v", name, x.Addr, y.Addr)
		}
	}
}

func TestReplicaThatWritesSecond(t *testing.T) {
	b := newVMHarness(t)
	other := b.replica()
	c := b.directory.boot("worker-0")
	addr := b.dora(c)
	t.Run("grants the binding to the same VM", func(t *testing.T) {
		if a := other.Select(t.Context(), c, addr); a.Verdict != pool.Grant || a.Addr != addr {
			t.Errorf("got %+v", a)
		}
	})
	t.Run("makes the binding the newest", func(t *testing.T) {
		// The VM also has another binding, which the replica that it selects does not know.
		if _, err := b.store.Store.Put(t.Context(), store.Binding{Addr: addr.Next().Next(), Holder: c.Holder, Used: start.Add(time.Millisecond)}); err != nil {
			t.Fatal(err)
		}
		b.clock.Step(time.Second)
		if a := b.replica().Select(t.Context(), c, addr); a.Verdict != pool.Grant {
			t.Fatalf("got %+v", a)
		}
		b.open()
		if a := b.Discover(c, netip.Addr{}); a.Addr != addr {
			t.Errorf("other replicas offer %v", a.Addr)
		}
	})
	t.Run("refuses another VM", func(t *testing.T) {
		other := b.replica()
		wantVerdict(t, other.Select(t.Context(), b.directory.boot("worker-1"), addr), pool.Refuse, pool.ReasonTaken)
		if a := other.Discover(b.directory.boot("worker-1"), addr); a.Verdict != pool.Grant || a.Addr == addr {
			t.Errorf("offer after the conflict: %+v", a)
		}
	})
	t.Run("does not collect a changed binding", func(t *testing.T) {
		late := pool.New(b.config())
		late.Replace(b.Bindings(), 1)
		b.directory.remove("worker-0", true)
		b.advance(2 * time.Minute)
		b.granted.GaveUp(addr, c.Holder, start)
		next := b.directory.boot("worker-2")
		if a := b.recordGrant(next, b.Select(t.Context(), next, addr)); a.Verdict != pool.Grant {
			t.Fatalf("got %+v", a)
		}
		for range 500 {
			b.clock.Step(10 * time.Second)
			late.Collect(t.Context())
		}
		if a := b.verify(next, addr); a.Verdict != pool.Grant {
			t.Errorf("got %+v", a)
		}
	})
}

func TestChangesFromTheStore(t *testing.T) {
	addr, other := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")
	worker := func(n int) string { return nicOf(fmt.Sprint("worker-", n)).String() }
	binding := func(a netip.Addr, n int, revision uint64) store.Binding {
		return store.Binding{Addr: a, Holder: worker(n), Used: start, Revision: revision}
	}
	tests := map[string]struct {
		apply func(*pool.Pool)
		want  map[netip.Addr]string
	}{
		"a write": {
			func(p *pool.Pool) { p.Set(binding(addr, 1, 5)) },
			map[netip.Addr]string{addr: worker(1)},
		},
		"an older write": {
			func(p *pool.Pool) { p.Set(binding(addr, 1, 5)); p.Set(binding(addr, 2, 4)) },
			map[netip.Addr]string{addr: worker(1)},
		},
		"a deletion": {
			func(p *pool.Pool) { p.Set(binding(addr, 1, 5)); p.Remove(addr, 6) },
			map[netip.Addr]string{},
		},
		"a deletion of an earlier binding": {
			func(p *pool.Pool) { p.Set(binding(addr, 1, 5)); p.Remove(addr, 4) },
			map[netip.Addr]string{addr: worker(1)},
		},
		"a newer list without the binding": {
			func(p *pool.Pool) { p.Set(binding(addr, 1, 5)); p.Replace([]store.Binding{binding(other, 2, 6)}, 7) },
			map[netip.Addr]string{other: worker(2)},
		},
		"an older list without the binding": {
			func(p *pool.Pool) { p.Set(binding(addr, 1, 5)); p.Replace([]store.Binding{binding(other, 2, 3)}, 4) },
			map[netip.Addr]string{addr: worker(1), other: worker(2)},
		},
		"a binding of another network": {
			func(p *pool.Pool) { p.Set(binding(netip.MustParseAddr("198.51.100.1"), 1, 5)) },
			map[netip.Addr]string{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newVMHarness(t)
			p := b.replica()
			tt.apply(p)
			got := map[netip.Addr]string{}
			for _, l := range p.Leases() {
				got[l.Addr] = l.Holder
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestBindingFromTheStoreEndsAnOffer(t *testing.T) {
	b := newVMHarness(t)
	c := b.directory.boot("worker-0")
	offer := b.Discover(c, netip.Addr{})
	b.Set(store.Binding{Addr: offer.Addr, Holder: nicOf("worker-1").String(), Used: start, Revision: 100})
	wantVerdict(t, b.Select(t.Context(), c, offer.Addr), pool.Refuse, pool.ReasonTaken)
	if again := b.Discover(c, netip.Addr{}); again.Addr == offer.Addr {
		t.Error("the bound address is offered")
	}
}

// TestTwoBindingsOfOneVM covers a VM that asked two replicas at once: the newer binding is in force on all
// replicas.
func TestTwoBindingsOfOneVM(t *testing.T) {
	b := newVMHarness(t)
	c := b.directory.boot("worker-0")
	older, newer := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")
	for addr, used := range map[netip.Addr]time.Time{older: start, newer: start.Add(time.Second)} {
		if _, err := b.store.Store.Put(t.Context(), store.Binding{Addr: addr, Holder: c.Holder, Used: used}); err != nil {
			t.Fatal(err)
		}
	}
	b.open()
	if a := b.Discover(c, netip.Addr{}); a.Addr != newer {
		t.Errorf("offered %v", a.Addr)
	}
	b.store.unavailable.Store(true)
	wantVerdict(t, b.verify(c, older), pool.Silent, pool.ReasonNotSynced)
	b.store.unavailable.Store(false)
	if a := b.verify(c, older); a.Verdict != pool.Grant { // the VM uses the older one
		t.Errorf("got %+v", a)
	}
	if a := b.Discover(c, netip.Addr{}); a.Addr != older {
		t.Errorf("then offered %v", a.Addr)
	}
	b.advance(69 * time.Minute)
	if s := b.Stats(); s.Bound != 2 {
		t.Errorf("while the other address may be in use: %+v", s)
	}
	b.advance(2 * time.Minute)
	if s := b.Stats(); s.Bound != 1 || s.Released != 1 {
		t.Errorf("after that: %+v", s)
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

// TestClockSetForwardKeepsTheOlderBinding covers a VM that uses the older of its two bindings. After a restart with
// a clock that was set forward, the newer binding seems to be in force for long.
func TestClockSetForwardKeepsTheOlderBinding(t *testing.T) {
	b := newVMHarness(t)
	c := b.directory.boot("worker-0")
	older := b.dora(c)
	newer := older.Next()
	if newer == netip.MustParseAddr("192.0.2.20") {
		newer = older.Prev()
	}
	if _, err := b.store.Store.Put(t.Context(), store.Binding{Addr: newer, Holder: c.Holder, Used: b.clock.Now().Add(time.Second)}); err != nil {
		t.Fatal(err)
	}
	b.clock.Step(2 * time.Hour)
	b.open()
	b.advance(time.Minute)
	if s := b.Stats(); s.Bound != 2 {
		t.Errorf("before the VM asks: %+v", s)
	}
	wantVerdict(t, b.Renew(t.Context(), c, newer), pool.Grant, "")
	b.advance(time.Minute)
	if s := b.Stats(); s.Bound != 1 || s.Released != 1 {
		t.Errorf("after the VM has renewed the newer binding: %+v", s)
	}
	b.granted.GaveUp(older, c.Holder, b.clock.Now())
}
