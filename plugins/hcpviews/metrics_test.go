package hcpviews

import (
	"context"
	"testing"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/test"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/miekg/dns"
)

func TestRequestsAreCountedByViewAndAnswer(t *testing.T) {
	fromInfras := start(t, "hcpviews example.com example.net {\n manifests testdata/manifests\n}")
	byAddress := start(t, "hcpviews example.com {\n manifests testdata/manifests\n view pod 10.0.0.0/8\n}")
	for _, tc := range []struct {
		name          string
		h             *HCPViews
		client, qname string
		qtype         uint16
		view          string
		answer        string // "" if nothing is counted
	}{
		{"success on the VLAN", fromInfras, blueClient, "api.blue.example.com.", dns.TypeA, "vlan", "success"},
		{"success in a pod", fromInfras, podClient, "API.blue.example.com.", dns.TypeA, "pod", "success"},
		{"another type", fromInfras, blueClient, "api.blue.example.com.", dns.TypeTXT, "vlan", "nodata"},
		{"no address yet", fromInfras, podClient, "api.green.example.com.", dns.TypeA, "pod", "nodata"},
		{"unknown name", fromInfras, blueClient, "nope.blue.example.com.", dns.TypeA, "vlan", "nxdomain"},
		{"zone transfer", fromInfras, blueClient, "blue.example.com.", dns.TypeAXFR, "vlan", "refused"},
		{"another cluster's name", fromInfras, greenClient, "api.blue.example.com.", dns.TypeA, "vlan", "passed"},
		{"application", fromInfras, podClient, "shop.apps.blue.example.com.", dns.TypeA, "pod", "passed"},
		{"name of no hosted cluster", fromInfras, podClient, "www.example.com.", dns.TypeA, "pod", "passed"},
		{"client without a view", byAddress, "203.0.113.77", "api.blue.example.com.", dns.TypeA, "", "refused"},
		{"before the first snapshot", unsynced(), blueClient, "api.blue.example.com.", dns.TypeA, "", "servfail"},
		{"name outside of the zones", fromInfras, blueClient, "www.example.org.", dns.TypeA, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const server = "dns://127.0.0.1:53"
			ctx := context.WithValue(t.Context(), dnsserver.Key{}, &dnsserver.Server{Addr: server})
			count := func() float64 { return testutil.ToFloat64(requests.WithLabelValues(server, tc.view, tc.answer)) }
			before, total := count(), sum(t)
			m := new(dns.Msg).SetQuestion(tc.qname, tc.qtype)
			if _, err := tc.h.ServeDNS(ctx, &test.ResponseWriter{RemoteIP: tc.client}, m); err != nil {
				t.Fatal(err)
			}
			want := 1.0
			if tc.answer == "" {
				want = 0
			}
			if n := count() - before; n != want {
				t.Errorf("the count increased by %v, want %v", n, want)
			}
			if n := sum(t) - total; n != want {
				t.Errorf("the sum of all counts increased by %v, want %v", n, want)
			}
		})
	}
}

// sum returns the sum of all series.
func sum(t *testing.T) (total float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(requests)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			total += m.GetCounter().GetValue()
		}
	}
	return total
}
