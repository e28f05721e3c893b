package pool_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

func TestVMRenewsWithoutAWrite(t *testing.T) {
	b := newVMHarness(t)
	c := b.directory.boot("worker-0")
	addr := b.dora(c)
	written := b.store.writes.Load()
	for range 10 {
		b.advance(30 * time.Minute)
		if a := b.verify(c, addr); a.Verdict != pool.Grant || a.Addr != addr || a.Lease != time.Hour {
			t.Fatalf("got %+v", a)
		}
		if a := b.Discover(c, netip.Addr{}); a.Addr != addr {
			t.Fatalf("the VM is offered %v", a.Addr)
		}
	}
	if got := b.store.writes.Load(); got != written {
		t.Errorf("renewals made %d writes", got-written)
	}
}

func TestOffersWriteNothing(t *testing.T) {
	b := newVMHarness(t)
	first := b.Discover(b.directory.boot("worker-0"), netip.Addr{})
	if again := b.Discover(b.directory.boot("worker-0"), netip.Addr{}); again.Addr != first.Addr {
		t.Errorf("offered %v and then %v", first.Addr, again.Addr)
	}
	if b.store.writes.Load() != 0 {
		t.Error("an offer was written")
	}
	if s := b.Stats(); s.Held != 1 || s.Free != 9 {
		t.Errorf("while the address is held: %+v", s)
	}
	b.clock.Step(time.Minute)
	if s := b.Stats(); s.Held != 0 || s.Free != 10 {
		t.Errorf("after a minute: %+v", s)
	}
}

func TestVMsRenewDuringAnOutage(t *testing.T) {
	b := newVMHarness(t, withRange("192.0.2.10-192.0.2.109"))
	fleet := map[string]netip.Addr{}
	for _, name := range names("worker-", 50) {
		fleet[name] = b.dora(b.directory.boot(name))
	}
	b.store.unavailable.Store(true)
	b.directory.setSynced(false)
	b.directory.remove("worker-7", false)
	for range 6 { // three hours
		b.advance(30 * time.Minute)
		for name, addr := range fleet {
			if name == "worker-7" {
				continue
			}
			if a := b.verify(pool.Client{Holder: nicOf(name).String(), VM: true}, addr); a.Verdict != pool.Grant || a.Addr != addr || a.Lease != time.Hour {
				t.Fatalf("%s after %s: %+v", name, b.clock.Now().Sub(start), a)
			}
		}
		wantVerdict(t, b.Discover(b.directory.boot("newcomer"), netip.Addr{}), pool.Silent, pool.ReasonNotSynced)
	}
	b.store.unavailable.Store(false)
	b.directory.setSynced(true)
	b.advance(time.Hour + 9*time.Minute)
	if s := b.Stats(); s.Bound != 50 {
		t.Errorf("before the synced directory has lacked the VM for the lease time and 10 minutes: %+v", s)
	}
	b.advance(2 * time.Minute)
	if s := b.Stats(); s.Bound != 49 || s.Released != 1 {
		t.Errorf("after that: %+v", s)
	}
	b.granted.GaveUp(fleet["worker-7"], nicOf("worker-7").String(), start)
}

func TestAddressOfADeletedVM(t *testing.T) {
	tests := map[string]struct {
		observed    bool
		interrupted bool // the directory is not synced for a minute
		kept        time.Duration
		released    time.Duration
	}{
		"deletion observed":                    {observed: true, kept: 50 * time.Second, released: 70 * time.Second},
		"deletion not observed":                {kept: 69 * time.Minute, released: 71 * time.Minute},
		"not observed, not synced for a while": {interrupted: true, kept: 70*time.Minute + 69*time.Minute, released: 70*time.Minute + 72*time.Minute},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newVMHarness(t, withRange("192.0.2.10-192.0.2.10"))
			addr := b.dora(b.directory.boot("old"))
			b.directory.remove("old", tt.observed)
			began := b.clock.Now()
			if tt.interrupted {
				b.advance(69 * time.Minute)
				b.directory.setSynced(false)
				b.advance(time.Minute)
				b.directory.setSynced(true)
			}
			b.advance(tt.kept - b.clock.Now().Sub(began))
			wantVerdict(t, b.Discover(b.directory.boot("new"), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
			b.advance(tt.released - tt.kept)
			b.granted.GaveUp(addr, nicOf("old").String(), began)
			if got := b.dora(b.directory.boot("new")); got != addr {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestVMThatReturnsGetsItsAddress(t *testing.T) {
	tests := map[string]func(*harness){
		"at once": func(b *harness) {
			b.directory.remove("worker-0", true)
			b.advance(30 * time.Second)
		},
		"after its address was released": func(b *harness) {
			b.directory.remove("worker-0", true)
			b.advance(3 * time.Hour)
		},
		"after a restart of the server": func(b *harness) {
			b.directory.remove("worker-0", true)
			b.advance(3 * time.Hour)
			b.open()
		},
	}
	for name, event := range tests {
		t.Run(name, func(t *testing.T) {
			b := newVMHarness(t)
			addr := b.dora(b.directory.boot("worker-0"))
			b.granted.GaveUp(addr, nicOf("worker-0").String(), b.clock.Now())
			event(b)
			b.dora(b.directory.boot("worker-1"))
			back := b.directory.boot("worker-0")
			back.MAC = "02:00:00:00:00:99" // VMs are not identified by MAC address
			if got := b.dora(back); got != addr {
				t.Errorf("had %v, got %v", addr, got)
			}
			b.advance(10 * time.Second)
			for _, l := range b.Leases() {
				if l.Addr == addr && l.MAC != back.MAC {
					t.Errorf("stored with the MAC address %s", l.MAC)
				}
			}
		})
	}
}

func TestChurnOfANodePool(t *testing.T) {
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

func TestLongestUnusedIsReclaimedFirst(t *testing.T) {
	b := newVMHarness(t, withRange("192.0.2.10-192.0.2.13"))
	var order []netip.Addr
	for _, name := range names("old-", 4) {
		order = append(order, b.dora(b.directory.boot(name)))
	}
	for _, i := range []int{2, 0, 3, 1} {
		b.directory.remove(fmt.Sprint("old-", i), true)
		b.granted.GaveUp(order[i], nicOf(fmt.Sprint("old-", i)).String(), b.clock.Now())
		b.advance(2 * time.Minute)
	}
	for n, i := range []int{2, 0, 3, 1} {
		if got := b.dora(b.directory.boot(fmt.Sprint("new-", n))); got != order[i] {
			t.Errorf("new-%d has %v, want %v", n, got, order[i])
		}
	}
}

func TestReservationMovesAVMWhenItNextBoots(t *testing.T) {
	outside := netip.MustParseAddr("192.0.3.3")
	b := newVMHarness(t)
	before := b.dora(b.directory.boot("worker-0"))
	c := b.directory.reserve("worker-0", outside)
	if a := b.verify(c, before); a.Verdict != pool.Grant {
		t.Errorf("renewal of the previous address: %+v", a)
	}
	b.granted.GaveUp(before, c.Holder, b.clock.Now())
	if got := b.dora(c); got != outside {
		t.Errorf("got %v", got)
	}
	b.advance(time.Hour + 11*time.Minute)
	if s := b.Stats(); s.Bound != 1 || s.Released != 1 {
		t.Errorf("the previous address is not released: %+v", s)
	}
}

func TestVMCannotCollectAddresses(t *testing.T) {
	b := newVMHarness(t)
	c := b.directory.boot("greedy")
	addr := b.dora(c)
	for i := range b.Ranges.Size() {
		if other := b.Ranges.Addr(i); other != addr {
			wantVerdict(t, b.Select(t.Context(), c, other), pool.Refuse, pool.ReasonMismatch)
		}
	}
	if s := b.Stats(); s.Bound != 1 {
		t.Errorf("got %+v", s)
	}
}

func TestVMWithoutABindingKeepsItsAddress(t *testing.T) {
	b := newVMHarness(t) // as after a lost lease file
	c, used := b.directory.boot("worker-0"), netip.MustParseAddr("192.0.2.15")
	if a := b.verify(c, used); a.Verdict != pool.Grant || a.Addr != used {
		t.Errorf("a free address: %+v", a)
	}
	wantVerdict(t, b.verify(b.directory.boot("worker-1"), used), pool.Refuse, pool.ReasonTaken)
	wantVerdict(t, b.verify(b.directory.boot("worker-2"), netip.MustParseAddr("198.51.100.1")), pool.Refuse, pool.ReasonWrongNet)
	wantVerdict(t, b.verify(b.directory.boot("worker-3"), netip.MustParseAddr("192.0.9.9")), pool.Refuse, pool.ReasonTaken)
	b.directory.setSynced(false)
	wantVerdict(t, b.verify(b.directory.boot("worker-4"), netip.MustParseAddr("198.51.100.1")), pool.Silent, pool.ReasonNotSynced)
}

func TestReleaseByAVMIsIgnored(t *testing.T) {
	b := newVMHarness(t)
	c := b.directory.boot("worker-0")
	addr := b.dora(c)
	if why := b.Release(t.Context(), c, addr); why != pool.ReasonVMExists {
		t.Errorf("got %s", why)
	}
	b.advance(24 * time.Hour)
	if s := b.Stats(); s.Bound != 1 {
		t.Errorf("got %+v", s)
	}
}

// TestReservedAddressIsLeasedToNoOtherVM leases all other addresses of the ranges before the VMs with reservations
// ask.
func TestReservedAddressIsLeasedToNoOtherVM(t *testing.T) {
	for name, ahead := range map[string]int{"": 0, "with probes": 10} {
		t.Run(name, func(t *testing.T) {
			l := &lan{users: map[netip.Addr]string{}}
			b := newVMHarness(t, withLAN(l, ahead))
			b.ProbeFree(t.Context())
			reserved := netip.MustParseAddr("192.0.2.12")
			owner := b.directory.reserve("owner", reserved)
			second := b.directory.reserve("second", reserved)
			before := b.directory.reserve("stopped", netip.MustParseAddr("192.0.2.13"))
			for _, name := range names("worker-", 8) {
				c := b.directory.boot(name)
				if got := b.dora(c); got == reserved || got == before.Reserved {
					t.Errorf("%s got %v", name, got)
				}
			}
			late := b.directory.boot("late")
			wantVerdict(t, b.Discover(late, reserved), pool.Silent, pool.ReasonExhausted)
			wantVerdict(t, b.Select(t.Context(), late, reserved), pool.Refuse, pool.ReasonTaken)
			wantVerdict(t, b.verify(late, reserved), pool.Refuse, pool.ReasonTaken)
			wantVerdict(t, b.Discover(second, netip.Addr{}), pool.Silent, pool.ReasonExhausted)
			if got := b.dora(owner); got != reserved {
				t.Errorf("the VM with the reservation got %v", got)
			}
		})
	}
	t.Run("a VM that has the address keeps it", func(t *testing.T) {
		b := newVMHarness(t)
		first := b.directory.boot("first")
		addr := b.dora(first)
		owner := b.directory.reserve("owner", addr)
		wantVerdict(t, b.recordGrant(first, b.Renew(t.Context(), first, addr)), pool.Grant, "")
		if got := b.dora(owner); got == addr {
			t.Errorf("%v is leased twice", addr)
		}
		b.directory.remove("first", true)
		b.advance(2 * time.Minute)
		b.granted.GaveUp(addr, first.Holder, b.clock.Now())
		if got := b.dora(owner); got != addr {
			t.Errorf("after the deletion of the other VM it gets %v", got)
		}
	})
}

// TestVMsThatDoNotRenew checks which VMs are silent while one VM renews and the other one does not.
func TestVMsThatDoNotRenew(t *testing.T) {
	b := newVMHarness(t)
	renewing, other := b.directory.boot("worker-0"), b.directory.boot("worker-1")
	renewed, kept := b.dora(renewing), b.dora(other)
	pass := func(halves int) {
		for range halves {
			b.advance(30 * time.Minute)
			b.verify(renewing, renewed)
		}
	}
	want := func(when string, since ...time.Time) {
		t.Helper()
		list := b.Unrenewed()
		if len(list) != len(since) || len(list) == 1 && (list[0].Addr != kept || list[0].Holder != other.Holder || !list[0].Since.Equal(since[0])) {
			t.Errorf("%s: not renewed: %+v", when, list)
		}
	}
	pass(2)
	want("after the lease time")
	pass(1)
	want("after one and a half times the lease time", start)
	b.verify(other, kept)
	want("after a renewal")
	b.open()
	restarted := b.clock.Now()
	pass(2)
	want("in the first hour of a process")
	pass(1)
	want("after one and a half hours of a process", restarted)
	b.directory.remove("worker-1", false)
	pass(1)
	want("without the VM")
}

func TestRefusedReservationsAreReported(t *testing.T) {
	taken := netip.MustParseAddr("192.0.2.12")
	for name, tt := range map[string]struct {
		addr   string
		before func(b *harness)
		want   string // empty: honoured
	}{
		"free":                  {addr: "192.0.2.12"},
		"outside of the ranges": {addr: "192.0.3.3"},
		"of another network":    {addr: "198.51.100.1", want: "the address is outside of the network 192.0.0.0/16"},
		"of another family":     {addr: "2001:db8::1", want: "DHCPv6 is not served"},
		"protected":             {addr: "192.0.2.2", want: "the address belongs to the network itself, its gateway or a server"},
		"reserved for another":  {addr: "192.0.2.12", before: func(b *harness) { b.directory.reserve("other", taken) }, want: "the address is also reserved for demo/other/vlan"},
		"bound to another": {addr: "192.0.2.12", before: func(b *harness) {
			b.recordGrant(b.directory.boot("other"), b.Verify(b.t.Context(), b.directory.boot("other"), taken))
		}, want: "the address is bound to demo/other/vlan"},
		"in use by a host": {addr: "192.0.2.12", before: func(b *harness) { b.ProbeFree(b.t.Context()) }, want: "the address is in use by " + otherMAC},
		"bound to another, deleted": {addr: "192.0.2.12", before: func(b *harness) {
			c := b.directory.boot("other")
			b.recordGrant(c, b.Verify(b.t.Context(), c, taken))
			b.directory.remove("other", true)
			b.advance(2 * time.Minute)
			b.granted.GaveUp(taken, c.Holder, b.clock.Now())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lan{users: map[netip.Addr]string{}}
			if name == "in use by a host" {
				l.users[taken] = otherMAC
			}
			b := newVMHarness(t, withLAN(l, 10))
			if tt.before != nil {
				tt.before(b)
			}
			addr := netip.MustParseAddr(tt.addr)
			c := b.directory.reserve("worker-0", addr)
			b.Collect(t.Context())
			got := b.directory.refused[nicOf("worker-0")]
			if !strings.Contains(got, tt.want) || tt.want != "" && !strings.Contains(got, tt.addr) || tt.want == "" && got != "" {
				t.Errorf("the reason is %q, want %q", got, tt.want)
			}
			if got := b.dora(c); (got == addr) != (tt.want == "") {
				t.Errorf("the VM gets %v", got)
			}
			b.Collect(t.Context())
			if again := b.directory.refused[nicOf("worker-0")]; again != got {
				t.Errorf("after the lease the reason is %q", again)
			}
		})
	}
}
