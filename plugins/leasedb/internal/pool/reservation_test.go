package pool_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestRefusedReservationsAreTold(t *testing.T) {
	taken := netip.MustParseAddr("192.0.2.12")
	for name, tt := range map[string]struct {
		addr   string
		before func(b *bench)
		want   string // empty: it is honoured
	}{
		"free":                  {addr: "192.0.2.12"},
		"outside of the ranges": {addr: "192.0.3.3"},
		"of another network":    {addr: "198.51.100.1", want: "it is not in the network 192.0.0.0/16"},
		"of another family":     {addr: "2001:db8::1", want: "DHCPv6 is not served"},
		"a server's":            {addr: "192.0.2.2", want: "it belongs to the network itself, its gateway or a server"},
		"reserved for another":  {addr: "192.0.2.12", before: func(b *bench) { b.directory.reserve("other", taken) }, want: "it is reserved for demo/other/vlan, too"},
		"bound to another": {addr: "192.0.2.12", before: func(b *bench) {
			b.note(b.directory.boot("other"), b.Verify(b.t.Context(), b.directory.boot("other"), taken))
		}, want: "it is bound to demo/other/vlan"},
		"in use by somebody": {addr: "192.0.2.12", before: func(b *bench) { b.Look(b.t.Context()) }, want: "it is in use by " + squatter},
		"bound to another, that is gone": {addr: "192.0.2.12", before: func(b *bench) {
			c := b.directory.boot("other")
			b.note(c, b.Verify(b.t.Context(), c, taken))
			b.directory.remove("other", true)
			b.pass(2 * time.Minute)
			b.granted.GaveUp(taken, c.Holder, b.clock.Now())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lan{users: map[netip.Addr]string{}}
			if name == "in use by somebody" {
				l.users[taken] = squatter
			}
			b := machines(t, on(l, 10))
			if tt.before != nil {
				tt.before(b)
			}
			addr := netip.MustParseAddr(tt.addr)
			c := b.directory.reserve("worker-0", addr)
			b.Collect(t.Context())
			got := b.directory.refused[face("worker-0")]
			if !strings.Contains(got, tt.want) || tt.want != "" && !strings.Contains(got, tt.addr) || tt.want == "" && got != "" {
				t.Errorf("it is told %q, want %q", got, tt.want)
			}
			if got := b.dora(c); (got == addr) != (tt.want == "") {
				t.Errorf("it gets %v", got)
			}
			b.Collect(t.Context())
			if again := b.directory.refused[face("worker-0")]; again != got {
				t.Errorf("then it is told %q", again)
			}
		})
	}
}
