package proxy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/densityops/oooi/test/lab"
)

// testAdminPages prints pages of Envoy's admin interface with xdsd admin.
func (s *site) testAdminPages(t *testing.T) {
	admin := func(path string) (string, error) {
		t.Helper()
		out, err := s.command(t, "admin", path, "--admin-socket", filepath.Join(s.dir, "admin.sock")).Output()
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			return string(failed.Stderr), err
		}
		return string(out), err
	}
	for path, want := range map[string]string{
		"/clusters?format=json":                s.ControlPlaneNamespace() + "/kube-apiserver/6443",
		"/config_dump?include_eds":             "ClusterLoadAssignment",
		"/listeners?format=json":               s.IP(3),
		"/stats?format=json&filter=^listener.": "downstream_cx_active",
	} {
		out, err := admin(path)
		if err != nil || !json.Valid([]byte(out)) || !strings.Contains(out, want) {
			t.Errorf("%s: error %v, want JSON with %s, got\n%s", path, err, want, out)
		}
	}
	out, err := admin("/logging?paths=upstream:debug,http:trace")
	if err != nil || !strings.Contains(out, "  upstream: debug\n") || !strings.Contains(out, "  http: trace\n") {
		t.Errorf("setting log levels: error %v, output\n%s", err, out)
	}
	for path, want := range map[string]string{
		"/logging?nosuch=debug":             "xdsd: reading /logging from Envoy: 400 Bad Request: error: unknown logger name\n",
		"/stats?format=json&filter=[":       "xdsd: reading /stats from Envoy: 400 Bad Request: ",
		"/drain_listeners?graceful":         `xdsd: path "/drain_listeners?graceful": must be one of `,
		"/listeners/../quitquitquit":        `: must be one of `,
		"/runtime_modify?oooi.access_log=1": `: must be one of `,
	} {
		if out, err := admin(path); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: error %v, want %q, got\n%s", path, err, want, out)
		}
	}
	pid := s.envoy.PID()
	lab.Must(t, syscall.Kill(pid, syscall.SIGSTOP))
	out, err = admin("/listeners")
	if continued := syscall.Kill(pid, syscall.SIGCONT); continued != nil {
		t.Fatal(continued)
	}
	if want := "xdsd: reading /listeners from Envoy: no response within 5s\n"; err == nil || out != want {
		t.Errorf("Envoy does not respond: error %v, want %q, got %q", err, want, out)
	}
}

// testTrafficByName checks the series of traffic by name and backend, and that clients cannot create series.
func (s *site) testTrafficByName(t *testing.T) {
	before := s.series(t)
	for i := range 5 {
		for _, h := range []hello{
			{sni: s.in("oauth")},
			{sni: s.in(fmt.Sprintf("shop%d.apps", i))},
			{sni: fmt.Sprintf("random%d.example.org", i), verify: "kubernetes"},
			{verify: "kubernetes"},
		} {
			if _, err := s.reach(t, 443, h); err != nil {
				t.Fatal(err)
			}
		}
		// The connection is closed; it does not lead to the API server, like an unknown name.
		if name, err := s.reach(t, 443, hello{sni: s.routeHost("orphan"), verify: "kubernetes"}); err == nil {
			t.Errorf("a Route without a Service leads to %s", name)
		}
		request(t, s.at(3, 80), "GET", fmt.Sprintf("random%d.example.org", i), "/")
	}
	open := s.startStream(t, 6443, hello{sni: s.in("api")}, "kube-apiserver")
	open.awaitEchoes(t, 100) // each has 8 bytes in both directions

	tcp := func(stat string, port int, name string) string {
		return fmt.Sprintf(`envoy_tcp_downstream_cx_%s{port="%d",tenant="clusters/%s",server_name="%s"}`, stat, port, s.name, name)
	}
	cluster := func(stat, backend string) string {
		return fmt.Sprintf(`envoy_cluster_upstream_cx_%s{envoy_cluster_name="%s/%s"}`, stat, s.ControlPlaneNamespace(), backend)
	}
	want := map[string]float64{
		tcp("total", 443, s.in("oauth")):                                           5,
		tcp("total", 443, s.in("*.apps")):                                          5,
		tcp("total", 443, "*"):                                                     10,
		tcp("total", 443, s.routeHost("orphan")):                                   5,
		tcp("total", 443, "openshift"):                                             0,
		tcp("total", 6443, s.in("api")):                                            1,
		cluster("active", "kube-apiserver/6443"):                                   1,
		cluster("active", "oauth-openshift/6443"):                                  0,
		cluster("total", "oauth-openshift/6443"):                                   5,
		cluster("none_healthy", "missing/443"):                                     5,
		`envoy_http_no_route{envoy_http_conn_manager_prefix="port-80"}`:            5,
		`envoy_http_downstream_cx_total{envoy_http_conn_manager_prefix="port-80"}`: 5,
	}
	var after map[string]float64
	lab.Await(t, "all connections to be counted", func() string {
		after = s.series(t)
		got := maps.Clone(after)
		maps.DeleteFunc(got, func(name string, _ float64) bool { _, wanted := want[name]; return !wanted })
		return cmp.Diff(want, got)
	})
	const echoBytes = 100 * 8
	for _, name := range []string{
		tcp("rx_bytes_total", 6443, s.in("api")), tcp("tx_bytes_total", 6443, s.in("api")),
		cluster("rx_bytes_total", "kube-apiserver/6443"), cluster("tx_bytes_total", "kube-apiserver/6443"),
	} {
		if got := after[name] - before[name]; got < echoBytes {
			t.Errorf("%s has grown by %v, want at least %d", name, got, echoBytes)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))); diff != "" {
		t.Errorf("connections have changed the series (-before +after):\n%s", diff)
	}
}

var seriesLine = regexp.MustCompile(`(?m)^(\w+\{.*\}) (\S+)$`)

// series returns the values of the series that Prometheus reads from Envoy, without histograms, which Envoy has
// only after the first value.
func (s *site) series(t *testing.T) map[string]float64 {
	t.Helper()
	text, err := s.envoy.Get(t.Context(), "/stats/prometheus?histogram_buckets=none")
	lab.Must(t, err)
	all := map[string]float64{}
	for _, m := range seriesLine.FindAllStringSubmatch(string(text), -1) {
		if all[m[1]], err = strconv.ParseFloat(m[2], 64); err != nil {
			t.Fatal(err)
		}
	}
	return all
}
