package pool_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// loseStore returns a pool whose lease file was lost while four VMs have addresses, of ten, and these addresses by
// VM.
func loseStore(t *testing.T, l *lan) (b *harness, previous map[string]netip.Addr) {
	t.Helper()
	b = newVMHarness(t, withLAN(l, 0))
	previous = map[string]netip.Addr{}
	for i, name := range names("worker-", 4) {
		c := b.directory.boot(name)
		c.MAC = "02:00:00:00:01:0" + string(rune('0'+i))
		previous[name] = b.dora(c)
		l.users[previous[name]] = c.MAC
	}
	b.stop()
	b.stop = func() {}
	if err := os.Remove(b.path); err != nil {
		t.Fatal(err)
	}
	b.open(withLAN(l, 0))
	return b, previous
}

func TestAddressesInUseAreNotLeasedAfterLoss(t *testing.T) {
	l := &lan{users: map[netip.Addr]string{}}
	b, previous := loseStore(t, l)
	taken := map[netip.Addr]bool{}
	for _, addr := range previous {
		taken[addr] = true
	}
	b.advance(10 * time.Second)
	if b.logCount("bindings may be missing") != 1 || !strings.Contains(b.Rebuilding(), "no bindings") {
		t.Errorf("Rebuilding is %q, the log:\n%s", b.Rebuilding(), b.log)
	}
	for _, name := range names("new-", 6) {
		c := b.directory.boot(name)
		c.MAC = "02:00:00:00:02:00"
		a := b.Discover(c, netip.Addr{})
		for a.Reason == pool.ReasonInProgress { // the client retries
			a = b.Discover(c, netip.Addr{})
		}
		if a.Verdict != pool.Grant && a.Reason != pool.ReasonExhausted || taken[a.Addr] {
			t.Errorf("%s is offered %+v", name, a)
		}
		if a.Verdict == pool.Grant {
			b.recordGrant(c, b.Select(t.Context(), c, a.Addr))
		}
	}
	for i, name := range names("worker-", 4) { // VMs get their addresses back
		c := b.directory.boot(name)
		c.MAC = "02:00:00:00:01:0" + string(rune('0'+i))
		wantVerdict(t, b.recordGrant(c, b.Renew(t.Context(), c, previous[name])), pool.Grant, "")
	}
	b.advance(10 * time.Second)
	if b.Rebuilding() != "" || b.logCount("without a probe again") != 1 {
		t.Errorf("all VMs have a binding, but Rebuilding is %q", b.Rebuilding())
	}
}

// TestRebuildingEndsAfterTheLeaseTime covers VMs that do not renew: their leases expire.
func TestRebuildingEndsAfterTheLeaseTime(t *testing.T) {
	l := &lan{users: map[netip.Addr]string{}}
	b, _ := loseStore(t, l)
	b.advance(59 * time.Minute)
	if b.Rebuilding() == "" {
		t.Error("rebuilding ended before the lease time")
	}
	b.advance(2 * time.Minute)
	if why := b.Rebuilding(); why != "" {
		t.Errorf("after the lease time Rebuilding is %q", why)
	}
}

func TestClientsAreServedWhileRebuilding(t *testing.T) {
	for name, l := range map[string]*lan{
		"no probe possible":    {users: map[netip.Addr]string{}, unreachable: true},
		"all addresses in use": {users: usedFrom("192.0.2.10", 10)},
	} {
		t.Run(name, func(t *testing.T) {
			b := newVMHarness(t, withLAN(l, 0))
			c := b.directory.boot("worker-0")
			a := b.Discover(c, netip.Addr{})
			for range 20 {
				if a.Verdict == pool.Grant {
					break
				}
				a = b.Discover(c, netip.Addr{})
			}
			wantVerdict(t, a, pool.Grant, "")
		})
	}
	t.Run("a network without VMs", func(t *testing.T) {
		b := newVMHarness(t, withLAN(&lan{}, 0))
		b.advance(time.Minute)
		if b.Rebuilding() != "" || b.logCount("missing") != 0 {
			t.Errorf("Rebuilding is %q, the log:\n%s", b.Rebuilding(), b.log)
		}
	})
}
