package ads

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/ads/adstest"
	"github.com/densityops/oooi/xdsd/internal/message"
)

func cluster(name string, timeout time.Duration) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: message.ADSSource()},
		ConnectTimeout:       durationpb.New(timeout),
	}
}

func clusters(names ...string) []*clusterv3.Cluster {
	var all []*clusterv3.Cluster
	for _, name := range names {
		all = append(all, cluster(name, time.Second))
	}
	return all
}

func mustAny(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

func address(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// listener returns a listener that routes the SNI HOST.example.com to the cluster HOST, for each host.
func listener(name string, port uint32, hosts ...string) *listenerv3.Listener {
	l := &listenerv3.Listener{Name: name, Address: address("127.0.0.1", port)}
	for _, host := range hosts {
		l.FilterChains = append(l.FilterChains, &listenerv3.FilterChain{
			Name:             host,
			FilterChainMatch: &listenerv3.FilterChainMatch{ServerNames: []string{host + ".example.com"}},
			Filters: []*listenerv3.Filter{{
				Name: "tcp",
				ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: mustAny(&tcpv3.TcpProxy{
					StatPrefix: host, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: host},
				})},
			}},
		})
	}
	return l
}

func httpListener(name string, port uint32, route string) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: name, Address: address("127.0.0.1", port),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: "http",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: mustAny(&hcmv3.HttpConnectionManager{
				StatPrefix: name,
				RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
					RouteConfigName: route, ConfigSource: message.ADSSource(),
				}},
			})},
		}}}},
	}
}

func route(name string, hosts ...string) *routev3.RouteConfiguration {
	r := &routev3.RouteConfiguration{Name: name}
	for _, host := range hosts {
		r.VirtualHosts = append(r.VirtualHosts, &routev3.VirtualHost{Name: host, Domains: []string{host}})
	}
	return r
}

func endpoints(name string, hosts ...string) *endpointv3.ClusterLoadAssignment {
	locality := &endpointv3.LocalityLbEndpoints{}
	for _, host := range hosts {
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address(host, 6443)}},
		})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{locality}}
}

// baseResources returns two clusters and two routes, with the listeners that use them.
func baseResources() Resources {
	return Resources{
		Listeners: []*listenerv3.Listener{
			listener("tls", 443, "a", "b"), httpListener("http", 80, "r1"), httpListener("http2", 81, "r2"),
		},
		Clusters: clusters("a", "b"),
		Routes:   []*routev3.RouteConfiguration{route("r1", "x.example.com"), route("r2", "y.example.com")},
	}
}

// waitTimeout is how long a test waits for an expected event.
const waitTimeout = 20 * time.Second

func timeoutContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	t.Cleanup(cancel)
	return ctx
}

func newServer(t testing.TB, options Options) *Server {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	options.Retry = cmp.Or(options.Retry, time.Hour) // only tests of retries wait for one
	s, err := New(options)
	lab.Must(t, err)
	return s
}

func setEndpoints(s *Server, all ...*endpointv3.ClusterLoadAssignment) {
	s.UpdateEndpoints(tenant, all)
}

// proxyState returns the state of a proxy, and whether it exists.
func proxyState(s *Server, name string) (Proxy, bool) {
	for _, p := range s.State() {
		if p.Name == name {
			return p, true
		}
	}
	return Proxy{}, false
}

// socketPath returns a path that is short enough for a Unix socket.
func socketPath(t testing.TB) string {
	dir, err := os.MkdirTemp("", "ads") //nolint:usetesting // t.TempDir contains the test's name; a socket's path has at most 108 bytes
	lab.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve starts s, which runs until the test ends or stop is called, and returns a connection to it.
func serve(t testing.TB, s *Server) (conn *grpc.ClientConn, stop func()) {
	t.Helper()
	path := socketPath(t)
	l, err := ListenUnix(t.Context(), path)
	lab.Must(t, err)
	stop = background(t, func(ctx context.Context) error { return s.Serve(ctx, l) })
	conn, err = grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	lab.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn, stop
}

// background runs f until the test ends or stop is called. The test fails if f returns an error.
func background(t testing.TB, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		lab.Report(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

func connect(t testing.TB, conn grpc.ClientConnInterface, options adstest.Options) *adstest.Client {
	t.Helper()
	if options.ID == "" {
		options.ID = "envoy-0"
	}
	c, err := adstest.Connect(timeoutContext(t), conn, options)
	lab.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// started starts a server that serves resources for the tenant, and a client that has acknowledged all of them.
func started(t testing.TB, options Options, r Resources, client adstest.Options) (*Server, *adstest.Client, grpc.ClientConnInterface) {
	t.Helper()
	s := newServer(t, options)
	conn, _ := serve(t, s)
	s.Set(tenant, r)
	client.Cluster = tenant
	c := connect(t, conn, client)
	awaitProxy(t, s, tenant, current(1))
	return s, c, conn
}

// rejecting returns a Reject that rejects responses with a resource for which condition returns true.
func rejecting(text string, condition func(*discoveryv3.Resource) bool) func(*discoveryv3.DeltaDiscoveryResponse) string {
	return func(r *discoveryv3.DeltaDiscoveryResponse) string {
		if slices.ContainsFunc(r.GetResources(), condition) {
			return text
		}
		return ""
	}
}

func named(name string) func(*discoveryv3.Resource) bool {
	return func(m *discoveryv3.Resource) bool { return m.GetName() == name }
}

func await(t testing.TB, c *adstest.Client, condition func(*adstest.View) bool) *adstest.View {
	t.Helper()
	view, err := c.Await(timeoutContext(t), condition)
	if err != nil {
		t.Fatalf("%v; responses so far:\n%s", err, lines(view.Responses))
	}
	return view
}

// awaitProxy waits until a proxy exists and condition returns true for its state.
func awaitProxy(t testing.TB, s *Server, name string, condition func(Proxy) bool) Proxy {
	t.Helper()
	ctx := timeoutContext(t)
	changed, cancel := s.Subscribe()
	defer cancel()
	for {
		if p, ok := proxyState(s, name); ok && condition(p) {
			return p
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("timed out waiting for %s: %+v", name, s.State())
		}
	}
}

// current returns a condition: exactly n Envoys are connected, and each has acknowledged all current resources.
func current(n int) func(Proxy) bool {
	return func(p Proxy) bool {
		return len(p.Envoys) == n && !slices.ContainsFunc(p.Envoys, func(e Envoy) bool {
			return !e.Current || e.Version != p.Version
		})
	}
}

// wantSent compares responses, as formatted by lines.
func wantSent(t testing.TB, responses []adstest.Response, want string) {
	t.Helper()
	if got := lines(responses); got != want {
		t.Errorf("sent:\n%swant:\n%s", got, want)
	}
}

// lines formats responses, one per line: "cluster a b -c", where "-" marks a removed resource.
func lines(responses []adstest.Response) string {
	var s string
	for _, r := range responses {
		s += kinds[r.Type]
		for _, name := range r.Names {
			s += " " + name
		}
		for _, name := range r.Removed {
			s += " -" + name
		}
		if r.Rejected {
			s += " rejected"
		}
		s += "\n"
	}
	return s
}
