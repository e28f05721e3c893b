package pool_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// lost is a bench whose lease file is lost while four machines have addresses of ten. It returns who has which.
func lost(t *testing.T, l *lan) (b *bench, had map[string]netip.Addr) {
	t.Helper()
	b = machines(t, on(l, 0))
	had = map[string]netip.Addr{}
	for i, name := range names("worker-", 4) {
		c := b.directory.boot(name)
		c.MAC = "02:00:00:00:01:0" + string(rune('0'+i))
		had[name] = b.dora(c)
		l.users[had[name]] = c.MAC
	}
	b.stop()
	b.stop = func() {}
	if err := os.Remove(b.path); err != nil {
		t.Fatal(err)
	}
	b.open(on(l, 0))
	return b, had
}

func TestLostStoreGivesNothingInUse(t *testing.T) {
	l := &lan{users: map[netip.Addr]string{}}
	b, had := lost(t, l)
	taken := map[netip.Addr]bool{}
	for _, addr := range had {
		taken[addr] = true
	}
	b.pass(10 * time.Second)
	if b.logged("bindings may be missing") != 1 || !strings.Contains(b.Rebuilding(), "no bindings") {
		t.Errorf("it says %q and logs\n%s", b.Rebuilding(), b.log)
	}
	for _, name := range names("new-", 6) {
		c := b.directory.boot(name)
		c.MAC = "02:00:00:00:02:00"
		a := b.Discover(c, netip.Addr{})
		for a.Reason == pool.ReasonInProgress { // the client asks again
			a = b.Discover(c, netip.Addr{})
		}
		if a.Verdict != pool.Grant && a.Reason != pool.ReasonExhausted || taken[a.Addr] {
			t.Errorf("%s is offered %+v", name, a)
		}
		if a.Verdict == pool.Grant {
			b.note(c, b.Select(t.Context(), c, a.Addr))
		}
	}
	for i, name := range names("worker-", 4) { // whoever has an address gets it back
		c := b.directory.boot(name)
		c.MAC = "02:00:00:00:01:0" + string(rune('0'+i))
		wantVerdict(t, b.note(c, b.Renew(t.Context(), c, had[name])), pool.Grant, "")
	}
	b.pass(10 * time.Second)
	if b.Rebuilding() != "" || b.logged("without a look again") != 1 {
		t.Errorf("everybody has a binding, and it says %q", b.Rebuilding())
	}
}

// TestLostStoreEndsWithTheLease has machines that never renew: what they were promised ends.
func TestLostStoreEndsWithTheLease(t *testing.T) {
	l := &lan{users: map[netip.Addr]string{}}
	b, _ := lost(t, l)
	b.pass(59 * time.Minute)
	if b.Rebuilding() == "" {
		t.Error("it has forgotten")
	}
	b.pass(2 * time.Minute)
	if why := b.Rebuilding(); why != "" {
		t.Errorf("after the lease it says %q", why)
	}
}

func TestLostStoreDoesNotStopOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		lan  *lan
		want pool.Verdict
	}{
		"nobody can look":        {&lan{users: map[netip.Addr]string{}, away: true}, pool.Grant},
		"somebody has every one": {&lan{users: everyone()}, pool.Grant},
	} {
		t.Run(name, func(t *testing.T) {
			b := machines(t, on(tt.lan, 0))
			c := b.directory.boot("worker-0")
			a := b.Discover(c, netip.Addr{})
			for range 20 {
				if a.Verdict == pool.Grant {
					break
				}
				a = b.Discover(c, netip.Addr{})
			}
			wantVerdict(t, a, tt.want, "")
		})
	}
	t.Run("a network without machines", func(t *testing.T) {
		b := machines(t, on(&lan{}, 0))
		b.pass(time.Minute)
		if b.Rebuilding() != "" || b.logged("missing") != 0 {
			t.Errorf("it says %q and logs\n%s", b.Rebuilding(), b.log)
		}
	})
}

// everyone is a network on which somebody answers for every address.
func everyone() map[netip.Addr]string {
	users := map[netip.Addr]string{}
	for addr := netip.MustParseAddr("192.0.2.10"); addr != netip.MustParseAddr("192.0.2.20"); addr = addr.Next() {
		users[addr] = squatter
	}
	return users
}
