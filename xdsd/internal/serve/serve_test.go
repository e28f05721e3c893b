package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/ads/adstest"
	"github.com/densityops/oooi/xdsd/internal/envoy"
)

const (
	// proxyServer has an unprivileged port, because a real Envoy listens on it.
	proxyServer = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: own, namespace: proxies}
spec:
  networkConfig: {serverIP: 192.0.2.3}
  backends:
  - {name: web, hostname: web.example.com, port: 18443, targetService: web, targetPort: https, targetNamespace: apps, protocol: TLS, healthCheck: {interval: 1s, timeout: 1s, unhealthyAfter: 1, healthyAfter: 1}}
  - {name: gone, hostname: gone.example.com, port: 18443, targetService: gone, targetPort: https, targetNamespace: apps, protocol: TLS}
`
	service = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: apps}
spec: {clusterIP: 10.96.2.1, ports: [{name: https, port: 443}]}
`
	slice = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-a, namespace: apps, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: https, port: 8443, protocol: TCP}]
endpoints: [{addresses: [%s]}]
`
)

// A site is a store that reads a directory, an ADS server that a Feeder updates from it, and a client.
type site struct {
	store  *watch.Store
	server *ads.Server
	socket string
	client *adstest.Client
}

// newSite starts a site, which runs until the test ends.
func newSite(t *testing.T, config watch.Config) *site {
	t.Helper()
	s := newSource(t, config, envoy.Options{}, slog.New(slog.DiscardHandler))
	s.client = s.connect(t.Context(), t)
	return s
}

// newSource starts a site without a client.
func newSource(t *testing.T, config watch.Config, options envoy.Options, log *slog.Logger) *site {
	t.Helper()
	config.Proxies, config.Apps = true, &model.AppsOptions{}
	store, err := watch.Open(config, log)
	lab.Must(t, err)
	server, err := ads.New(ads.Options{Log: log, Retain: time.Millisecond})
	lab.Must(t, err)
	s := &site{store: store, server: server, socket: filepath.Join(lab.TempDir(t), "ads.sock")}
	l, err := ads.ListenUnix(t.Context(), s.socket)
	lab.Must(t, err)
	background(t,
		func(ctx context.Context) { store.Run(ctx) },
		func(ctx context.Context) {
			lab.Report(t, server.Serve(ctx, l))
		},
		NewFeeder(store, server, options, log).Run,
	)
	return s
}

// newSourceOf is newSource with a ProxyServer whose backend web is at an address.
func newSourceOf(t *testing.T, backend netip.AddrPort, options envoy.Options, log *slog.Logger) *site {
	t.Helper()
	dir := t.TempDir()
	endpoints := strings.Replace(fmt.Sprintf(slice, backend.Addr()), "8443", fmt.Sprint(backend.Port()), 1)
	write(t, dir, "all.yaml", strings.Join([]string{proxyServer, service, endpoints}, "---"))
	return newSource(t, watch.Config{Manifests: dir}, options, log)
}

// background runs functions until the test ends.
func background(t *testing.T, functions ...func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for _, f := range functions {
		group.Go(func() { f(ctx) })
	}
	t.Cleanup(func() { cancel(); group.Wait() })
}

// connect returns a client that starts without resources.
func (s *site) connect(ctx context.Context, t *testing.T) *adstest.Client {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+s.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	lab.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	client, err := adstest.Connect(ctx, conn, adstest.Options{ID: "envoy-0", Cluster: "proxies/own"})
	lab.Must(t, err)
	t.Cleanup(client.Close)
	return client
}

// write replaces a manifest in dir atomically, or deletes it if text is empty.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if text == "" {
		lab.Must(t, os.Remove(path))
		return
	}
	lab.Must(t, os.WriteFile(path+".tmp", []byte(text), 0o600))
	lab.Must(t, os.Rename(path+".tmp", path))
}

// await waits until condition returns true for the client's view. what describes it in the error.
func (s *site) await(t *testing.T, what string, condition func(*adstest.View) bool) *adstest.View {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	view, err := s.client.Await(ctx, condition)
	if err != nil {
		t.Fatalf("waiting for %s: %v; the client has %v", what, err, view.Resources)
	}
	return view
}

// endpointsOf returns the endpoints of a name in the client's view, as address:port.
func endpointsOf(v *adstest.View, name string) []string {
	assignment := &endpointv3.ClusterLoadAssignment{}
	if err := v.Unmarshal(resource.EndpointType, name, assignment); err != nil {
		return nil
	}
	var list []string
	for _, locality := range assignment.GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			a := e.GetEndpoint().GetAddress().GetSocketAddress()
			list = append(list, fmt.Sprintf("%s:%d", a.GetAddress(), a.GetPortValue()))
		}
	}
	return list
}

func TestFeederFollowsTheStore(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "service.yaml", service)
	write(t, dir, "slice.yaml", fmt.Sprintf(slice, "10.128.0.1"))
	s := newSite(t, watch.Config{Manifests: dir})
	write(t, dir, "proxy.yaml", proxyServer)

	s.await(t, "the proxy", func(v *adstest.View) bool {
		return slices.Equal(v.Names(resource.ListenerType), []string{"port-18443"}) &&
			slices.Equal(v.Names(resource.ClusterType), []string{"proxy/proxies/own/gone", "proxy/proxies/own/web"}) &&
			slices.Equal(endpointsOf(v, "proxy/proxies/own/web"), []string{"10.128.0.1:8443"})
	})
	before, _ := s.server.Envoy("proxies/own", "envoy-0")
	write(t, dir, "slice.yaml", fmt.Sprintf(slice, "10.128.0.2"))
	s.await(t, "the other endpoint", func(v *adstest.View) bool {
		return slices.Equal(endpointsOf(v, "proxy/proxies/own/web"), []string{"10.128.0.2:8443"})
	})
	if after, _ := s.server.Envoy("proxies/own", "envoy-0"); after != before {
		t.Error("a change to endpoints caused another version")
	}
	write(t, dir, "service.yaml", "") // its route stays, without endpoints
	s.await(t, "no endpoint", func(v *adstest.View) bool {
		return len(v.Names(resource.ListenerType)) == 1 && len(endpointsOf(v, "proxy/proxies/own/web")) == 0
	})
	write(t, dir, "proxy.yaml", "")
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	// Envoy keeps its configuration and reconnects, so that a proxy that was deleted by mistake continues to work.
	_, err := s.client.Await(ctx, func(*adstest.View) bool { return false })
	if err == nil || !strings.Contains(err.Error(), "this proxy was deleted") {
		t.Errorf("the stream of a deleted proxy ended with %v", err)
	}
	if view := s.client.View(); len(view.Names(resource.ListenerType)) != 1 {
		t.Errorf("the client of a deleted proxy has %v", view.Names(resource.ListenerType))
	}
}

func TestInvalidPartIsLeftOut(t *testing.T) {
	addressed := func(name, address string) *model.Upstream {
		return &model.Upstream{Name: name, Addresses: []netip.AddrPort{netip.MustParseAddrPort(address)}, FromVLAN: true, ConnectTimeout: time.Second}
	}
	snapshot := func(upstreams ...*model.Upstream) *model.Snapshot {
		p := &model.ProxyServer{Ref: model.Ref{Namespace: "proxies", Name: "own"}, Upstreams: upstreams, Listeners: []*model.Listener{{Port: 443}}}
		for i, u := range upstreams {
			p.Listeners[0].Routes = append(p.Listeners[0].Routes, model.Route{Host: fmt.Sprintf("host%d.example.com", i), Upstream: u.Name})
		}
		return &model.Snapshot{ProxyServers: []*model.ProxyServer{p}}
	}
	invalid := &model.Upstream{Name: "c"} // without a timeout
	dir := t.TempDir()
	write(t, dir, "service.yaml", service)
	write(t, dir, "slice.yaml", fmt.Sprintf(slice, "10.128.0.1"))
	s := newSite(t, watch.Config{Manifests: dir})
	awaitSlice := func(address string) {
		lab.Poll(t, address+" in the store", func() bool {
			list := s.store.EndpointSlices("apps/web")
			return len(list) == 1 && list[0].Endpoints[0].Addresses[0] == address
		})
	}
	awaitSlice("10.128.0.1")
	f := NewFeeder(s.store, s.server, envoy.Options{}, slog.New(slog.DiscardHandler))
	web := &model.Upstream{Name: "web", Service: "apps/web", PortName: "https", ConnectTimeout: time.Second}
	f.feed(snapshot(addressed("a", "192.0.2.1:443"), web), true)
	if omitted := f.Omitted("proxies/own"); omitted != nil {
		t.Errorf("left out %v", omitted)
	}
	f.feed(snapshot(addressed("a", "192.0.2.2:443"), web, invalid), true)
	if omitted := f.Omitted("proxies/own"); len(omitted) == 0 || omitted[0].Upstream != invalid.Name || omitted[0].Reason == "" {
		t.Errorf("left out %v", omitted)
	}
	write(t, dir, "slice.yaml", fmt.Sprintf(slice, "10.128.0.2"))
	awaitSlice("10.128.0.2")
	f.feedEndpoints(map[string]bool{"apps/web": true})

	s.client = s.connect(t.Context(), t)
	view := s.await(t, "all resources", func(v *adstest.View) bool {
		return len(v.Names(resource.EndpointType)) == 2 && len(v.Names(resource.ListenerType)) == 1
	})
	got := map[string][]string{}
	for _, name := range view.Names(resource.ClusterType) {
		got[name] = endpointsOf(view, name)
	}
	want := map[string][]string{"a": {"192.0.2.2:443"}, "web": {"10.128.0.2:8443"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
}

func TestFeederServesTheSnapshotFile(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "snapshot.json")
	write(t, dir, "all.yaml", strings.Join([]string{proxyServer, service, fmt.Sprintf(slice, "10.128.0.1")}, "---"))
	config := watch.Config{Manifests: dir, File: file}
	t.Run("before", func(t *testing.T) { // the snapshot file is written by the end of this sub-test
		newSite(t, config).await(t, "the proxy", func(v *adstest.View) bool { return len(v.Names(resource.ListenerType)) == 1 })
	})
	config.Manifests = filepath.Join(dir, "missing")
	s := newSite(t, config)
	s.await(t, "the proxy of the snapshot file", func(v *adstest.View) bool {
		return len(v.Names(resource.ListenerType)) == 1 && slices.Equal(endpointsOf(v, "proxy/proxies/own/web"), []string{"10.128.0.1:8443"})
	})
	if status := s.store.Status(); status.Synced {
		t.Error("the store is synced, although its snapshot comes from the file")
	}
}

func TestNothingIsServedWithoutASnapshot(t *testing.T) {
	s := newSite(t, watch.Config{Manifests: filepath.Join(t.TempDir(), "missing")})
	h := Handler(s.store, func() bool { return true }, nil, func() any { return StateOf(s.store, s.server, nil) }, prometheus.NewRegistry())
	if code, _ := get(h, "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d", code)
	}
	if code, _ := get(h, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d", code)
	}
	if view := s.client.View(); len(view.Resources) != 0 {
		t.Errorf("the client was sent %v", view.Resources)
	}
}

func get(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

func TestHandlerShowsTheState(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "all.yaml", strings.Join([]string{proxyServer, service, fmt.Sprintf(slice, "10.128.0.1")}, "---"))
	s := newSite(t, watch.Config{Manifests: dir})
	s.await(t, "the proxy", func(v *adstest.View) bool { return len(v.Names(resource.ListenerType)) == 1 })
	registry := prometheus.NewRegistry()
	registry.MustRegister(Collector(s.store))
	h := Handler(s.store, func() bool { return true }, newProblems(s).Report, func() any { return StateOf(s.store, s.server, nil) }, registry)

	code, body := get(h, "/state")
	var state State
	if err := json.Unmarshal([]byte(body), &state); err != nil || code != http.StatusOK {
		t.Fatalf("%d %v: %s", code, err, body)
	}
	if len(state.ProxyServers) != 1 || len(state.Served) != 1 || len(state.Served[0].Envoys) != 1 || len(state.Problems) != 1 {
		t.Errorf("/state: %s", body)
	}
	if code, body := get(h, "/problems"); code != http.StatusOK || !strings.Contains(body, `"problems": []`) {
		t.Errorf("/problems: %d %s", code, body)
	}
	if code, body := get(h, "/readyz"); code != http.StatusOK || !strings.Contains(body, `"synced": true`) {
		t.Errorf("/readyz: %d %s", code, body)
	}
	for path, want := range map[string]int{"/": http.StatusNotFound, "/metrics": http.StatusOK, "/debug/pprof/": http.StatusNotFound} {
		if code, _ := get(h, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	const want = `
# HELP xdsd_problems Number of faults found in the objects, by reason.
# TYPE xdsd_problems gauge
xdsd_problems{reason="ServiceNotFound"} 1
# HELP xdsd_routes Names that a proxy routes, on all its ports.
# TYPE xdsd_routes gauge
xdsd_routes{proxy="proxies/own"} 2
# HELP xdsd_unresolved_upstreams Upstreams of a proxy without a target, because their Service or address does not exist.
# TYPE xdsd_unresolved_upstreams gauge
xdsd_unresolved_upstreams{proxy="proxies/own"} 1
`
	lab.Report(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "xdsd_problems", "xdsd_routes", "xdsd_unresolved_upstreams"))
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) != 0 {
		t.Errorf("%v %v", problems, err)
	}
}
