package hcpviews

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/test"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/golden"
)

// TestRequestsAreCountedByViewAndAnswer sends a different number of queries for each answer and view, and compares the series.
func TestRequestsAreCountedByViewAndAnswer(t *testing.T) {
	fromInfras := start(t, "hcpviews example.com example.net {\n manifests testdata/manifests\n}")
	byAddress := start(t, "hcpviews example.com {\n manifests testdata/manifests\n view pod 10.0.0.0/8\n}")
	requests.Reset() // other tests
	for n, q := range []struct {
		h             *HCPViews
		client, qname string
		qtype         uint16
		server        string
	}{
		{fromInfras, blueClient, "api.blue.example.com.", dns.TypeA, "dns://127.0.0.1:53"},
		{fromInfras, podClient, "API.blue.example.com.", dns.TypeA, "dns://127.0.0.1:53"},
		{fromInfras, podClient, "api.blue.example.com.", dns.TypeA, "dns://127.0.0.2:53"},
		{fromInfras, blueClient, "api.blue.example.com.", dns.TypeTXT, "dns://127.0.0.1:53"},
		{fromInfras, podClient, "api.green.example.com.", dns.TypeA, "dns://127.0.0.1:53"}, // no address yet
		{fromInfras, blueClient, "nope.blue.example.com.", dns.TypeA, "dns://127.0.0.1:53"},
		{fromInfras, blueClient, "blue.example.com.", dns.TypeAXFR, "dns://127.0.0.1:53"},
		{fromInfras, greenClient, "api.blue.example.com.", dns.TypeA, "dns://127.0.0.1:53"}, // another cluster's name
		{fromInfras, podClient, "shop.apps.blue.example.com.", dns.TypeA, "dns://127.0.0.1:53"},
		{byAddress, "203.0.113.77", "api.blue.example.com.", dns.TypeA, "dns://127.0.0.1:53"}, // without a view
		{unsynced(), blueClient, "api.blue.example.com.", dns.TypeA, "dns://127.0.0.1:53"},    // before the first snapshot
		{fromInfras, blueClient, "www.example.org.", dns.TypeA, "dns://127.0.0.1:53"},         // outside of the zones: not counted
	} {
		ctx := context.WithValue(t.Context(), dnsserver.Key{}, &dnsserver.Server{Addr: q.server})
		for range n + 1 {
			if _, err := q.h.ServeDNS(ctx, &test.ResponseWriter{RemoteIP: q.client}, new(dns.Msg).SetQuestion(q.qname, q.qtype)); err != nil {
				t.Fatal(err)
			}
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(requests)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	golden.Check(t, "testdata/golden/metrics.txt", page.Body.String())
}
