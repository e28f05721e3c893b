package proxy_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/densityops/oooi/test/lab"
)

// TestTrafficByName checks the series of traffic by name and backend, and that clients cannot create series.
func TestTrafficByName(t *testing.T) {
	s := newSite(t)
	s.controlPlane(t)
	s.start(t)
	before := s.series(t)

	for i := range 5 {
		for _, h := range []hello{
			{sni: "oauth." + s.domain},
			{sni: fmt.Sprintf("shop%d.apps.%s", i, s.domain)},
			{sni: fmt.Sprintf("random%d.example.org", i), verify: "kubernetes"},
			{verify: "kubernetes"},
		} {
			if _, err := s.reach(t, 443, h); err != nil {
				t.Fatal(err)
			}
		}
		if name, err := s.reach(t, 443, hello{sni: s.routeHost("orphan"), verify: "kubernetes"}); err == nil {
			t.Errorf("a Route without a Service leads to %s", name)
		}
		request(t, s.at(3, 80), fmt.Sprintf("random%d.example.org", i), "")
	}
	open := s.startStream(t, 6443, hello{sni: "api." + s.domain}, "kube-apiserver")
	open.awaitTicks(t, 100) // each has 8 bytes in both directions

	tcp := func(stat string, port int, name string) string {
		return fmt.Sprintf(`envoy_tcp_downstream_cx_%s{port="%d",tenant="clusters/%s",server_name="%s"}`, stat, port, s.name, name)
	}
	cluster := func(stat, backend string) string {
		return fmt.Sprintf(`envoy_cluster_upstream_cx_%s{envoy_cluster_name="%s/%s"}`, stat, s.namespace(), backend)
	}
	api := "api." + s.domain
	want := map[string]float64{
		tcp("total", 443, "oauth."+s.domain):                                       5,
		tcp("total", 443, "*.apps."+s.domain):                                      5,
		tcp("total", 443, "*"):                                                     10,
		tcp("total", 443, s.routeHost("orphan")):                                   5,
		tcp("total", 443, "openshift"):                                             0,
		tcp("total", 6443, api):                                                    1,
		cluster("active", "kube-apiserver/6443"):                                   1,
		cluster("active", "oauth-openshift/6443"):                                  0,
		cluster("total", "oauth-openshift/6443"):                                   5,
		cluster("none_healthy", "missing/443"):                                     5,
		`envoy_http_no_route{envoy_http_conn_manager_prefix="port-80"}`:            5,
		`envoy_http_downstream_cx_total{envoy_http_conn_manager_prefix="port-80"}`: 5,
	}
	var after map[string]float64
	got := map[string]float64{}
	lab.Poll(t, "all connections to be counted", func() bool {
		after = s.series(t)
		maps.DeleteFunc(got, func(string, float64) bool { return true })
		for name := range want {
			if value, exists := after[name]; exists {
				got[name] = value
			}
		}
		return cmp.Equal(want, got)
	})
	const tickBytes = 100 * 8
	for _, name := range []string{
		tcp("rx_bytes_total", 6443, api), tcp("tx_bytes_total", 6443, api),
		cluster("rx_bytes_total", "kube-apiserver/6443"), cluster("tx_bytes_total", "kube-apiserver/6443"),
	} {
		if got := after[name] - before[name]; got < tickBytes {
			t.Errorf("%s has grown by %v, want at least %d", name, got, tickBytes)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))); diff != "" {
		t.Errorf("connections have changed the series (-before +after):\n%s", diff)
	}
}

var seriesLine = regexp.MustCompile(`(?m)^(\w+\{.*\}) (\S+)$`)

// series returns the values of the series that Prometheus reads from Envoy, without those of histograms, which Envoy has
// only after the first value.
func (s *site) series(t *testing.T) map[string]float64 {
	t.Helper()
	text, err := s.envoy.Get(t.Context(), "/stats/prometheus?histogram_buckets=none")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, m := range seriesLine.FindAllStringSubmatch(string(text), -1) {
		value, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		all[m[1]] = value
	}
	return all
}
