package proxy_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// header is the result of reading a header of the PROXY protocol.
type header struct {
	version string         // "V1", "V2", or "None" if the connection begins with something else
	from    netip.AddrPort // the client; zero if the header has none
	err     error          // of a connection that ended before its header
}

// router is a server that reads the header of the PROXY protocol and, like HAProxy, closes connections without one. Over
// TLS it sends its name and the client's address as a line, and echoes; over HTTP it answers with them.
type router struct {
	mu      sync.Mutex
	headers []header
}

// newRouter starts a router. It serves HTTP on port 80, TLS on all others.
func (s *site) newRouter(t *testing.T, address string, names ...string) *router {
	t.Helper()
	r := &router{}
	config := &tls.Config{Certificates: []tls.Certificate{s.ca.Certificate(t, names...)}, MinVersion: tls.VersionTLS12}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(conn, config, strings.HasSuffix(address, ":80"))
		}
	}()
	return r
}

func (r *router) serve(conn net.Conn, config *tls.Config, plain bool) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	h := readHeader(in)
	r.mu.Lock()
	r.headers = append(r.headers, h)
	r.mu.Unlock()
	if h.err != nil || h.version == "None" {
		return
	}
	answer := fmt.Sprintf("router %s %s\n", h.version, h.from.Addr())
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

// seen returns the headers since the last call.
func (r *router) seen() []header {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.headers
	r.headers = nil
	return list
}

// readHeader reads a header of the PROXY protocol, version 1 or 2.
func readHeader(in *bufio.Reader) header {
	if first, err := in.Peek(6); err != nil {
		return header{err: err}
	} else if string(first) == "PROXY " {
		line, err := in.ReadString('\n')
		fields := strings.Fields(line) // PROXY TCP4 FROM TO PORT PORT
		if err != nil || len(fields) != 6 {
			return header{version: "V1", err: fmt.Errorf("%q: %w", line, err)}
		}
		from, err := netip.ParseAddrPort(net.JoinHostPort(fields[2], fields[4]))
		return header{"V1", from, err}
	} else if string(first) != "\r\n\r\n\x00\r" {
		return header{version: "None"}
	}
	var fixed [16]byte
	if _, err := io.ReadFull(in, fixed[:]); err != nil {
		return header{version: "V2", err: err}
	}
	rest := make([]byte, binary.BigEndian.Uint16(fixed[14:]))
	if _, err := io.ReadFull(in, rest); err != nil {
		return header{version: "V2", err: err}
	}
	size := map[byte]int{0x11: net.IPv4len, 0x21: net.IPv6len}[fixed[13]]
	if fixed[12] == 0x20 || size == 0 { // LOCAL
		return header{version: "V2"}
	}
	from, _ := netip.AddrFromSlice(rest[:size])
	return header{"V2", netip.AddrPortFrom(from, binary.BigEndian.Uint16(rest[2*size:])), nil}
}

// TestRoutersSeeTheAddressOfTheClient connects to apps, over TLS and HTTP, and to a backend that read the header of the
// PROXY protocol.
func TestRoutersSeeTheAddressOfTheClient(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"V1", "V2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.controlPlane(t)
			in := func(label string) string { return label + "." + s.domain }
			apps := s.newRouter(t, s.at6(50, 443), in("*.apps"))
			s.newRouter(t, s.at6(50, 80), in("*.apps"))
			s.newRouter(t, s.at(21, 443), in("backend"))
			s.infra.apps = fmt.Sprintf("{enabled: true, source: Static, addresses: [%q], proxyProtocol: %s}", s.net6+"50", version)
			s.update(t, service("apps-"+s.name, "backend", 443, netip.MustParseAddrPort(s.at(21, 443)))+
				s.infraYAML()+s.proxyServer(s.backend("backend", in("backend"), "backend", ", healthCheck: {interval: 1s}, proxyProtocol: "+version)))
			s.start(t)

			for _, test := range []struct{ from, to string }{{s.ip(71), s.ip(3)}, {s.net6 + "71", s.net6 + "3"}} {
				want := fmt.Sprintf("router %s %s", version, test.from)
				for _, name := range []string{in("shop.apps"), in("backend")} {
					if got, err := s.greetingFrom(t, test.from, net.JoinHostPort(test.to, "443"), name); err != nil || got != want {
						t.Errorf("%s sees %q, want %q: %v", name, got, want, err)
					}
				}
				for range 2 { // a new connection of the router for each request
					conn := dialFrom(t, test.from, net.JoinHostPort(test.to, "80"))
					body := getHost(t, conn, in("shop.apps"))
					if again := getHost(t, conn, in("shop.apps")); body != want+"\n" || again != body {
						t.Errorf("port 80 of the router sees %q, then %q, want %q", body, again, want)
					}
					_ = conn.Close()
				}
			}
			// The health checks of Envoy succeed. They send nothing, even with proxy_protocol_config, because Envoy closes the
			// connection as soon as it is established.
			apps.seen()
			time.Sleep(6 * time.Second) // more than the interval of the health check
			headers := apps.seen()
			if len(headers) == 0 {
				t.Error("the router got no health check")
			}
			for _, h := range headers {
				t.Logf("health check: %+v", h)
				if h.version == "None" {
					t.Errorf("a health check begins with other data than a header")
				}
			}
			stats, err := s.envoy.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			http := "cluster.infra/clusters/" + s.name + "/apps-http."
			for stat, want := range map[string]uint64{
				"membership_healthy": 1, "upstream_cx_total": 8, "upstream_cx_active": 0,
			} {
				if got, ok := stats[http+stat]; !ok || got != want {
					t.Errorf("%s%s is %d, want %d", http, stat, got, want)
				}
			}
		})
	}
}

// TestProxyProtocolChangesNewConnectionsOnly enables the PROXY protocol while connections are open: to the apps, to the
// same address, and to other routes. A router that does not expect the header, or does not get it, fails.
func TestProxyProtocolChangesNewConnectionsOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	shop := "shop.apps." + s.domain
	s.start(t)
	streams := []*stream{
		s.startStream(t, 443, hello{sni: shop}, "apps"),
		s.startStream(t, 443, hello{sni: "api." + s.domain}, "kube-apiserver"),
		s.startStream(t, 8091, hello{sni: "konnectivity." + s.domain}, "konnectivity-server"),
	}
	// The router of controlPlane takes the header for the beginning of a TLS handshake.
	s.infra.apps = fmt.Sprintf("{enabled: true, source: Static, addresses: [%s], proxyProtocol: V1}", s.ip(40))
	s.update(t, s.infraYAML())
	lab.Poll(t, "a router that does not expect the header to fail", func() bool {
		_, err := s.reach(t, 443, hello{sni: shop})
		return err != nil
	})
	if status, _ := request(t, s.at(3, 80), shop, ""); status == http.StatusOK {
		t.Error("an HTTP router accepts the header as a request")
	}
	streams[0].end(t)
	s.newRouter(t, s.at(50, 443), shop)
	s.infra.apps = fmt.Sprintf("{enabled: true, source: Static, addresses: [%s], proxyProtocol: V2}", s.ip(50))
	s.update(t, s.infraYAML())
	want := "router V2 " + s.ip(71)
	lab.Poll(t, "the router to see the client", func() bool {
		got, err := s.greetingFrom(t, s.ip(71), s.at(3, 443), shop)
		return err == nil && got == want
	})
	s.infra.apps = fmt.Sprintf("{enabled: true, source: Static, addresses: [%s], proxyProtocol: None}", s.ip(50))
	s.update(t, s.infraYAML())
	lab.Poll(t, "a router that requires the header to fail", func() bool {
		_, err := s.reach(t, 443, hello{sni: shop})
		return err != nil
	})
	for _, st := range streams[1:] {
		st.end(t)
	}
}

// dialFrom connects from an address of the VLAN.
func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: dialTimeout}
	conn, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// greetingFrom connects over TLS from an address of the VLAN, and returns the first line that the server sends.
func (s *site) greetingFrom(t *testing.T, from, to, name string) (string, error) {
	t.Helper()
	conn, line, err := s.ca.Handshake(t.Context(), dialFrom(t, from, to), name)
	if err != nil {
		return "", err
	}
	return line, conn.Close()
}

// getHost sends an HTTP request on a connection and returns the body of the response.
func getHost(t *testing.T, conn net.Conn, host string) string {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
