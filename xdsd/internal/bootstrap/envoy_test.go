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

// loopback returns an address that nobody else is likely to use.
func loopback() netip.Addr {
	octet := func() byte { return byte(1 + rand.IntN(254)) }
	return netip.AddrFrom4([4]byte{127, octet(), octet(), octet()})
}

// local is a sidecar that can run here.
func local(t *testing.T) bootstrap.Config {
	t.Helper()
	c := sidecar()
	dir := lab.TempDir(t)
	c.ServerSocket = filepath.Join(dir, "ads.sock")
	c.AdminSocket = filepath.Join(dir, "admin.sock")
	c.MetricsAddresses = []netip.Addr{loopback()}
	return c
}

// start starts Envoy, without waiting for it to be ready.
func start(t *testing.T, config bootstrap.Config) *lab.Envoy {
	t.Helper()
	args, err := config.Args()
	if err != nil {
		t.Fatal(err)
	}
	args = append(args, "--concurrency", "2")
	return lab.NewEnvoy(t, lab.EnvoyConfig{Bootstrap: yamlOf(t, config), Args: args, Unready: true})
}

func ready(t *testing.T, envoy *lab.Envoy) {
	t.Helper()
	if err := envoy.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func metricsAt(config bootstrap.Config) string {
	return netip.AddrPortFrom(config.MetricsAddresses[0], bootstrap.DefaultMetricsPort).String()
}

func TestReadyOnceServed(t *testing.T) {
	config := local(t)
	envoy := start(t, config)
	if _, err := envoy.Get(t.Context(), "/ready"); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("without xdsd, /ready: %v", err)
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", metricsAt(config)); err == nil {
		_ = conn.Close()
		t.Error("without xdsd, the metrics listener takes connections")
	}

	s := serve(t, listen(t, "unix", config.ServerSocket), nil)
	if got, want := s.next(t), (node{"vlan50-proxy-0", "infra/vlan50"}); got != want {
		t.Errorf("got node %+v, want %+v", got, want)
	}
	ready(t, envoy)

	if err := errors.Join(envoy.Kill(), envoy.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	s.next(t)
	ready(t, envoy)
}

// request writes one to the metrics listener as it is, and returns the first
// response.
func request(t *testing.T, config bootstrap.Config, raw string) (code int, body string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", metricsAt(config))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(soon(t), func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	return response(t, bufio.NewReader(conn), raw)
}

func response(t *testing.T, from *bufio.Reader, raw string) (code int, body string) {
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

func simple(method, target string, headers ...string) string {
	return method + " " + target + " HTTP/1.1\r\nHost: envoy\r\n" + strings.Join(append(headers, "\r\n"), "\r\n")
}

func TestMetricsListenerPassesOnTwoRequests(t *testing.T) {
	config := local(t)
	serve(t, listen(t, "unix", config.ServerSocket), nil)
	envoy := start(t, config)
	ready(t, envoy)
	pid := envoy.PID()

	if code, body := request(t, config, simple("GET", "/ready")); code != http.StatusOK || body != "LIVE\n" {
		t.Errorf("/ready: %d %q", code, body)
	}
	if code, body := request(t, config, simple("GET", "/stats/prometheus")); code != http.StatusOK || !strings.Contains(body, "\nenvoy_server_live{} 1\n") {
		t.Errorf("/stats/prometheus: %d %q", code, body)
	}

	paths := adminPaths(t, envoy)
	for _, known := range []string{"/quitquitquit", "/config_dump", "/logging", "/drain_listeners", "/runtime_modify", "/certs", "/stats", "/clusters"} {
		if !slices.Contains(paths, known) {
			t.Errorf("no %s in what /help lists: %q", known, paths)
		}
	}
	for _, path := range append(paths, "/", "", "/favicon.ico") {
		if path == "/ready" || path == "/stats/prometheus" {
			continue
		}
		for _, method := range []string{"GET", "POST", "PUT", "HEAD"} {
			for _, target := range []string{path, path + "?x", "http://envoy" + path, "/ready/.." + path, "/stats/prometheus/../.." + path} {
				if strings.HasPrefix(target, "/") || strings.HasPrefix(target, "http") {
					refused(t, config, simple(method, target, "Content-Length: 0"))
				}
			}
		}
	}
	for _, path := range []string{"/ready", "/stats/prometheus"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "get", "QUERY"} {
			refused(t, config, simple(method, path, "Content-Length: 0"))
		}
		for _, target := range []string{
			path + "?", path + "?filter=.*", path + "?usedonly&text_readouts", path + "%3fusedonly", path + "#x", path + "?/../config_dump",
			path + "/", path + "//", "/" + path, "/." + path, "/x/.." + path, path + "/.", path + ";x", path + "%00", path + "%20", path + "\\",
			path + "/../quitquitquit", path + "/%2e%2e/quitquitquit", path + "%2f..%2fquitquitquit", path + "%2F%2e%2e%2Fquitquitquit",
			path + "\\..\\quitquitquit", path + "%5c..%5cquitquitquit", path + "/..;/quitquitquit",
			strings.ToUpper(path), "%2f" + path[1:], "/%72eady", "http://envoy" + path + "?x", "http://envoy/x/.." + path, "//envoy" + path,
		} {
			refused(t, config, simple("GET", target))
			refused(t, config, simple("POST", target, "Content-Length: 0"))
		}
	}
	for _, raw := range []string{
		"CONNECT envoy:9901 HTTP/1.1\r\nHost: envoy:9901\r\n\r\n",
		"CONNECT /ready HTTP/1.1\r\nHost: envoy\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: envoy\r\n\r\n",
		"GET * HTTP/1.1\r\nHost: envoy\r\n\r\n",
		"GET /ready HTTP/1.0\r\n\r\n",
		"GET /ready HTTP/1.1\r\n\r\n", // no host
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		simple("GET", "/ready", "Connection: Upgrade", "Upgrade: websocket"),
		simple("GET", "/ready", "Content-Length: 5", "Transfer-Encoding: chunked", "", "0", "", "POST /quitquitquit HTTP/1.1", "Host: envoy"),
		simple("GET", "/config_dump", "X-Envoy-Original-Path: /ready", "X-Forwarded-For: 127.0.0.1", "X-Envoy-Internal: true"),
		simple("POST", "/ready", "X-HTTP-Method-Override: GET", "Content-Length: 0"),
	} {
		refused(t, config, raw)
	}

	// What is passed on is still no more than what was asked for.
	for _, raw := range []string{
		simple("GET", "http://envoy/ready"),
		simple("GET", "/ready", "X-Envoy-Original-Path: /config_dump", "X-Original-URL: /quitquitquit", "X-Rewrite-URL: /quitquitquit", "X-HTTP-Method-Override: POST"),
		simple("GET", "/ready", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"),
		simple("GET", "/ready", "Content-Length: 49", "", "POST /quitquitquit HTTP/1.1\r\nHost: envoy\r\nA: bc\r\n"),
	} {
		if code, body := request(t, config, raw); code != http.StatusOK || body != "LIVE\n" {
			t.Errorf("%q: %d %q", raw, code, body)
		}
	}
	pipelined(t, config)

	if got := envoy.PID(); got != pid {
		t.Errorf("Envoy was process %d and is %d", pid, got)
	}
	ready(t, envoy)
}

// refused is to say: answered by the listener itself.
func refused(t *testing.T, config bootstrap.Config, raw string) {
	t.Helper()
	if code, body := request(t, config, raw); code < 400 || code > 499 || body != "" && body != "Bad Request" && body != "Upgrade Required" {
		t.Errorf("%q: %d %.200q", raw, code, body)
	}
}

// pipelined is a second request behind one that is passed on.
func pipelined(t *testing.T, config bootstrap.Config) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", metricsAt(config))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(soon(t), func() { _ = conn.Close() })()
	requests := []string{simple("GET", "/ready"), simple("POST", "/quitquitquit", "Content-Length: 0"), simple("GET", "/ready")}
	if _, err := io.WriteString(conn, strings.Join(requests, "")); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	for i, want := range []int{http.StatusOK, http.StatusNotFound, http.StatusOK} {
		if code, body := response(t, in, requests[i]); code != want {
			t.Errorf("pipelined %q: %d %q", requests[i], code, body)
		}
	}
}

// helpLine is one of a path in what /help shows; those of parameters are
// further to the right.
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

func TestNothingElseListens(t *testing.T) {
	config := local(t)
	serve(t, listen(t, "unix", config.ServerSocket), nil)
	envoy := start(t, config)
	ready(t, envoy)

	want := []string{"tcp " + metricsAt(config), "unix " + config.AdminSocket}
	if got := listening(t, envoy.PID()); !slices.Equal(got, want) {
		t.Errorf("Envoy listens at %q, want %q", got, want)
	}
	info, err := os.Stat(config.AdminSocket)
	if err != nil {
		t.Fatal(err)
	}
	if want := fs.ModeSocket | 0o600; info.Mode() != want {
		t.Errorf("mode of the admin socket: %s, want %s", info.Mode(), want)
	}
}

func TestMetricsAtBothFamilies(t *testing.T) {
	probe := listen(t, "tcp", "[::1]:0")
	port := netip.MustParseAddrPort(probe.Addr().String()).Port()
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}
	config := local(t)
	config.MetricsAddresses = append(config.MetricsAddresses, netip.IPv6Loopback())
	config.MetricsPort = port
	serve(t, listen(t, "unix", config.ServerSocket), nil)
	envoy := start(t, config)
	ready(t, envoy)
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

// clients is a listener such as xdsd has, that leads to a backend.
func clients(t *testing.T, to *lab.Backend) map[string][]*discoveryv3.Resource {
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
		Address: socketAddress(netip.AddrPortFrom(loopback(), 0)),
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

func TestLimitSparesTheMetrics(t *testing.T) {
	config := local(t)
	config.MaxConnections = 1
	backend := lab.TCPBackend(t, "127.0.0.1:0", "backend")
	serve(t, listen(t, "unix", config.ServerSocket), clients(t, backend))
	envoy := start(t, config)
	ready(t, envoy)
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
	if name, err := lab.Greeting(soon(t), first); err != nil || name != "backend" {
		t.Fatalf("first connection: %q, %v", name, err)
	}
	second, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	if name, err := lab.Greeting(soon(t), second); err == nil {
		t.Errorf("one connection too many got to %s", name)
	}

	if code, body := request(t, config, simple("GET", "/ready")); code != http.StatusOK {
		t.Errorf("/ready at the limit: %d %q", code, body)
	}
	code, body := request(t, config, simple("GET", "/stats/prometheus"))
	if code != http.StatusOK {
		t.Errorf("/stats/prometheus at the limit: %d %q", code, body)
	}
	for _, want := range []string{
		`envoy_cluster_upstream_cx_active{envoy_cluster_name="infra/backend"} 1`,
		`envoy_cluster_upstream_cx_total{envoy_cluster_name="infra/backend"} 1`,
		`envoy_cluster_membership_healthy{envoy_cluster_name="infra/backend"} 1`,
		`envoy_control_plane_connected_state{} 1`,
		`envoy_listener_manager_total_listeners_active{} 2`,
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
	for _, without := range []string{"envoy_cluster_upstream_rq", "envoy_cluster_upstream_cx_length", "envoy_http_", "envoy_tcp_"} {
		if strings.Contains(body, "\n"+without) {
			t.Errorf("%s is in\n%s", without, body)
		}
	}
}

// Nor can clients of the metrics listener have all of Envoy's descriptors.
func TestMetricsConnectionsAreLimited(t *testing.T) {
	config := local(t)
	serve(t, listen(t, "unix", config.ServerSocket), nil)
	envoy := start(t, config)
	ready(t, envoy)
	const limit = 128
	closed := make(chan struct{}, limit+1)
	var conns []net.Conn
	for range limit + 1 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", metricsAt(config))
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
	case <-soon(t).Done():
		t.Errorf("all of %d connections are open", limit+1)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	for ctx := soon(t); ; {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", metricsAt(config))
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(conn, simple("GET", "/ready"))
		if err == nil {
			_, err = http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // closed with its connection
		}
		_ = conn.Close()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("after the others have gone: %v", err)
		}
	}
}

func TestHeapLimitSparesTheMetrics(t *testing.T) {
	config := local(t)
	config.MaxHeapBytes = 1 // so that any memory is too much
	serve(t, listen(t, "unix", config.ServerSocket), nil)
	envoy := start(t, config)
	ready(t, envoy)
	stat(t, envoy, "overload.envoy.overload_actions.stop_accepting_connections.active", 1)
	if code, body := request(t, config, simple("GET", "/ready")); code != http.StatusOK {
		t.Errorf("/ready out of memory: %d %q", code, body)
	}
}

// soon bounds what would else wait for ever.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// stat waits until a stat is no less than that.
func stat(t *testing.T, envoy *lab.Envoy, name string, least uint64) {
	t.Helper()
	ctx := soon(t)
	for {
		stats, err := envoy.Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if stats[name] >= least {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s is %d", name, stats[name])
		}
	}
}

// listening returns where a process listens, sorted.
func listening(t *testing.T, pid int) []string {
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
			continue // closed since
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

// procAddress reads an address as /proc/net/tcp has it: 32-bit words in the
// machine's order, which is little-endian wherever this runs.
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
		t.Fatalf("%s is no address", text)
	}
	return netip.AddrPortFrom(a, uint16(n)).String()
}
