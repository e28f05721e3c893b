package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestEnvoyVersions(t *testing.T) {
	for output, want := range map[string]struct {
		text      string
		supported bool
	}{
		"\nenvoy  version: 9e5580933739775e8bce696a57a2e1bc99368f23/1.40.0/Clean/RELEASE/BoringSSL\n\n": {"1.40.0", true},
		"envoy  version: 0/1.31.0-dev/Modified/DEBUG/BoringSSL":                                         {"1.31.0-dev", true},
		"envoy  version: 0/1.30.11/Clean/RELEASE/BoringSSL":                                             {"1.30.11", false},
		"envoy  version: 0/2.0.0/Clean/RELEASE/BoringSSL":                                               {"2.0.0", true},
	} {
		got, err := parseEnvoyVersion(output)
		if err != nil || got.text != want.text || got.supported() != want.supported {
			t.Errorf("%q: got %+v, %v, want %+v", output, got, err, want)
		}
	}
	if _, err := parseEnvoyVersion("Envoyer 3"); err == nil {
		t.Error("no error for an unknown format")
	}
}

func TestFindEnvoy(t *testing.T) {
	own, err := InstallEnvoy(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	for version, use := range map[string]bool{"1.31.2": true, "1.30.9": false, "unknown": false} {
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			inPath := filepath.Join(dir, "envoy")
			script := "#!/bin/sh\necho 'envoy  version: 0/" + version + "/Clean/RELEASE/BoringSSL'\n"
			if err := os.WriteFile(inPath, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
			want := own
			if use {
				want = inPath
			}
			got, err := FindEnvoy(t.Context(), t.Logf)
			if err != nil || got != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
}

// passthrough returns a bootstrap configuration with one listener for each backend. The listener of a accepts
// only TLS connections for a.test.
func passthrough(dir string, a, b, c netip.AddrPort) []byte {
	cluster := func(name string, at netip.AddrPort) string {
		return fmt.Sprintf(`
  - name: %[1]s
    load_assignment:
      cluster_name: %[1]s
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %[2]s, port_value: %[3]d}}}}]}]
`, name, at.Addr(), at.Port())
	}
	listener := func(name, match, filters string) string {
		return fmt.Sprintf(`
  - name: %[1]s
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    listener_filters: [%[3]s]
    filter_chains:
    - filter_chain_match: {%[2]s}
      filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: %[1]s
          cluster: %[1]s
`, name, match, filters)
	}
	inspector := `{name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}}`
	return []byte("node: {id: lab, cluster: lab}\nadmin: {address: {pipe: {path: " + dir + "/admin.sock}}}\nstatic_resources:\n" +
		"  clusters:" + cluster("a", a) + cluster("b", b) + cluster("c", c) +
		"  listeners:" + listener("a", "server_names: [a.test]", inspector) + listener("b", "", "") + listener("c", "", ""))
}

func TestEnvoy(t *testing.T) {
	before := goroutines()
	var pid int
	t.Run("serves, also after a restart", func(t *testing.T) { pid = testEnvoyRestart(t) })
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d still exists: %v", pid, err)
	}
	eventually(t, func() error {
		for id, stack := range goroutines() {
			if _, old := before[id]; !old {
				return fmt.Errorf("leaked goroutine: %s", stack)
			}
		}
		return nil
	})
}

func testEnvoyRestart(t *testing.T) (pid int) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	ca := NewCA(t)
	a := ca.TLSBackend(t, "127.0.3.1:0", "a.test")
	b := TCPBackend(t, "127.0.3.2:0", "b")
	c := HTTPBackend(t, "127.0.3.3:0", "c")
	bootstrap := passthrough(TempDir(t), a.Addr(), b.Addr(), c.Addr())
	if err := ValidateEnvoy(ctx, bootstrap); err != nil {
		t.Error(err)
	}
	envoy := NewEnvoy(t, EnvoyConfig{Bootstrap: bootstrap})
	check := func() {
		t.Helper()
		listeners, err := envoy.Listeners(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Sorted(maps.Keys(listeners)); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Fatalf("listeners %q", got)
		}
		at := func(name string) string { return listeners[name][0].String() }

		conn, name, err := ca.DialTLS(ctx, at("a"), "a.test")
		if err != nil || name != "a.test" {
			t.Fatalf("a.test: %q, %v", name, err)
		}
		defer func() { _ = conn.Close() }()
		checkEcho(t, conn)
		if _, name, err := ca.DialTLS(ctx, at("a"), "other.test"); err == nil {
			t.Errorf("a connection for other.test reached %s", name)
		}
		if conn, name, err := NewCA(t).DialTLS(ctx, at("a"), "a.test"); err == nil {
			_ = conn.Close()
			t.Errorf("a client with another CA accepted the certificate of %s", name)
		}

		raw, err := new(net.Dialer).DialContext(ctx, "tcp", at("b"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = raw.Close() }()
		if name, err := Greeting(ctx, raw); err != nil || name != "b" {
			t.Errorf("b: %q, %v", name, err)
		}
		checkEcho(t, raw)

		checkHTTP(ctx, t, at("c"))
	}
	check()
	if got := a.Accepted(); got != 2 { // of the clients with either CA
		t.Errorf("a accepted %d connections, want 2", got)
	}
	stats, err := envoy.Stats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if stats["server.live"] != 1 || stats["cluster.a.upstream_cx_total"] != 2 {
		t.Errorf("server.live %d, cluster.a.upstream_cx_total %d", stats["server.live"], stats["cluster.a.upstream_cx_total"])
	}
	if _, err := envoy.Get(ctx, "/nothing"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("/nothing: %v", err)
	}

	first := envoy.PID()
	if err := envoy.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := envoy.PID(); got != 0 {
		t.Errorf("PID after Kill is %d", got)
	}
	if _, err := envoy.Get(ctx, "/ready"); err == nil {
		t.Error("/ready responds after Kill")
	}
	if err := envoy.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := envoy.Start(ctx); err == nil {
		t.Error("no error from starting it twice")
	}
	pid = envoy.PID()
	if pid == first || pid == 0 {
		t.Errorf("PID before the restart %d, after it %d", first, pid)
	}
	check()

	if _, err := envoy.Post(ctx, "/logging?level=warning"); err != nil {
		t.Error(err)
	}
	a.Close()
	b.Disconnect()
	if log, ok := strings.CutPrefix(envoy.Logs(), "== envoy\n"); !ok || strings.TrimSpace(log) == "" {
		t.Errorf("log is %q", envoy.Logs())
	}
	return pid
}

func checkEcho(t *testing.T, conn io.ReadWriter) {
	t.Helper()
	const message = "hello, backend"
	if _, err := io.WriteString(conn, message); err != nil {
		t.Error(err)
	}
	got := make([]byte, len(message))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != message {
		t.Errorf("got %q, %v", got, err)
	}
}

func checkHTTP(ctx context.Context, t *testing.T, at string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+at+"/path?query", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "console.apps.test"
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	const want = "c\nPOST\nconsole.apps.test\n/path?query\n"
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != want {
		t.Errorf("got %q, %v, want %q", body, err, want)
	}

	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: c\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	upgraded, err := http.ReadResponse(in, nil) //nolint:bodyclose // the response to an upgrade has no body
	if err != nil {
		t.Fatal(err)
	}
	if upgraded.StatusCode != http.StatusSwitchingProtocols || upgraded.Header.Get("Upgrade") != "websocket" {
		t.Errorf("upgrade: %s, %v", upgraded.Status, upgraded.Header)
	}
	if name, err := in.ReadString('\n'); err != nil || name != "c\n" {
		t.Errorf("upgraded: %q, %v", name, err)
	}
	checkEcho(t, struct {
		io.Reader
		io.Writer
	}{in, conn})
}

func TestEnvoyFails(t *testing.T) {
	admin := "admin: {address: {pipe: {path: " + TempDir(t) + "/admin.sock}}}\n"
	unready := admin + `
node: {id: lab, cluster: lab}
dynamic_resources:
  cds_config: {resource_api_version: V3, initial_fetch_timeout: 0s, api_config_source: {api_type: GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: xds}}]}}
static_resources: {clusters: [{name: xds, load_assignment: {cluster_name: xds, endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: /nonexistent}}}}]}]}}]}
`
	for name, test := range map[string]struct {
		bootstrap string
		timeout   time.Duration
		want      []string
	}{
		"invalid YAML":    {"}", startTimeout, []string{"starting Envoy: reading the bootstrap configuration"}},
		"no admin socket": {"{}", startTimeout, []string{"no admin.address.pipe.path"}},
		"unknown field":   {admin + "nonsense: {}\n", startTimeout, []string{"ended: exit status 1", "nonsense", "envoy.log"}},
		"never ready":     {unready, 5 * time.Second, []string{"waiting for Envoy to be ready", "context deadline exceeded", "503 Service Unavailable", "== envoy"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
			defer cancel()
			_, err := StartEnvoy(ctx, EnvoyConfig{Bootstrap: []byte(test.bootstrap), Logf: t.Logf})
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in error: %v", want, err)
				}
			}
		})
	}
	if err := ValidateEnvoy(t.Context(), []byte(admin+"nonsense: {}\n")); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("validation: got error %v", err)
	}
}
