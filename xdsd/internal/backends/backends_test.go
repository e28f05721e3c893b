package backends

import (
	"crypto/tls"
	_ "embed"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
)

// manifests are a proxy without an Infra, with backends, one of them without TLS.
//
//go:embed testdata/manifests.yaml
var manifests string

func slice(service string, port uint16, addresses ...string) string {
	return fmt.Sprintf(`
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: clusters, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: %[2]d, protocol: TCP}]
endpoints: [{addresses: [%[3]s], conditions: {ready: true}}]
`, service, port, strings.Join(addresses, "]}, {addresses: ["))
}

// openStore returns a running store that reads a folder.
func openStore(t *testing.T, dir string) *watch.Store {
	t.Helper()
	store, err := watch.Open(watch.Config{Manifests: dir, Proxies: true, Endpoints: true}, slog.New(slog.DiscardHandler))
	lab.Must(t, err)
	go store.Run(t.Context())
	return store
}

// TestProbesSendTheProxyHeader probes a backend that requires the header of the PROXY protocol.
func TestProbesSendTheProxyHeader(t *testing.T) {
	ca := lab.NewCA(t)
	config := &tls.Config{Certificates: []tls.Certificate{ca.Certificate(t, "web.example.com")}, MinVersion: tls.VersionTLS12}
	for version, want := range map[v1alpha1.ProxyProtocol]string{
		v1alpha1.ProxyProtocolV1: "PROXY TCP4 127.0.0.1 127.0.0.1 FROM TO\r\n",
		v1alpha1.ProxyProtocolV2: "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00",
	} {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		lab.Must(t, err)
		to := netip.MustParseAddrPort(l.Addr().String())
		done := make(chan struct{})
		go func() {
			defer close(done)
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			from := netip.MustParseAddrPort(conn.RemoteAddr().String())
			want := strings.NewReplacer("FROM", strconv.Itoa(int(from.Port())), "TO", strconv.Itoa(int(to.Port()))).Replace(want)
			header := make([]byte, len(want))
			_, _ = io.ReadFull(conn, header)
			if string(header) != want {
				t.Errorf("%s: header %q, want %q", version, header, want)
			}
			_ = tls.Server(conn, config).Handshake()
		}()
		b := ask(t.Context(), target{name: "web.example.com", address: to, proxyProtocol: version})
		if b.Error != "" || !b.Covered {
			t.Errorf("%s: %+v", version, b.Handshake)
		}
		<-done
		_ = l.Close()
	}
}

// TestBackendsAreProbed probes an endpoint with a certificate, one that hangs and, after the first round, one that does
// not listen.
func TestBackendsAreProbed(t *testing.T) {
	ca := lab.NewCA(t)
	web := ca.TLSBackend(t, "127.0.0.1:0", "web.example.com")
	port := web.Addr().Port()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.2:%d", port))
	lab.Must(t, err)
	defer func() { _ = silent.Close() }()
	dir := t.TempDir()
	write := func(addresses ...string) {
		text := manifests + slice("web", port, addresses...) + slice("plain", port, "127.0.0.1")
		lab.WriteFile(t, text, dir, "objects.yaml")
	}
	write("127.0.0.1", "127.0.0.2")
	p := &Prober{Store: openStore(t, dir), Proxy: "clusters/demo"}
	await := func(n int) {
		t.Helper()
		lab.Await(t, "the targets", func() string {
			var list []target
			if snapshot := p.Store.Snapshot(); snapshot != nil && snapshot.ProxyServer(p.Proxy) != nil {
				list, _ = p.targets(snapshot.ProxyServer(p.Proxy))
			}
			if len(list) == n {
				return ""
			}
			return fmt.Sprintf("they are %v, want %d", list, n)
		})
	}
	now := time.Now()
	check := func(want ...string) {
		t.Helper()
		p.round(t.Context(), now)
		var got []string
		for _, b := range p.Results() {
			got = append(got, fmt.Sprintf("%s %s connected=%t covered=%t timedOut=%t interface=%s", b.Name, b.Address.Addr(), b.Connected, b.Covered, b.TimedOut, b.Interface))
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	await(4)
	check(
		"web.example.com 127.0.0.1 connected=true covered=true timedOut=false interface=",
		"www.example.com 127.0.0.1 connected=true covered=false timedOut=false interface=",
		"web.example.com 127.0.0.2 connected=true covered=false timedOut=true interface=",
		"www.example.com 127.0.0.2 connected=true covered=false timedOut=true interface=",
	)
	if list := p.Problems(nil); len(list) != 1 || list[0].Code != problem.BackendCertificateInvalid {
		t.Errorf("after one round: %+v", list)
	}
	for range 2 {
		now = now.Add(tick)
		p.round(t.Context(), now)
	}
	var codes []string
	for _, found := range p.Problems(nil) {
		codes = append(codes, fmt.Sprintf("%s %s %s", found.Code, found.Severity, found.Object))
	}
	if want := []string{"BackendCertificateInvalid fail Service clusters/web", "BackendHandshakeFailing fail Service clusters/web"}; !slices.Equal(codes, want) {
		t.Errorf("problems are %q, want %q", codes, want)
	}
	write("127.0.0.3")
	await(2)
	check(
		"web.example.com 127.0.0.3 connected=false covered=false timedOut=false interface=lo",
		"www.example.com 127.0.0.3 connected=false covered=false timedOut=false interface=lo",
	)
}

// TestRoundsContinueWithTheOldestTargets covers a proxy with more targets than one round has.
func TestRoundsContinueWithTheOldestTargets(t *testing.T) {
	text := manifests + slice("web", 1, "127.0.0.1") + slice("plain", 1)
	const backend = "  - {name: web, hostname: web.example.com, alternateHostnames: [www.example.com], port: 443,"
	for i := range maxTargets { // with one target each
		text = strings.Replace(text, backend, fmt.Sprintf("  - {name: b%[1]d, hostname: b%[1]d.example.com, port: 443, targetService: web, "+
			"targetPort: 8443, targetNamespace: clusters, protocol: TLS}\n%[2]s", i, backend), 1)
	}
	dir := t.TempDir()
	lab.WriteFile(t, text, dir, "objects.yaml")
	p := &Prober{Store: openStore(t, dir), Proxy: "clusters/demo"}
	lab.Poll(t, "a snapshot", func() bool { return p.Store.Snapshot() != nil })
	for round, want := range []int{maxTargets, maxTargets + 2, maxTargets + 2} {
		p.round(t.Context(), time.Now())
		if n := len(p.Results()); n != want {
			t.Errorf("%d results after round %d, want %d", n, round+1, want)
		}
	}
	if len(p.empty) != 1 {
		t.Errorf("the backends without an endpoint are %v, want plain", p.empty)
	}
}
