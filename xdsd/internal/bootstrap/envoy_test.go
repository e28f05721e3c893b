package bootstrap_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
)

// randomLoopback returns a random address in 127.0.0.0/8, which other tests are unlikely to use.
func randomLoopback() netip.Addr {
	octet := func() byte { return byte(1 + rand.IntN(254)) }
	return netip.AddrFrom4([4]byte{127, octet(), octet(), octet()})
}

// localConfig returns a Config for an Envoy that the test runs: with sockets in a temporary folder and a loopback
// address.
func localConfig(t *testing.T) bootstrap.Config {
	t.Helper()
	c := baseConfig()
	dir := lab.TempDir(t)
	c.ServerSocket = filepath.Join(dir, "ads.sock")
	c.AdminSocket = filepath.Join(dir, "admin.sock")
	c.MetricsAddresses = []netip.Addr{randomLoopback()}
	return c
}

// start starts Envoy and does not wait until it is ready.
func start(t *testing.T, config bootstrap.Config) *lab.Envoy {
	t.Helper()
	args := append(config.Args(), "--concurrency", "2")
	return lab.NewEnvoy(t, lab.EnvoyConfig{Bootstrap: renderYAML(t, config), Args: args, Unready: true})
}

func waitReady(t *testing.T, envoy *lab.Envoy) {
	t.Helper()
	if err := envoy.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func metricsAddress(config bootstrap.Config) string {
	return netip.AddrPortFrom(config.MetricsAddresses[0], bootstrap.DefaultMetricsPort).String()
}

// healthAddress returns the address of the listener for probes.
func healthAddress(config bootstrap.Config) string {
	return netip.AddrPortFrom(config.MetricsAddresses[0], bootstrap.DefaultHealthPort).String()
}

func TestEnvoyIsReadyAfterItsFirstConfiguration(t *testing.T) {
	config := localConfig(t)
	envoy := start(t, config)
	if _, err := envoy.Get(t.Context(), "/ready"); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("without xdsd, /ready: %v", err)
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", metricsAddress(config)); err == nil {
		_ = conn.Close()
		t.Error("without xdsd, the metrics listener accepts connections")
	}

	s := serve(t, listen(t, "unix", config.ServerSocket), nil)
	if got, want := s.nextStream(t), (node{"vlan50-proxy-0", "infra/vlan50"}); got != want {
		t.Errorf("got node %+v, want %+v", got, want)
	}
	waitReady(t, envoy)

	if err := errors.Join(envoy.Kill(), envoy.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	s.nextStream(t)
	waitReady(t, envoy)
}

// request sends raw to the metrics listener and returns the first response.
func request(t *testing.T, config bootstrap.Config, raw string) (code int, body string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", metricsAddress(config))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(timeoutContext(t), func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	return readResponse(t, bufio.NewReader(conn), raw)
}

// readResponse reads the response to raw.
func readResponse(t *testing.T, from *bufio.Reader, raw string) (code int, body string) {
	t.Helper()
	method, _, _ := strings.Cut(raw, " ")
	resp, err := http.ReadResponse(from, &http.Request{Method: method})
	if err != nil {
		t.Errorf("%.60q: %v", raw, err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%.60q: %v", raw, err)
	}
	return resp.StatusCode, string(data)
}

// rawRequest returns an HTTP/1.1 request with a Host header and the given ones. After an empty header follows the body.
func rawRequest(method, target string, headers ...string) string {
	return method + " " + target + " HTTP/1.1\r\nHost: envoy\r\n" + strings.Join(append(headers, "\r\n"), "\r\n")
}

func TestMetricsListenerForwardsOnlyTwoRequests(t *testing.T) {
	config := localConfig(t)
	serve(t, listen(t, "unix", config.ServerSocket), nil)
	envoy := start(t, config)
	waitReady(t, envoy)
	pid := envoy.PID()

	if code, body := request(t, config, rawRequest("GET", "/ready")); code != http.StatusOK || body != "LIVE\n" {
		t.Errorf("/ready: %d %q", code, body)
	}
	if code, body := request(t, config, rawRequest("GET", "/stats/prometheus")); code != http.StatusOK || !strings.Contains(body, "\nenvoy_server_live{} 1\n") {
		t.Errorf("/stats/prometheus: %d %q", code, body)
	}

	paths := adminPaths(t, envoy)
	for _, known := range []string{"/quitquitquit", "/config_dump", "/logging", "/drain_listeners", "/runtime_modify", "/certs", "/stats", "/clusters"} {
		if !slices.Contains(paths, known) {
			t.Errorf("/help does not list %s: %q", known, paths)
		}
	}
	for _, path := range append(paths, "/", "", "/favicon.ico") {
		if path == "/ready" || path == "/stats/prometheus" {
			continue
		}
		for _, method := range []string{"GET", "POST", "PUT", "HEAD"} {
			for _, target := range []string{path, path + "?x", "http://envoy" + path, "/ready/.." + path, "/stats/prometheus/../.." + path} {
				if strings.HasPrefix(target, "/") || strings.HasPrefix(target, "http") {
					checkRejected(t, config, rawRequest(method, target, "Content-Length: 0"))
				}
			}
		}
	}
	for _, path := range []string{"/ready", "/stats/prometheus"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "get", "QUERY"} {
			checkRejected(t, config, rawRequest(method, path, "Content-Length: 0"))
		}
		for _, target := range []string{
			path + "?", path + "?filter=.*", path + "?usedonly&text_readouts", path + "%3fusedonly", path + "#x", path + "?/../config_dump",
			path + "/", path + "//", "/" + path, "/." + path, "/x/.." + path, path + "/.", path + ";x", path + "%00", path + "%20", path + "\\",
			path + "/../quitquitquit", path + "/%2e%2e/quitquitquit", path + "%2f..%2fquitquitquit", path + "%2F%2e%2e%2Fquitquitquit",
			path + "\\..\\quitquitquit", path + "%5c..%5cquitquitquit", path + "/..;/quitquitquit",
			strings.ToUpper(path), "%2f" + path[1:], "/%72eady", "http://envoy" + path + "?x", "http://envoy/x/.." + path, "//envoy" + path,
		} {
			checkRejected(t, config, rawRequest("GET", target))
			checkRejected(t, config, rawRequest("POST", target, "Content-Length: 0"))
		}
	}
	for _, raw := range []string{
		"CONNECT envoy:9901 HTTP/1.1\r\nHost: envoy:9901\r\n\r\n",
		"CONNECT /ready HTTP/1.1\r\nHost: envoy\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: envoy\r\n\r\n",
		"GET * HTTP/1.1\r\nHost: envoy\r\n\r\n",
		"GET /ready HTTP/1.0\r\n\r\n",
		"GET /ready HTTP/1.1\r\n\r\n", // no Host header
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		rawRequest("GET", "/ready", "Connection: Upgrade", "Upgrade: websocket"),
		rawRequest("GET", "/ready", "Content-Length: 5", "Transfer-Encoding: chunked", "", "0", "", "POST /quitquitquit HTTP/1.1", "Host: envoy"),
		rawRequest("GET", "/config_dump", "X-Envoy-Original-Path: /ready", "X-Forwarded-For: 127.0.0.1", "X-Envoy-Internal: true"),
		rawRequest("POST", "/ready", "X-HTTP-Method-Override: GET", "Content-Length: 0"),
	} {
		checkRejected(t, config, raw)
	}

	// These are forwarded, as a plain GET /ready.
	for _, raw := range []string{
		rawRequest("GET", "http://envoy/ready"),
		rawRequest("GET", "/ready", "X-Envoy-Original-Path: /config_dump", "X-Original-URL: /quitquitquit", "X-Rewrite-URL: /quitquitquit", "X-HTTP-Method-Override: POST"),
		rawRequest("GET", "/ready", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"),
		rawRequest("GET", "/ready", "Content-Length: 49", "", "POST /quitquitquit HTTP/1.1\r\nHost: envoy\r\nA: bc\r\n"),
	} {
		if code, body := request(t, config, raw); code != http.StatusOK || body != "LIVE\n" {
			t.Errorf("%q: %d %q", raw, code, body)
		}
	}
	checkPipelining(t, config)

	if got := envoy.PID(); got != pid {
		t.Errorf("Envoy restarted: its PID was %d and is %d", pid, got)
	}
	waitReady(t, envoy)
}

// checkRejected checks that the metrics listener itself answers a request with an error.
func checkRejected(t *testing.T, config bootstrap.Config, raw string) {
	t.Helper()
	if code, body := request(t, config, raw); code < 400 || code > 499 || body != "" && body != "Bad Request" && body != "Upgrade Required" {
		t.Errorf("%q: %d %.200q", raw, code, body)
	}
}

// checkPipelining checks that a request pipelined after a permitted one is rejected.
func checkPipelining(t *testing.T, config bootstrap.Config) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", metricsAddress(config))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(timeoutContext(t), func() { _ = conn.Close() })()
	requests := []string{rawRequest("GET", "/ready"), rawRequest("POST", "/quitquitquit", "Content-Length: 0"), rawRequest("GET", "/ready")}
	if _, err := io.WriteString(conn, strings.Join(requests, "")); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	for i, want := range []int{http.StatusOK, http.StatusNotFound, http.StatusOK} {
		if code, body := readResponse(t, in, requests[i]); code != want {
			t.Errorf("pipelined %q: %d %q", requests[i], code, body)
		}
	}
}

// helpLine matches a line of /help with a path. Lines with parameters are indented further.
var helpLine = regexp.MustCompile(`(?m)^  (/\S*)`)

func adminPaths(t *testing.T, envoy *lab.Envoy) []string {
	t.Helper()
	help, err := envoy.Get(t.Context(), "/help")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, match := range helpLine.FindAllStringSubmatch(string(help), -1) {
		paths = append(paths, strings.TrimSuffix(match[1], ":"))
	}
	return paths
}

func TestEnvoyListensOnlyOnItsAddresses(t *testing.T) {
	config := localConfig(t)
	serve(t, listen(t, "unix", config.ServerSocket), nil)
	envoy := start(t, config)
	waitReady(t, envoy)

	want := []string{"tcp " + metricsAddress(config), "tcp " + healthAddress(config), "unix " + config.AdminSocket}
	if got := listeningSockets(t, envoy.PID()); !slices.Equal(got, want) {
		t.Errorf("Envoy listens on %q, want %q", got, want)
	}
	info, err := os.Stat(config.AdminSocket)
	if err != nil {
		t.Fatal(err)
	}
	if want := fs.ModeSocket | 0o600; info.Mode() != want {
		t.Errorf("mode of the admin socket: %s, want %s", info.Mode(), want)
	}
}

func TestMetricsOnIPv4AndIPv6(t *testing.T) {
	probe := listen(t, "tcp", "[::1]:0")
	port := netip.MustParseAddrPort(probe.Addr().String()).Port()
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}
	config := localConfig(t)
	config.MetricsAddresses = append(config.MetricsAddresses, netip.IPv6Loopback())
	config.MetricsPort = port
	serve(t, listen(t, "unix", config.ServerSocket), nil)
	envoy := start(t, config)
	waitReady(t, envoy)
	for _, a := range config.MetricsAddresses {
		url := "http://" + netip.AddrPortFrom(a, port).String() + "/ready"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Error(err)
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", url, resp.Status)
		}
	}
}

// proxyResources returns a listener "clients" and a cluster, which forward connections to a backend.
func proxyResources(t *testing.T, to *lab.Backend) map[string][]*discoveryv3.Resource {
	t.Helper()
	cluster := resource(t, "infra/backend", &clusterv3.Cluster{
		Name:                 "infra/backend",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: "infra/backend",
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socketAddress(to.Addr())}},
			}}}},
		},
	})
	proxy, err := anypb.New(&tcpv3.TcpProxy{
		StatPrefix:       "clients",
		ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "infra/backend"},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &listenerv3.Listener{
		Name:    "clients",
		Address: socketAddress(netip.AddrPortFrom(randomLoopback(), 0)),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.tcp_proxy",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: proxy},
		}}}},
	}
	return map[string][]*discoveryv3.Resource{
		"type.googleapis.com/envoy.config.cluster.v3.Cluster":   {cluster},
		"type.googleapis.com/envoy.config.listener.v3.Listener": {resource(t, "clients", l)},
	}
}

func socketAddress(a netip.AddrPort) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       a.Addr().String(),
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port())},
	}}}
}

func TestMetricsAreServedAtTheConnectionLimit(t *testing.T) {
	config := localConfig(t)
	config.MaxConnections = 1
	backend := lab.TCPBackend(t, "127.0.0.1:0", "backend")
	serve(t, listen(t, "unix", config.ServerSocket), proxyResources(t, backend))
	envoy := start(t, config)
	waitReady(t, envoy)
	listeners, err := envoy.Listeners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := listeners["clients"][0].String()
	first, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	if name, err := lab.Greeting(timeoutContext(t), first); err != nil || name != "backend" {
		t.Fatalf("first connection: %q, %v", name, err)
	}
	second, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	if name, err := lab.Greeting(timeoutContext(t), second); err == nil {
		t.Errorf("a connection above the limit reached %s", name)
	}

	if code, body := request(t, config, rawRequest("GET", "/ready")); code != http.StatusOK {
		t.Errorf("/ready at the limit: %d %q", code, body)
	}
	code, body := request(t, config, rawRequest("GET", "/stats/prometheus"))
	if code != http.StatusOK {
		t.Errorf("/stats/prometheus at the limit: %d %q", code, body)
	}
	for _, want := range []string{
		`envoy_cluster_upstream_cx_active{envoy_cluster_name="infra/backend"} 1`,
		`envoy_cluster_upstream_cx_total{envoy_cluster_name="infra/backend"} 1`,
		`envoy_cluster_membership_healthy{envoy_cluster_name="infra/backend"} 1`,
		`envoy_control_plane_connected_state{} 1`,
		`envoy_listener_manager_total_listeners_active{} 3`,
		`envoy_cluster_manager_active_clusters{} 3`,
		`envoy_server_live{} 1`,
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	for _, want := range []string{`envoy_listener_downstream_cx_active\{envoy_listener_address="[^"]+"\} 1`, `envoy_listener_downstream_cx_total\{.*\} 1`, `envoy_listener_downstream_global_cx_overflow\{.*\} 1`} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(body) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	for _, without := range []string{"envoy_cluster_upstream_rq", "envoy_cluster_upstream_cx_length", "envoy_http_downstream_rq", "envoy_tcp_downstream_cx_no_route"} {
		if strings.Contains(body, "\n"+without) {
			t.Errorf("%s is in\n%s", without, body)
		}
	}
}

// TestMetricsConnectionsAreLimited checks that clients of the metrics listener cannot use up Envoy's file descriptors.
func TestMetricsConnectionsAreLimited(t *testing.T) {
	config := localConfig(t)
	serve(t, listen(t, "unix", config.ServerSocket), nil)
	envoy := start(t, config)
	waitReady(t, envoy)
	health := func(path string) error {
		request, err := http.NewRequestWithContext(timeoutContext(t), http.MethodGet, "http://"+healthAddress(config)+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	}
	const limit = 128
	closed := make(chan struct{}, limit+1)
	var conns []net.Conn
	for range limit + 1 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", metricsAddress(config))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		conns = append(conns, conn)
		go func() {
			_, _ = conn.Read(make([]byte, 1))
			closed <- struct{}{}
		}()
	}
	select {
	case <-closed:
	case <-timeoutContext(t).Done():
		t.Errorf("all %d connections are open, want at most %d", limit+1, limit)
	}
	for _, path := range []string{"/ready", "/healthz"} {
		if err := health(path); err != nil {
			t.Errorf("%s fails on the port of probes while clients use all connections of the other: %v", path, err)
		}
	}
	for _, path := range []string{"/stats/prometheus", "/healthz?x", "/config_dump"} {
		if err := health(path); err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("%s on the port of probes: %v", path, err)
		}
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	for ctx := timeoutContext(t); ; {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", metricsAddress(config))
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(conn, rawRequest("GET", "/ready"))
		if err == nil {
			_, err = http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // closed with its connection
		}
		_ = conn.Close()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("after all other connections were closed: %v", err)
		}
	}
}

// TestProbesHaveConnectionsOfTheirOwn checks that silent clients cannot use up the connections of the kubelet and of xdsd
// hold to the health listener.
func TestProbesHaveConnectionsOfTheirOwn(t *testing.T) {
	node, other, stranger := netip.MustParseAddr("127.0.0.30"), netip.MustParseAddr("127.0.0.31"), netip.MustParseAddr("127.0.0.32")
	config := localConfig(t)
	config.NodeAddresses = []netip.Addr{node}
	serve(t, listen(t, "unix", config.ServerSocket), nil)
	waitReady(t, start(t, config))
	connect := func(from netip.Addr) net.Conn {
		t.Helper()
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
		conn, err := dialer.DialContext(timeoutContext(t), "tcp", healthAddress(config))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	// ask requests /ready and reports whether a response arrives. Envoy closes a connection above the limit.
	ask := func(from netip.Addr) bool {
		t.Helper()
		conn := connect(from)
		defer context.AfterFunc(timeoutContext(t), func() { _ = conn.Close() })()
		if _, err := io.WriteString(conn, rawRequest("GET", "/ready", "Connection: close", "", "")); err != nil {
			return false
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	if !ask(stranger) {
		t.Fatal("a client is refused while no connection is open")
	}
	for range 3 * 128 {
		connect(other)
	}
	if ask(stranger) {
		t.Error("another client got a connection: the silent one has not reached the limit, and the test shows nothing")
	}
	for _, from := range []netip.Addr{node, netip.MustParseAddr("127.0.0.1")} {
		if !ask(from) {
			t.Errorf("a probe from %s failed", from)
		}
	}
}

func TestMetricsAreServedAtTheHeapLimit(t *testing.T) {
	config := localConfig(t)
	config.MaxHeapBytes = 1 // always exceeded
	serve(t, listen(t, "unix", config.ServerSocket), nil)
	envoy := start(t, config)
	waitReady(t, envoy)
	awaitStat(t, envoy, "overload.envoy.overload_actions.stop_accepting_connections.active", 1)
	if code, body := request(t, config, rawRequest("GET", "/ready")); code != http.StatusOK {
		t.Errorf("/ready above the heap limit: %d %q", code, body)
	}
}

// timeoutContext returns a context that ends after a minute or with the test.
func timeoutContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// awaitStat waits until a stat is at least minimum.
func awaitStat(t *testing.T, envoy *lab.Envoy, name string, minimum uint64) {
	t.Helper()
	ctx := timeoutContext(t)
	for {
		stats, err := envoy.Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if stats[name] >= minimum {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s is %d, want at least %d", name, stats[name], minimum)
		}
	}
}

// listeningSockets returns the sorted addresses on which a process listens, as "FAMILY ADDRESS".
func listeningSockets(t *testing.T, pid int) []string {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d", pid)
	inodes := map[string]bool{}
	descriptors, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range descriptors {
		target, err := os.Readlink(filepath.Join(proc, "fd", d.Name()))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOENT) {
			continue // closed after ReadDir
		}
		if err != nil {
			t.Fatal(err)
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	var found []string
	rows := func(file string, each func(fields []string)) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(proc, "net", file))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			each(strings.Fields(line))
		}
	}
	for _, family := range []string{"tcp", "tcp6", "udp", "udp6"} {
		rows(family, func(f []string) {
			const address, state, inode, listen, unconnected = 1, 3, 9, "0A", "07"
			if inodes[f[inode]] && (f[state] == listen || f[state] == unconnected) {
				found = append(found, family+" "+procAddress(t, f[address]))
			}
		})
	}
	rows("unix", func(f []string) {
		const flags, inode, path, accepts = 3, 6, 7, "00010000"
		if inodes[f[inode]] && f[flags] == accepts {
			found = append(found, "unix "+strings.Join(f[path:], " "))
		}
	})
	slices.Sort(found)
	return slices.Compact(found)
}

// procAddress parses an address of /proc/net/tcp: hexadecimal 32-bit words in the host's byte order, which is
// little-endian on all platforms that run these tests.
func procAddress(t *testing.T, text string) string {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	var ip []byte
	for ; len(host) >= 8; host = host[8:] {
		word, err := strconv.ParseUint(host[:8], 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		ip = append(ip, byte(word), byte(word>>8), byte(word>>16), byte(word>>24))
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		t.Fatal(err)
	}
	a, ok := netip.AddrFromSlice(ip)
	if !ok {
		t.Fatalf("invalid address %s", text)
	}
	return netip.AddrPortFrom(a, uint16(n)).String()
}
