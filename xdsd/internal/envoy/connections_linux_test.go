package envoy

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/message"
)

// backendPort is the port of the only backend of onlyUpstream.
const backendPort = 601

// onlyUpstream returns a proxy that forwards all connections to backendPort to an upstream.
func onlyUpstream(t *testing.T, u *model.Upstream) ads.Resources {
	t.Helper()
	u.Owner, u.FromVLAN, u.ConnectTimeout, u.IdleTimeout = owner, true, time.Minute, time.Hour
	return withEndpoints(t, &model.ProxyServer{Ref: owner, Upstreams: []*model.Upstream{u}, Listeners: []*model.Listener{{
		Port: backendPort, Backends: true, Default: u.Name, Routes: []model.Route{{Host: "logs.example.com", Upstream: u.Name, Owner: owner, Plain: true}},
	}}})
}

// stat returns a stat of a cluster.
func (p *proxy) stat(t *testing.T, cluster, name string) int {
	t.Helper()
	stats, err := p.envoy.Stats(t.Context())
	lab.Must(t, err)
	return int(stats["cluster."+cluster+"."+name])
}

// closed is an address in Envoy's network at which no server listens.
var closed = netip.MustParseAddrPort("127.0.0.1:1")

func TestConnectAttempts(t *testing.T) {
	p := startProxy(t, 1)
	for _, tc := range []struct {
		name  string
		retry *model.ConnectRetry
		want  int
	}{
		{"default", nil, 3},
		{"none", &model.ConnectRetry{Attempts: 0, Backoff: time.Millisecond}, 1},
		{"five", &model.ConnectRetry{Attempts: 5, Backoff: time.Millisecond}, 6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p.send(t, onlyUpstream(t, &model.Upstream{Name: tc.name, Addresses: []netip.AddrPort{closed}, Retry: tc.retry}))
			conn := p.dial(t, backendPort)
			defer func() { _ = conn.Close() }()
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Fatal("Envoy sent data")
			}
			if got := p.stat(t, tc.name, "upstream_cx_connect_fail"); got != tc.want {
				t.Errorf("%d attempts, want %d", got, tc.want)
			}
		})
	}
}

func TestEjection(t *testing.T) {
	p := startProxy(t, 1)
	echo := p.serve(t, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
	for _, tc := range []struct {
		name    string
		outlier *model.OutlierDetection
		want    int // healthy endpoints of three, two of which fail
	}{
		{"default", nil, 2},
		{"none", &model.OutlierDetection{Failures: 0, Time: time.Hour, MaxPercent: 99}, 3},
		{"most", &model.OutlierDetection{Failures: 1, Time: time.Hour, MaxPercent: 99}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p.send(t, onlyUpstream(t, &model.Upstream{
				Name: tc.name, Addresses: []netip.AddrPort{closed, netip.MustParseAddrPort("127.0.0.2:1"), echo},
				Retry: &model.ConnectRetry{Attempts: 0, Backoff: time.Millisecond}, Outlier: tc.outlier,
			}))
			fewest := 3
			for range 60 {
				if conn, err := p.echo(t, backendPort); err == nil {
					_ = conn.Close()
				}
				fewest = min(fewest, p.stat(t, tc.name, "membership_healthy"))
			}
			if fewest != tc.want {
				t.Errorf("%d endpoints are healthy, want %d", fewest, tc.want)
			}
		})
	}
}

// TestPendingConnections connects to an endpoint that does not answer.
func TestPendingConnections(t *testing.T) {
	p := startProxy(t, 2)
	p.network.Run(t, "sh", "-c", "ip link add void type veth peer name peer && ip link set peer up && ip link set void up && ip addr add 192.0.2.1/24 dev void && ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev void")
	const name, limit, clients = "void", 3, 10
	p.send(t, onlyUpstream(t, &model.Upstream{Name: name, Addresses: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.9:443")}, MaxPending: limit}))
	refused := make(chan struct{}, clients)
	for range clients {
		conn := p.dial(t, backendPort)
		t.Cleanup(func() { _ = conn.Close() })
		go func() {
			_, _ = conn.Read(make([]byte, 1)) // returns when Envoy closes the connection
			refused <- struct{}{}
		}()
	}
	lab.Poll(t, "connections to be refused", func() bool { return len(refused) >= clients-limit })
	if n := len(refused); n != clients-limit {
		t.Errorf("%d of %d connections were refused, want %d", n, clients, clients-limit)
	}
	if n := p.stat(t, name, message.PendingOverflowStat); n < clients-limit {
		t.Errorf("%s is %d", message.PendingOverflowStat, n)
	}
}
