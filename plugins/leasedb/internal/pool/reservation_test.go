package pool_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

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
