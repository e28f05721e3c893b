// Package viewstest contains helpers for tests of the handlers of hcpviews and hcpapps, with clients of several views.
package viewstest

import (
	"context"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/plugins/internal/views"
)

// Passed is the rcode of Upstream's replies. Our plugins never return it.
const Passed = dns.RcodeNotZone

// Upstream returns a handler that takes the place of the next plugin. It replies to every query with the rcode Passed.
func Upstream() plugin.Handler {
	return plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		m := new(dns.Msg)
		m.SetRcode(r, Passed)
		return dns.RcodeSuccess, w.WriteMsg(m)
	})
}

// Controller returns a controller for a Corefile block in a server block of the root zone.
func Controller(corefile string) *caddy.Controller {
	c := caddy.NewTestController("dns", corefile)
	c.ServerBlockKeys = []string{"."}
	return c
}

// Start loads the manifests of a parsed block, and makes Upstream the next plugin. The handler works until the test
// ends. Start fails the test if the start of the source returns an error.
func Start(tb testing.TB, h *views.Handler) {
	tb.Helper()
	source := views.NewSource(h.Config, views.NewLogger(h.Plugin))
	source.Serve(h)
	if err := source.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := source.Stop(); err != nil {
			tb.Error(err)
		}
	})
	h.Next = Upstream()
}

// clearSerial sets the serial of SOA records, which is a time, to 1.
func clearSerial(m *dns.Msg) {
	for _, section := range [][]dns.RR{m.Answer, m.Ns} {
		for i, rr := range section {
			if soa, ok := dns.Copy(rr).(*dns.SOA); ok {
				soa.Serial = 1
				section[i] = soa
			}
		}
	}
}
