package views

import (
	"context"
	"testing"

	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/plugins/internal/nametree"
	"github.com/densityops/oooi/test/lab"
)

// nextPlugin is a plugin that counts the queries that it gets by ServeDNS.
type nextPlugin struct {
	*Handler

	queries int
}

func (*nextPlugin) Name() string { return "next" }

func (p *nextPlugin) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	p.queries++
	return p.Handler.ServeDNS(ctx, w, r)
}

// TestNextPluginUsesTheLookup passes a control-plane name from a plugin for apps to one for control planes.
func TestNextPluginUsesTheLookup(t *testing.T) {
	source, other := newTestSource(t, "manifests testdata/manifests"), newTestSource(t, "manifests testdata/manifests")
	for _, s := range []*Source{source, other} {
		startSource(t, s)
		defer stopSource(t, s)
	}
	requests := newRequests("test")
	for _, tc := range []struct {
		name     string
		source   *Source
		zone     string
		traced   bool
		queries  int
		answered bool
	}{
		{"the same source", source, ".", false, 0, true},
		{"the same source, with traces", source, ".", true, 1, true},
		{"the same source, but not the zone", source, "example.org.", false, 1, false},
		{"another source", other, ".", false, 1, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			next := &nextPlugin{Handler: &Handler{
				Plugin: "next", Part: nametree.ControlPlane, Source: tc.source, Zones: []string{tc.zone}, Requests: requests,
				Next: test.NextHandler(dns.RcodeServerFailure, nil),
			}}
			first := &Handler{Plugin: "first", Part: nametree.Apps, Source: source, Zones: []string{"."}, Requests: requests, Next: next, traced: tc.traced}
			w := dnstest.NewRecorder(&test.ResponseWriter{RemoteIP: "192.0.2.77"})
			rcode, err := first.ServeDNS(t.Context(), w, new(dns.Msg).SetQuestion("api.blue.example.com.", dns.TypeA))
			lab.Must(t, err)
			if answered := rcode == dns.RcodeSuccess && w.Msg != nil && len(w.Msg.Answer) == 1; answered != tc.answered || next.queries != tc.queries {
				t.Errorf("answered: %t, queries to the next plugin: %d; want %t and %d", answered, next.queries, tc.answered, tc.queries)
			}
		})
	}
}
