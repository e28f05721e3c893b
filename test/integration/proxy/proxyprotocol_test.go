package proxy_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pires/go-proxyproto"

	"github.com/densityops/oooi/test/lab"
)

// router is a server that reads the header of the PROXY protocol and, like HAProxy, closes connections without one. Over
// TLS it sends its name and the client's address as a line, and echoes; over HTTP it returns them.
type router struct {
	connections atomic.Int32
	unexpected  atomic.Int32 // connections that begin with other data than a header
}

// buffered is a connection whose beginning in has read.
type buffered struct {
	net.Conn
	in *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

// newRouter starts a router. It serves HTTP on port 80, TLS on all others.
func (s *site) newRouter(t *testing.T, address string, names ...string) *router {
	t.Helper()
	r := &router{}
	config := &tls.Config{Certificates: []tls.Certificate{s.ca.Certificate(t, names...)}, MinVersion: tls.VersionTLS12}
	lab.ServeTCP(t, address, func(conn net.Conn) { r.serve(conn, config, strings.HasSuffix(address, ":80")) })
	return r
}

func (r *router) serve(conn net.Conn, config *tls.Config, plain bool) {
	in := bufio.NewReader(conn)
	header, err := proxyproto.Read(in)
	if err != nil && in.Buffered() > 0 {
		r.unexpected.Add(1)
	}
	r.connections.Add(1)
	if err != nil {
		return
	}
	from, _, _ := header.TCPAddrs() // none in a LOCAL header
	answer := fmt.Sprintf("router V%d %s\n", header.Version, from.AddrPort().Addr().Unmap())
	if !plain {
		c := tls.Server(&buffered{conn, in}, config)
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, answer); err == nil {
			_, _ = io.Copy(c, c)
		}
		return
	}
	for {
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer); err != nil {
			return
		}
	}
}

// TestRoutersSeeClientAddresses connects to apps, over TLS and HTTP, and to a backend that read the header of the
// PROXY protocol. Each change of its version affects new connections only.
func TestRoutersSeeClientAddresses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	shop, backend := s.in("shop.apps"), s.in("backend")
	s.start(t)
	streams := []*stream{
		s.startStream(t, 443, hello{sni: shop}, "apps"),
		s.startStream(t, 443, hello{sni: s.in("api")}, "kube-apiserver"),
		s.startStream(t, 8091, hello{sni: s.in("konnectivity")}, "konnectivity-server"),
	}
	// The router of controlPlane takes the header for the beginning of a TLS handshake.
	s.infra.apps = s.static(s.IP(40), ", proxyProtocol: V1")
	s.update(t, s.infraYAML())
	s.awaitClosed(t, "a router that does not expect the header", hello{sni: shop})
	if status, _ := request(t, s.at(3, 80), "GET", shop, "/"); status == http.StatusOK {
		t.Error("an HTTP router accepts the header as a request")
	}
	streams[0].end(t)

	apps := s.newRouter(t, s.at6(50, 443), shop)
	s.newRouter(t, s.at6(50, 80), shop)
	s.newRouter(t, s.at(21, 443), backend)
	s.update(t, service("apps-"+s.name, "backend", 443, netip.MustParseAddrPort(s.at(21, 443))))
	for _, version := range []string{"V1", "V2"} {
		s.infra.apps = s.static(s.net6+"50", ", proxyProtocol: "+version)
		s.update(t, s.infraYAML(), s.proxyServer(s.backend("backend", backend, "backend", ", healthCheck: {interval: 1s}, proxyProtocol: "+version)))
		for _, test := range []struct{ from, to string }{{s.IP(71), s.IP(3)}, {s.net6 + "71", s.net6 + "3"}} {
			want := fmt.Sprintf("router %s %s", version, test.from)
			for _, name := range []string{shop, backend} {
				lab.Await(t, name+" to see the client", func() string {
					conn, got, err := s.ca.Handshake(t.Context(), dialFrom(t, test.from, net.JoinHostPort(test.to, "443")), name)
					if err != nil || got != want {
						return fmt.Sprintf("sees %q, want %q: %v", got, want, err)
					}
					_ = conn.Close()
					return ""
				})
			}
			conn := dialFrom(t, test.from, net.JoinHostPort(test.to, "80"))
			for range 2 { // a new connection of the router for each request
				if _, body := exchange(t, conn, "GET", shop, "/"); body != want+"\n" {
					t.Errorf("port 80 of the router sees %q, want %q", body, want)
				}
			}
		}
	}
	// The health checks of Envoy succeed. They send nothing, even with proxy_protocol_config, because Envoy closes the
	// connection as soon as it is established.
	apps.connections.Store(0)
	lab.Poll(t, "a health check", func() bool { return apps.connections.Load() > 0 })
	if n := apps.unexpected.Load(); n > 0 {
		t.Errorf("%d connections began with other data than a header", n)
	}
	stats, err := s.envoy.Stats(t.Context())
	lab.Must(t, err)
	http := "cluster.infra/clusters/" + s.name + "/apps-http."
	if healthy, active := stats[http+"membership_healthy"], stats[http+"upstream_cx_active"]; healthy != 1 || active != 0 {
		t.Errorf("%s: %d healthy members, %d connections", http, healthy, active)
	}
	s.infra.apps = s.static(s.net6+"50", ", proxyProtocol: None")
	s.update(t, s.infraYAML())
	s.awaitClosed(t, "a router that requires the header", hello{sni: shop})
	for _, st := range streams[1:] {
		st.end(t)
	}
}
