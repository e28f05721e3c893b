package hcpviews

import (
	"context"
	"testing"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/test"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/plugins/internal/views"
	"github.com/densityops/oooi/plugins/internal/viewstest"
)

func TestRequestsAreCountedByViewZoneAndAnswer(t *testing.T) {
	fromInfras := start(t, "hcpviews example.com example.net {\n manifests testdata/manifests\n}")
	byAddress := start(t, "hcpviews example.com {\n manifests testdata/manifests\n view pod 10.0.0.0/8\n}")
	notSynced := &views.Handler{Zones: []string{"example.com."}, Tables: noTables{}, Next: viewstest.Upstream(), Requests: requests}
	for _, tc := range []struct {
		name          string
		h             *views.Handler
		client, qname string
		qtype         uint16
		view, zone    string
		answer        string // "" if nothing is counted
	}{
		{"success on the VLAN", fromInfras, blueClient, "api.blue.example.com.", dns.TypeA, "vlan", "blue.example.com.", "success"},
		{"success in a pod", fromInfras, podClient, "API.blue.example.com.", dns.TypeA, "pod", "blue.example.com.", "success"},
		{"another type", fromInfras, blueClient, "api.blue.example.com.", dns.TypeTXT, "vlan", "blue.example.com.", "nodata"},
		{"no address yet", fromInfras, podClient, "api.green.example.com.", dns.TypeA, "pod", "green.example.com.", "nodata"},
		{"unknown name", fromInfras, blueClient, "nope.blue.example.com.", dns.TypeA, "vlan", "blue.example.com.", "nxdomain"},
		{"zone transfer", fromInfras, blueClient, "blue.example.com.", dns.TypeAXFR, "vlan", "blue.example.com.", "refused"},
		{"another cluster's name", fromInfras, greenClient, "api.blue.example.com.", dns.TypeA, "vlan", "", "passed"},
		{"application", fromInfras, podClient, "shop.apps.blue.example.com.", dns.TypeA, "pod", "", "passed"},
		{"name of no hosted cluster", fromInfras, podClient, "www.example.com.", dns.TypeA, "pod", "", "passed"},
		{"client without a view", byAddress, "203.0.113.77", "api.blue.example.com.", dns.TypeA, "", "", "refused"},
		{"before the first snapshot", notSynced, blueClient, "api.blue.example.com.", dns.TypeA, "", "", "servfail"},
		{"name outside of the zones", fromInfras, blueClient, "www.example.org.", dns.TypeA, "", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const server = "dns://127.0.0.1:53"
			ctx := context.WithValue(t.Context(), dnsserver.Key{}, &dnsserver.Server{Addr: server})
			requests.Reset()
			m := new(dns.Msg).SetQuestion(tc.qname, tc.qtype)
			if _, err := tc.h.ServeDNS(ctx, &test.ResponseWriter{RemoteIP: tc.client}, m); err != nil {
				t.Fatal(err)
			}
			want := 0
			if tc.answer != "" {
				want = 1
				if n := testutil.ToFloat64(requests.WithLabelValues(server, tc.view, tc.zone, tc.answer)); n != 1 {
					t.Errorf("the count is %v, want 1", n)
				}
			}
			if n := testutil.CollectAndCount(requests); n != want {
				t.Errorf("%d series exist, want %d", n, want)
			}
		})
	}
}
