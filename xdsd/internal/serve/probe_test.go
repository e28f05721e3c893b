package serve

import (
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

// works are not broken upstreams.
func works() map[string]string { return nil }

// TestProbeDoesNotDependOnApps probes listeners with apps routes, whose server has a certificate for a control-plane
// name only.
func TestProbeDoesNotDependOnApps(t *testing.T) {
	ca := lab.NewCA(t)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	lab.Must(t, err)
	var mu sync.Mutex
	var requested []string // SNI of each connection
	var done sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		done.Wait()
	})
	certificate := ca.Certificate(t, "oauth.demo.example.com")
	done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			server := tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
				mu.Lock()
				defer mu.Unlock()
				requested = append(requested, h.ServerName)
				return &certificate, nil
			}})
			_ = server.HandshakeContext(t.Context())
			_ = server.Close()
		}
	})
	apps := model.Route{Host: "*.apps.demo.example.com", Upstream: "infra/clusters/demo/apps"}
	oauth := model.Route{Host: "oauth.demo.example.com", Upstream: "clusters-demo/oauth-openshift/6443"}
	port := int32(netip.MustParseAddrPort(l.Addr().String()).Port())
	egress := model.Route{Host: "*", Upstream: "egress/infra/clusters/demo"}
	upstreams := []*model.Upstream{{Name: apps.Upstream, FromVLAN: true}, {Name: oauth.Upstream}, {Name: egress.Upstream, Forward: true}}
	at := netip.MustParseAddr("127.0.0.1")

	both := Probe(t.Context(), &model.ProxyServer{Upstreams: upstreams, Listeners: []*model.Listener{{Port: port, Routes: []model.Route{apps, oauth}}}}, at, works)
	if len(both) != 1 || !both[0].Ready || !slices.Equal(requested, []string{"oauth.demo.example.com"}) {
		t.Errorf("apps and OAuth routes: %+v, requested names %v", both, requested)
	}
	for _, route := range []model.Route{apps, egress} {
		only := Probe(t.Context(), &model.ProxyServer{Upstreams: upstreams, Listeners: []*model.Listener{{Port: port, Routes: []model.Route{route}}}}, at, works)
		if len(only) != 1 || !only[0].Ready {
			t.Errorf("only a route to %s: %+v", route.Upstream, only)
		}
	}
	if len(requested) != 1 {
		t.Errorf("names outside or apps are probed: %v", requested)
	}
	lab.Must(t, l.Close())
	closed := Probe(t.Context(), &model.ProxyServer{Upstreams: upstreams, Listeners: []*model.Listener{{Port: port, HTTP: true, Routes: []model.Route{apps}}}}, at, works)
	if len(closed) != 1 || closed[0].Ready {
		t.Errorf("closed port: %+v", closed)
	}
}

// TestProbeFailsForTheSameReason probes a port that resets all connections. The reason is part of the status, which
// would change with the port of each probe.
func TestProbeFailsForTheSameReason(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	lab.Must(t, err)
	var done sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		done.Wait()
	})
	done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // reset
			}
			_ = conn.Close()
		}
	})
	route := model.Route{Host: "oauth.demo.example.com", Upstream: "clusters-demo/oauth-openshift/6443"}
	server := &model.ProxyServer{
		Upstreams: []*model.Upstream{{Name: route.Upstream}},
		Listeners: []*model.Listener{{Port: int32(netip.MustParseAddrPort(l.Addr().String()).Port()), Routes: []model.Route{route}}},
	}
	first := Probe(t.Context(), server, netip.MustParseAddr("127.0.0.1"), works)
	second := Probe(t.Context(), server, netip.MustParseAddr("127.0.0.1"), works)
	if first[0].Ready || first[0].Reason != second[0].Reason || !strings.HasSuffix(first[0].Reason, "connection reset by peer") {
		t.Errorf("the reasons are %q and %q", first[0].Reason, second[0].Reason)
	}
	explained := Probe(t.Context(), server, netip.MustParseAddr("127.0.0.1"), func() map[string]string {
		return map[string]string{route.Upstream: "no endpoint", "another": "x"}
	})
	if want := "backend " + route.Upstream + " for " + route.Host + ": no endpoint"; explained[0].Reason != want {
		t.Errorf("the reason is %q, want %q", explained[0].Reason, want)
	}
}

// TestProbeUsesBackendProtocol probes a backend without TLS, by a route with TLS and one without.
func TestProbeUsesBackendProtocol(t *testing.T) {
	plain := lab.TCPBackend(t, "127.0.0.1:0", "plain")
	for _, tc := range []struct {
		name  string
		route model.Route
		ready bool
	}{
		{"TCP", model.Route{Host: "db.example.com", Upstream: "proxy/clusters/demo/db", Plain: true}, true},
		{"TLS", model.Route{Host: "db.example.com", Upstream: "proxy/clusters/demo/db"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &model.ProxyServer{
				Upstreams: []*model.Upstream{{Name: tc.route.Upstream}},
				Listeners: []*model.Listener{{Port: int32(plain.Addr().Port()), Routes: []model.Route{tc.route}}},
			}
			if got := Probe(t.Context(), p, plain.Addr().Addr(), works); len(got) != 1 || got[0].Ready != tc.ready {
				t.Errorf("probe returns %+v, want ready %t", got, tc.ready)
			}
		})
	}
}

// TestBackendsWithoutServiceAreReady probes ports of each protocol whose only backend has no Service, and a port of the
// control plane without one: only that is not ready.
func TestBackendsWithoutServiceAreReady(t *testing.T) {
	silent := lab.TCPBackend(t, "127.0.0.1:0", "Envoy")
	socket, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	lab.Must(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	tcp, udp := int32(silent.Addr().Port()), int32(netip.MustParseAddrPort(socket.LocalAddr().String()).Port())
	gone, web := "proxy/clusters/demo/gone", "proxy/clusters/demo/web"
	route := model.Route{Host: "a.example.com", Upstream: gone}
	plain, mixed, api := route, route, route
	plain.Plain = true
	mixed.Rules = []model.HTTPRule{{Path: "/", Backends: []model.HTTPBackend{{Upstream: gone, Weight: 1}, {Upstream: web, Weight: 1}}}}
	api.Upstream = "clusters-demo/kube-apiserver/6443"
	for _, tc := range []struct {
		name     string
		listener model.Listener
		ready    bool
	}{
		{"TLS", model.Listener{Port: tcp, Routes: []model.Route{route}}, true},
		{"TCP", model.Listener{Port: tcp, Routes: []model.Route{plain}, Default: gone, Backends: true}, true},
		{"HTTP", model.Listener{Port: tcp, HTTP: true, Routes: []model.Route{route}}, true},
		{"HTTP with another Service", model.Listener{Port: tcp, HTTP: true, Routes: []model.Route{mixed}}, true},
		{"UDP", model.Listener{Port: udp, UDP: true, Routes: []model.Route{route}}, true},
		{"TCP, no socket", model.Listener{Port: udp, Routes: []model.Route{route}}, false},
		{"UDP, no socket", model.Listener{Port: tcp, UDP: true, Routes: []model.Route{route}}, false},
		{"control plane", model.Listener{Port: tcp, Routes: []model.Route{api, route}}, false},
		{"default of the control plane", model.Listener{Port: tcp, Routes: []model.Route{route}, Default: api.Upstream}, false},
	} {
		p := &model.ProxyServer{
			Listeners: []*model.Listener{&tc.listener},
			Upstreams: []*model.Upstream{{Name: api.Upstream, Missing: "no"}, {Name: gone, Backend: "gone", Missing: "no"}, {Name: web, Backend: "web"}},
		}
		if got := Probe(t.Context(), p, netip.MustParseAddr("127.0.0.1"), works); len(got) != 1 || got[0].Ready != tc.ready {
			t.Errorf("%s: %+v, want ready %t", tc.name, got, tc.ready)
		}
	}
}
