package serve

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
	"github.com/densityops/oooi/xdsd/internal/envoy"
)

// connections opens connections until the test ends.
func connections(t *testing.T, at netip.AddrPort, n int) {
	t.Helper()
	for range n {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at.String())
		lab.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// limitedProxy runs Envoy with a proxy on port 18443, and returns the proxy, Envoy's admin interface and the address of
// the port.
func limitedProxy(t *testing.T, options envoy.Options, change func(*bootstrap.Config)) (*model.ProxyServer, *Admin, netip.AddrPort) {
	t.Helper()
	s := newSourceOf(t, lab.NewCA(t).TLSBackend(t, "127.0.0.1:0", "web.example.com").Addr(), options, slog.New(slog.DiscardHandler))
	config := bootstrap.Config{
		NodeID: "envoy-0", ProxyServer: types.NamespacedName{Namespace: "proxies", Name: "own"},
		AdminSocket: filepath.Join(filepath.Dir(s.socket), "admin.sock"), ServerSocket: s.socket,
		MetricsAddresses: options.Bind, MetricsPort: 19901,
	}
	change(&config)
	text, err := config.YAML()
	lab.Must(t, err)
	lab.NewEnvoy(t, lab.EnvoyConfig{Bootstrap: text})
	return s.store.Snapshot().ProxyServer("proxies/own"), NewAdmin(config.AdminSocket), netip.AddrPortFrom(options.Bind[0], 18443)
}

func TestReachedLimits(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*bootstrap.Config)
		rates  map[uint16]uint32
		open   int
		want   v1alpha1.LimitStatus
		metric string
	}{
		{
			"connections of all ports", func(c *bootstrap.Config) { c.MaxConnections = 20 }, nil, 30,
			v1alpha1.LimitStatus{Name: v1alpha1.LimitConnections, Value: 10, Field: "limits.maxConnections"},
			`limit="connections",port=""`,
		},
		{
			"connections of a port", func(c *bootstrap.Config) { c.PortConnections = map[uint16]uint32{18443: 7} }, nil, 30,
			v1alpha1.LimitStatus{Name: v1alpha1.LimitPortConnections, Port: 18443, Value: 7, Field: "limits.ports[18443].maxConnections"},
			`limit="port_connections",port="18443"`,
		},
		{
			"rate of a port", func(*bootstrap.Config) {}, map[uint16]uint32{18443: 2}, 60,
			v1alpha1.LimitStatus{Name: v1alpha1.LimitConnectionRate, Port: 18443, Value: 2, Field: "limits.ports[18443].connectionsPerSecond"},
			`limit="connection_rate",port="18443"`,
		},
		{
			"heap", func(c *bootstrap.Config) { c.MaxHeapBytes, c.MemoryBytes = 1<<30, 1<<20 }, nil, 0,
			v1alpha1.LimitStatus{Name: v1alpha1.LimitHeap, Value: 943713, Field: "resources.limits.memory, or limits.maxHeap"},
			`limit="heap",port=""`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bind := netip.AddrFrom4([4]byte{127, 0, 21, byte(30 + tc.open/10 + len(tc.metric))})
			options := envoy.Options{Bind: []netip.Addr{bind}, PortConnectionRates: tc.rates}
			p, admin, at := limitedProxy(t, options, tc.change)
			limits := &Reporter{Admin: admin, Options: options}
			if list, _, err := limits.ReadLimits(t.Context(), p, time.Now()); err != nil || tc.open > 0 && len(list) > 0 {
				t.Fatalf("before a limit was reached: %v, %v", list, err)
			}
			connections(t, at, tc.open)
			var got []v1alpha1.LimitStatus
			lab.Poll(t, "the limit to be reached", func() bool {
				var err error
				got, _, err = limits.ReadLimits(t.Context(), p, time.Now())
				return err == nil && len(got) > 0
			})
			if refused := got[0].Refused; (refused > 0) != (tc.open > 0) {
				t.Errorf("%d connections were refused", refused)
			}
			reached := got[0].LastTime.Time
			if got[0].Refused, got[0].LastTime = 0, tc.want.LastTime; len(got) != 1 || !reflect.DeepEqual(got[0], tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			series := prometheus.NewRegistry()
			series.MustRegister(limits)
			page := httptest.NewRecorder()
			promhttp.HandlerFor(series, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
			if !strings.Contains(page.Body.String(), "\nxdsd_limit_reached{"+tc.metric+"} 1\n") {
				t.Errorf("no series with %s in %s", tc.metric, page.Body)
			}
			if tc.open == 0 {
				return // still reached
			}
			lab.Poll(t, "the limit to be forgotten", func() bool { // Envoy counts the last connections meanwhile
				reached = reached.Add(time.Hour)
				list, _, err := limits.ReadLimits(t.Context(), p, reached)
				return err == nil && len(list) == 0
			})
		})
	}
}

// TestReachedSourceLimits reads the state of a holder that does not apply its limits at first.
func TestReachedSourceLimits(t *testing.T) {
	var state atomic.Pointer[string]
	answer := func(text string) { state.Store(&text) }
	answer(`{"sources": {"failure": "no module"}}`)
	holder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, *state.Load()) }))
	t.Cleanup(holder.Close)
	options := envoy.Options{Bind: []netip.Addr{netip.MustParseAddr("127.0.21.9")}}
	p, admin, _ := limitedProxy(t, options, func(*bootstrap.Config) {})
	limits := &Reporter{Admin: admin, Options: options, Holder: holder.URL}
	now := time.Now().Truncate(time.Second)
	read := func() ([]v1alpha1.LimitStatus, string) {
		list, failure, err := limits.ReadLimits(t.Context(), p, now)
		lab.Report(t, err)
		return list, failure
	}
	if list, failure := read(); len(list) > 0 || failure != "no module" {
		t.Errorf("before the limits apply: %v, %q", list, failure)
	}
	answer(`{"sources": {"connections": 9, "perSecond": 5, "refused": {"connections": 3, "rate": 0}, "sources": {"connections": ["192.0.2.10", "192.0.2.11"], "rate": null}}}`)
	list, failure := read()
	want := []v1alpha1.LimitStatus{{
		Name: v1alpha1.LimitSourceConnections, Sources: []string{"192.0.2.10", "192.0.2.11"}, Value: 9, Refused: 3,
		LastTime: metav1.NewTime(now), Field: "limits.perSource.maxConnections",
	}}
	if failure != "" || !reflect.DeepEqual(list, want) {
		t.Errorf("got %+v, %q; want %+v", list, failure, want)
	}
	holder.Close()
	if list, _, err := limits.ReadLimits(t.Context(), p, now); err == nil || len(list) != 1 {
		t.Errorf("without the holder: %v, %v", list, err)
	}
}
