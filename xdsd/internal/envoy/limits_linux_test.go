package envoy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
	"github.com/densityops/oooi/xdsd/internal/message"
)

// TestConnectionLimitsHold opens as many connections to port 443 as Envoy keeps, then opens and closes many to the
// reserved ports, and repeats that: no connection frees a slot that another one took. At last clients use up the
// connections of all ports. The reserved ports must accept until then, and Envoy must survive.
func TestConnectionLimitsHold(t *testing.T) {
	var own unix.Rlimit
	lab.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &own))
	for _, descriptors := range lab.Length([]uint64{1024}, []uint64{1024, min(own.Max, 20_000)}) {
		t.Run(fmt.Sprint(descriptors, " file descriptors"), func(t *testing.T) {
			p := startLimited(t, 4, bootstrap.Config{Descriptors: descriptors})
			pid := p.envoy.PID()
			echo := p.serve(t, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
			p.send(t, forward(t, map[int32]netip.AddrPort{443: echo, 6443: echo, 8091: echo}))
			total := p.limit(t, message.MaxConnectionsKey)
			shares := map[uint16]int64{443: total}
			for _, r := range message.Reserved {
				shares[uint16(r.Port)] = r.Of(total)
				shares[443] -= r.Of(total)
			}
			for round := range 3 {
				kept := p.openUntilRefused(t, 443)
				if round == 0 && kept != shares[443] || round > 0 && kept != 0 {
					t.Errorf("round %d: port 443 keeps %d more connections, its share is %d", round, kept, shares[443])
				}
				for _, port := range []uint16{6443, 8091} {
					for i := range 500 {
						conn, err := p.echo(t, port)
						if err != nil {
							t.Fatalf("round %d, connection %d to port %d: %v", round, i, port, err)
						}
						_ = conn.Close()
					}
				}
				t.Logf("round %d: %d descriptors", round, p.descriptors(t))
			}
			for _, port := range []uint16{6443, 8091} {
				if kept := p.openUntilRefused(t, port); kept != shares[port] {
					t.Errorf("port %d keeps %d connections, its share is %d", port, kept, shares[port])
				}
			}
			checkMetrics(t, p)
			for _, port := range []uint16{bootstrap.DefaultMetricsPort, bootstrap.DefaultHealthPort} {
				for range 300 { // more than each listener accepts
					conn := p.dial(t, port)
					t.Cleanup(func() { _ = conn.Close() })
				}
			}
			p.envoy.AwaitReady(t)
			if p.envoy.PID() != pid {
				t.Error("Envoy was restarted")
			}
			t.Logf("all ports full: %d descriptors", p.descriptors(t))
		})
	}
}

// checkMetrics checks that the metrics listener serves the series that docs/reference/metrics.md names, and only those, although the
// connections of all other ports are used up.
func checkMetrics(t *testing.T, p *proxy) {
	t.Helper()
	request := func(path string) string {
		return p.ask(t, bootstrap.DefaultMetricsPort, []byte("GET "+path+" HTTP/1.1\r\nHost: envoy\r\nConnection: close\r\n\r\n"))
	}
	if text := request("/ready"); !strings.HasPrefix(text, "HTTP/1.1 200 OK") {
		t.Errorf("/ready at the limit: %s", text)
	}
	text := request("/stats/prometheus")
	for _, want := range []string{
		`envoy_cluster_upstream_cx_active\{envoy_cluster_name="backend-443"\} [1-9]\d*`, `envoy_cluster_upstream_cx_total\{envoy_cluster_name="backend-443"\} [1-9]\d*`,
		`envoy_cluster_membership_healthy\{envoy_cluster_name="backend-443"\} 1`, `envoy_control_plane_connected_state\{\} 1`,
		`envoy_listener_manager_total_listeners_active\{\} 5`, `envoy_cluster_manager_active_clusters\{\} \d+`, `envoy_server_live\{\} 1`,
		`envoy_listener_downstream_cx_active\{envoy_listener_address="[^"]+"\} [1-9]\d*`, `envoy_listener_downstream_cx_total\{.*\} [1-9]\d*`,
		`envoy_listener_downstream_global_cx_overflow\{.*\} [1-9]\d*`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `\r?$`).MatchString(text) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for _, without := range []string{"envoy_cluster_upstream_rq", "envoy_cluster_upstream_cx_length", "envoy_http_downstream_rq", "envoy_tcp_downstream_cx_no_route"} {
		if strings.Contains(text, "\n"+without) {
			t.Errorf("%s is in\n%s", without, text)
		}
	}
}

// TestConnectionsLeaveHeap opens connections, each of which uses as much memory as a client can make it use. Envoy must
// not reach the limit of its heap, at which it accepts no connections to most ports.
func TestConnectionsLeaveHeap(t *testing.T) {
	for name, tc := range map[string]struct {
		port uint16
		size int // of what a client sends, in bytes
		text string
	}{
		"unfinished headers":                   {80, 31 << 10, "GET / HTTP/1.1\r\nHost: a\r\nX: "},
		"unfinished headers that are too long": {80, 55 << 10, "GET / HTTP/1.1\r\nHost: a\r\nX: "},
		"unfinished ClientHellos":              {443, 16 << 10, "\x16\x03\x01\x3f\xff\x01\x00\x3f\xfb\x03\x03"},
		"clients that do not read":             {444, 7, "hello?\n"},
		"a backend that does not read":         {445, 1 << 20, "hello?\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startLimited(t, 4, bootstrap.Config{MaxHeapBytes: 160 << 20})
			// Otherwise the kernel has megabytes for each connection.
			p.network.Run(t, "sh", "-c", "for f in tcp_rmem tcp_wmem; do echo 4096 8192 8192 >/proc/sys/net/ipv4/$f; done")
			echo := p.serve(t, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
			flood := p.serve(t, func(conn net.Conn) {
				for err := error(nil); err == nil; {
					_, err = conn.Write(make([]byte, 64<<10))
				}
			})
			mute := p.serve(t, func(net.Conn) { <-t.Context().Done() })
			p.send(t, forward(t, map[int32]netip.AddrPort{80: echo, 443: echo, 444: flood, 445: mute, 6443: echo}))
			before, data := p.heap(t), append([]byte(tc.text), bytes.Repeat([]byte("x"), tc.size-len(tc.text))...)
			for range 4000 {
				conn := p.dial(t, tc.port)
				t.Cleanup(func() { _ = conn.Close() })
				go func() { _, _ = conn.Write(data) }() // until the connection is closed
			}
			heap := 0
			lab.Poll(t, "Envoy to have read the data", func() bool {
				before := heap
				heap = p.heap(t)
				return heap <= before
			})
			stats, err := p.envoy.Stats(t.Context())
			lab.Must(t, err)
			t.Logf("%d bytes of heap", heap-before)
			if stats["overload.envoy.overload_actions.stop_accepting_connections.active"] != 0 {
				t.Error("Envoy accepts no connections")
			}
			conn, err := p.echo(t, 6443)
			if err != nil {
				t.Fatalf("port 6443: %v", err)
			}
			_ = conn.Close()
		})
	}
}

// forward returns a proxy that forwards all connections to some ports to the backends of these ports. Port 80 is of HTTP, and
// port 601 has only a TCP backend of the ProxyServer; the others have a default of an Infra.
func forward(t *testing.T, backends map[int32]netip.AddrPort) ads.Resources {
	t.Helper()
	m := &model.ProxyServer{Ref: owner}
	for port, backend := range backends {
		u := upstream(fmt.Sprint("backend-", port), backend)
		m.Upstreams = append(m.Upstreams, u)
		l := &model.Listener{Port: port, Default: u.Name}
		switch port {
		case 80:
			l = &model.Listener{Port: port, HTTP: true, Routes: []model.Route{{Host: "*", Upstream: u.Name, Owner: owner}}}
		case 601:
			l.Backends, l.Routes = true, []model.Route{{Host: "logs.example.com", Upstream: u.Name, Owner: owner, Plain: true}}
		}
		m.Listeners = append(m.Listeners, l)
	}
	return withEndpoints(t, m)
}

// owner is the ProxyServer of startProxy's Envoy.
var owner = model.Ref{Kind: "ProxyServer", Namespace: proxyName.Namespace, Name: proxyName.Name}

// upstream returns a model.Upstream at addresses.
func upstream(name string, addresses ...netip.AddrPort) *model.Upstream {
	return &model.Upstream{Name: name, Owner: owner, FromVLAN: true, Addresses: addresses, ConnectTimeout: 5 * time.Second, IdleTimeout: time.Hour}
}

// withEndpoints translates a proxy whose upstreams have addresses.
func withEndpoints(t *testing.T, p *model.ProxyServer) ads.Resources {
	t.Helper()
	resources := mustTranslate(t, p, Options{})
	for _, u := range p.Upstreams {
		resources.Endpoints = append(resources.Endpoints, Endpoints(u, nil))
	}
	return resources
}

// serve starts a server in Envoy's network that handles each connection and closes it.
func (p *proxy) serve(t *testing.T, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	var l net.Listener
	if err := p.network.Do(func() (err error) {
		l, err = new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			go func() {
				handle(conn)
				_ = conn.Close()
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

// echo opens a connection to a port and waits until the backend answers.
func (p *proxy) echo(t *testing.T, port uint16) (net.Conn, error) {
	t.Helper()
	conn, err := p.network.Dial(t.Context(), netip.Addr{}, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
	if err != nil {
		return nil, err
	}
	if err = conn.SetDeadline(time.Now().Add(time.Minute)); err == nil {
		text := []byte("hello?\n") // enough to distinguish it from TLS
		if _, err = conn.Write(text); err == nil {
			_, err = io.ReadFull(conn, text)
		}
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("echo: %w", err)
	}
	return conn, nil
}

// openUntilRefused opens connections to a port, which stay open until the test ends, and returns their number. It gives
// up after 20 refused connections in a row.
func (p *proxy) openUntilRefused(t *testing.T, port uint16) (kept int64) {
	t.Helper()
	for refused := 0; refused < 20; {
		conn, err := p.echo(t, port)
		if err != nil {
			refused++
			continue
		}
		refused = 0
		kept++
		t.Cleanup(func() { _ = conn.Close() })
	}
	return kept
}

// limit returns the value of a key of Envoy's runtime.
func (p *proxy) limit(t *testing.T, key string) int64 {
	t.Helper()
	text, err := p.envoy.Get(t.Context(), "/runtime")
	lab.Must(t, err)
	var all struct {
		Entries map[string]struct {
			Value float64 `json:"final_value,string"`
		} `json:"entries"`
	}
	lab.Must(t, json.Unmarshal(text, &all))
	return int64(all.Entries[key].Value)
}

// descriptors returns the number of Envoy's open file descriptors.
func (p *proxy) descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.envoy.PID()))
	lab.Must(t, err)
	return len(entries)
}
