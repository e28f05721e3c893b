package ads

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/ads/adstest"
)

func TestMetricsEndWithTheirProxy(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	s := newServer(t, Options{Registerer: registry})
	conn, _ := serve(t, s)
	s.Set(tenant, baseResources())
	connect(t, conn, adstest.Options{Cluster: tenant, Reject: func(r *discoveryv3.DeltaDiscoveryResponse) string {
		if r.GetTypeUrl() == resource.ListenerType {
			return "no"
		}
		return ""
	}})
	connect(t, conn, adstest.Options{Cluster: "ns/ghost"})
	awaitProxy(t, s, "ns/ghost", func(p Proxy) bool { return len(p.Envoys) == 1 })
	awaitProxy(t, s, tenant, func(p Proxy) bool {
		return len(p.Envoys) == 1 && p.Envoys[0].LastNACK != nil && p.Envoys[0].Types["endpoint"].Current && p.Envoys[0].Types["cluster"].Current
	})
	names := []string{"xdsd_ads_nacks_total", "xdsd_ads_streams"}
	want := `
# HELP xdsd_ads_nacks_total Responses that an Envoy rejected, by resource type.
# TYPE xdsd_ads_nacks_total counter
xdsd_ads_nacks_total{proxy="ns/one",type="listener"} 1
# HELP xdsd_ads_streams Connected Envoys.
# TYPE xdsd_ads_streams gauge
xdsd_ads_streams{proxy="ns/one"} 1
`
	lab.Report(t, testutil.GatherAndCompare(registry, strings.NewReader(want), names...))
	if n, err := testutil.GatherAndCount(registry, "xdsd_ads_ack_seconds"); err != nil || n != 2 {
		t.Errorf("latencies of %d types, want clusters and endpoints: %v", n, err)
	}
	s.Delete(tenant)
	if n, err := testutil.GatherAndCount(registry, names...); err != nil || n != 0 {
		t.Errorf("%d series of a deleted proxy: %v", n, err)
	}
	if _, err := New(Options{Registerer: registry}); err == nil {
		t.Error("registering the same metrics again did not fail")
	}
}

func TestNACKIsLoggedOncePerMessage(t *testing.T) {
	var log bytes.Buffer
	s := newServer(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	conn, stop := serve(t, s)
	texts := map[string]string{"1": "bad", "2": "bad", "3": "worse", "4": strings.Repeat("é", maxDetail), "5": ""}
	r := baseResources()
	s.Set(tenant, r)
	client := connect(t, conn, adstest.Options{Cluster: tenant, Reject: func(r *discoveryv3.DeltaDiscoveryResponse) string {
		for _, m := range r.GetResources() {
			if text, ok := texts[m.GetName()]; ok {
				return text
			}
		}
		return ""
	}})
	awaitProxy(t, s, tenant, current(1))
	for i := range len(texts) {
		name := fmt.Sprint(i + 1)
		r.Listeners = append(baseResources().Listeners, listener(name, 1))
		s.Set(tenant, r)
		p := awaitProxy(t, s, tenant, func(p Proxy) bool {
			rejected := p.Envoys[0].LastNACK != nil && testutil.ToFloat64(s.metrics.nacks.WithLabelValues(tenant, "listener")) == float64(i+1)
			return rejected || texts[name] == "" && current(1)(p)
		})
		if n := p.Envoys[0].LastNACK; len(n.Message) > maxDetail {
			t.Errorf("a NACK's message has %d bytes, want at most %d", len(n.Message), maxDetail)
		}
	}
	client.Close()
	stop()
	if n := strings.Count(log.String(), "envoy rejected configuration"); n != 3 {
		t.Errorf("%d NACKs in the log, want 3:\n%s", n, log.String())
	}
	for _, text := range []string{"envoy connected", "envoy disconnected", "node=envoy-0", "proxy=ns/one"} {
		if !strings.Contains(log.String(), text) {
			t.Errorf("no %q in the log:\n%s", text, log.String())
		}
	}
}
