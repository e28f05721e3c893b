package bootstrap_test

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
)

// randomLoopback returns a random address in 127.0.0.0/8, which other tests are unlikely to use.
func randomLoopback() netip.Addr {
	octet := func() byte { return byte(1 + rand.IntN(254)) }
	return netip.AddrFrom4([4]byte{127, octet(), octet(), octet()})
}

// localConfig returns a Config for an Envoy that the test runs: with sockets in a temporary directory and a loopback
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

// serve serves resources to the Envoy of config until the test ends.
func serve(t *testing.T, config bootstrap.Config, resources ads.Resources) *ads.Server {
	t.Helper()
	server, err := ads.New(ads.Options{Log: slog.New(slog.DiscardHandler)})
	lab.Must(t, err)
	l, err := ads.ListenUnix(t.Context(), config.ServerSocket)
	lab.Must(t, err)
	server.Set(config.ProxyServer.String(), resources)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(t.Context(), l) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil { // t.Context is done
			t.Error(err)
		}
	})
	return server
}

// startReady starts an Envoy with resources, and returns when it is ready.
func startReady(t *testing.T, config bootstrap.Config, resources ads.Resources) *lab.Envoy {
	t.Helper()
	serve(t, config, resources)
	envoy := start(t, config)
	envoy.AwaitReady(t)
	return envoy
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

	// The server serves only this ProxyServer.
	server := serve(t, config, ads.Resources{})
	envoy.AwaitReady(t)
	if p := server.State()[0]; len(p.Envoys) != 1 || p.Envoys[0].ID != config.NodeID {
		t.Errorf("got Envoys %+v, want %s", p.Envoys, config.NodeID)
	}
	envoy.Kill(t)
	envoy.Start(t)
	envoy.AwaitReady(t)
}

// dial opens a connection, from an address unless that is the zero value. It ends with the test, or after a minute.
func dial(t *testing.T, from netip.Addr, to string) net.Conn {
	t.Helper()
	conn, err := (*lab.Namespace)(nil).Dial(t.Context(), from, netip.MustParseAddrPort(to))
	lab.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	lab.Must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

// request sends raw to the metrics listener and returns the first response.
func request(t *testing.T, config bootstrap.Config, raw string) (code int, body string) {
	t.Helper()
	conn := dial(t, netip.Addr{}, metricsAddress(config))
	defer func() { _ = conn.Close() }()
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

func TestMetricsListenerForwardsOnlyReadyAndStats(t *testing.T) {
	config := localConfig(t)
	envoy := startReady(t, config, ads.Resources{})
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
	envoy.AwaitReady(t)
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
	conn := dial(t, netip.Addr{}, metricsAddress(config))
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
	lab.Must(t, err)
	var paths []string
	for _, match := range helpLine.FindAllStringSubmatch(string(help), -1) {
		paths = append(paths, strings.TrimSuffix(match[1], ":"))
	}
	return paths
}

func TestEnvoyListensOnlyOnItsAddresses(t *testing.T) {
	config := localConfig(t)
	envoy := startReady(t, config, ads.Resources{})

	want := []string{"tcp " + metricsAddress(config), "tcp " + healthAddress(config), "u_str " + config.AdminSocket}
	if got := listeningSockets(t, envoy.PID()); !slices.Equal(got, want) {
		t.Errorf("Envoy listens on %q, want %q", got, want)
	}
	info, err := os.Stat(config.AdminSocket)
	lab.Must(t, err)
	if want := fs.ModeSocket | 0o600; info.Mode() != want {
		t.Errorf("mode of the admin socket: %s, want %s", info.Mode(), want)
	}
}

func TestMetricsOnIPv4AndIPv6(t *testing.T) {
	reserved, err := lab.ReservePorts(t.Context(), "::1", 1)
	lab.Must(t, err)
	defer reserved.Release()
	config := localConfig(t)
	config.MetricsAddresses = append(config.MetricsAddresses, netip.IPv6Loopback())
	config.MetricsPort = uint16(reserved.Numbers[0])
	startReady(t, config, ads.Resources{})
	for _, a := range config.MetricsAddresses {
		at := netip.AddrPortFrom(a, config.MetricsPort)
		if status, body := lab.Get(t, "http://"+at.String()+"/ready"); status != http.StatusOK {
			t.Errorf("%s: %d %s", at, status, body)
		}
	}
}

// TestMetricsConnectionsAreLimited checks that clients of the metrics listener cannot use up Envoy's file descriptors.
func TestMetricsConnectionsAreLimited(t *testing.T) {
	config := localConfig(t)
	startReady(t, config, ads.Resources{})
	const limit = 128
	closed := make(chan struct{}, limit+1)
	var conns []net.Conn
	for range limit + 1 {
		conn := dial(t, netip.Addr{}, metricsAddress(config))
		conns = append(conns, conn)
		go func() {
			_, _ = conn.Read(make([]byte, 1))
			closed <- struct{}{}
		}()
	}
	lab.Poll(t, "a connection above the limit to be closed", func() bool { return len(closed) > 0 })
	for path, want := range map[string]int{"/ready": 200, "/healthz": 200, "/stats/prometheus": 404, "/healthz?x": 404, "/config_dump": 404} {
		if got, _ := lab.Get(t, "http://"+healthAddress(config)+path); got != want {
			t.Errorf("%s on the port of probes, while clients use all connections of the other: %d, want %d", path, got, want)
		}
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	lab.Poll(t, "a free connection after all others were closed", func() bool {
		status, _ := lab.Get(t, "http://"+metricsAddress(config)+"/ready")
		return status == http.StatusOK
	})
}

// TestProbesHaveSeparateConnections checks that silent clients cannot use up the connections of the kubelet and of xdsd
// hold to the health listener.
func TestProbesHaveSeparateConnections(t *testing.T) {
	node, other, stranger := netip.MustParseAddr("127.0.0.30"), netip.MustParseAddr("127.0.0.31"), netip.MustParseAddr("127.0.0.32")
	config := localConfig(t)
	config.NodeAddresses = []netip.Addr{node}
	startReady(t, config, ads.Resources{})
	// ask requests /ready and reports whether a response arrives. Envoy closes a connection above the limit.
	ask := func(from netip.Addr) bool {
		t.Helper()
		conn := dial(t, from, healthAddress(config))
		defer func() { _ = conn.Close() }()
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
		dial(t, other, healthAddress(config))
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
	envoy := startReady(t, config, ads.Resources{})
	lab.Poll(t, "the limit of the heap", func() bool {
		stats, err := envoy.Stats(t.Context())
		return err == nil && stats["overload.envoy.overload_actions.stop_accepting_connections.active"] > 0
	})
	if code, body := request(t, config, rawRequest("GET", "/ready")); code != http.StatusOK {
		t.Errorf("/ready above the heap limit: %d %q", code, body)
	}
}

// listeningSockets returns the sorted addresses on which a process listens, as "PROTOCOL ADDRESS".
func listeningSockets(t *testing.T, pid int) []string {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "ss", "--no-header", "--listening", "--numeric", "--tcp", "--udp", "--unix", "--processes").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, list)
	}
	var found []string
	for line := range strings.Lines(string(list)) {
		if fields := strings.Fields(line); strings.Contains(line, fmt.Sprintf("pid=%d,", pid)) {
			found = append(found, fields[0]+" "+fields[4])
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
