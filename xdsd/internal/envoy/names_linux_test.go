package envoy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

// TestNamesThatRoutesMatch sends names, among them some that clients should not send, to an Envoy.
func TestNamesThatRoutesMatch(t *testing.T) {
	p := startProxy(t, 1)
	m := &model.ProxyServer{Ref: owner}
	upstream := func(name string) string {
		m.Upstreams = append(m.Upstreams, upstream(name, p.backend(t, name)))
		return name
	}
	routes := []model.Route{}
	for _, host := range []string{"a.example.com", "*.example.com", "*.sub.example.com", "b.sub.example.com"} {
		routes = append(routes, model.Route{Host: host, Upstream: upstream(host), Owner: owner})
	}
	m.Listeners = []*model.Listener{
		{Port: 443, Routes: routes, Default: upstream("default")}, {Port: 444, Routes: routes, Default: upstream("tcp"), Backends: true},
		{Port: 445, Routes: routes[:1], Backends: true}, {Port: 446, Routes: routes[:1], Default: routes[0].Upstream, Backends: true},
	}
	p.send(t, withEndpoints(t, m))
	for name, want := range map[string]string{
		"a.example.com": "a.example.com", "A.Example.COM": "a.example.com", "x.example.com": "*.example.com", "X.EXAMPLE.com": "*.example.com",
		"x.y.example.com": "*.example.com", "sub.example.com": "*.example.com", "x.sub.example.com": "*.sub.example.com",
		"b.sub.example.com": "b.sub.example.com", "x.b.sub.example.com": "*.sub.example.com", "xb.sub.example.com": "*.sub.example.com",
		"example.com": "", "xexample.com": "", "a.example.com.": "", "x.example.com.": "", "example.org": "", "example": "", ".": "", sentinelName: "sentinel", "": "",
	} {
		for port, other := range map[uint16]string{443: "default", 444: "tcp", 445: "", 446: routes[0].Upstream} {
			want := want
			switch {
			case port == 446: // does not inspect connections
				want = other
			case want == "sentinel" || port == 445 && want != "a.example.com":
				want = ""
			case want == "":
				want = other
			}
			if got := p.ask(t, port, hello(t, name)); got != want {
				t.Errorf("%q on port %d leads to %q, want %q", name, port, got, want)
			}
		}
	}
	for port, want := range map[uint16]string{443: "default", 444: "tcp", 445: "", 446: routes[0].Upstream} {
		if got := p.ask(t, port, []byte("hello?\n")); got != want {
			t.Errorf("without TLS, port %d leads to %q, want %q", port, got, want)
		}
	}
}

// TestClientsThatSendAndCloseAtOnce sends to a port whose only route is a TCP backend, and to one that inspects connections.
func TestClientsThatSendAndCloseAtOnce(t *testing.T) {
	p := startProxy(t, 1)
	var received atomic.Int32
	backend := p.serve(t, func(conn net.Conn) {
		if data, err := io.ReadAll(conn); err == nil && string(data) == "hello\n" {
			received.Add(1)
		}
	})
	resources := forward(t, map[int32]netip.AddrPort{601: backend})
	p.send(t, resources)
	const clients = 50
	for range clients {
		conn := p.dial(t, 601)
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	lab.Poll(t, "all data to arrive", func() bool { return received.Load() == clients })
}

// TestHostsThatMatch sends forms of one name in Host headers, and headers of several sizes.
func TestHostsThatMatch(t *testing.T) {
	p := startProxy(t, 1)
	m := &model.ProxyServer{Ref: owner}
	l := &model.Listener{Port: 80, HTTP: true}
	for _, host := range []string{"a.example.com", "*.apps.example.com"} {
		m.Upstreams = append(m.Upstreams, upstream(host, p.serve(t, func(conn net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(host), host)
			}
		})))
		l.Routes = append(l.Routes, model.Route{Host: host, Upstream: host, Owner: owner})
	}
	m.Listeners = []*model.Listener{l}
	p.send(t, withEndpoints(t, m))
	for _, tc := range []struct {
		host, want string
		filler     int
	}{
		{"a.example.com", "a.example.com", 0}, {"A.example.com", "a.example.com", 0}, {"a.example.com:80", "a.example.com", 0}, {"a.example.com:8080", "a.example.com", 0},
		{"a.example.com.", "a.example.com", 0}, {"a.example.com:", "a.example.com", 0}, {"a.example.com.:80", "a.example.com", 0}, {"a.example.com.:", "a.example.com", 0},
		{"x.apps.example.com", "*.apps.example.com", 0}, {"x.apps.example.com.", "*.apps.example.com", 0}, {"x.apps.example.com:", "*.apps.example.com", 0},
		{"x.apps.example.com.:443", "*.apps.example.com", 0},
		{"a.example.com..", "404", 0}, {"b.example.com", "404", 0}, {"apps.example.com.", "404", 0}, {"a.example.com,b", "404", 0},
		{"a.example.com", "a.example.com", 30 << 10}, {"a.example.com", "431", 33 << 10},
	} {
		request := fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nX: %s\r\n\r\n", tc.host, strings.Repeat("x", tc.filler))
		status, body, _ := strings.Cut(p.ask(t, 80, []byte(request)), "\r\n")
		if !strings.Contains(status, tc.want) && (!strings.Contains(status, " 200 ") || !strings.HasSuffix(body, "\r\n\r\n"+tc.want)) {
			t.Errorf("host %q with %d bytes: %q %q, want %s", tc.host, tc.filler, status, body, tc.want)
		}
	}
}

// backend starts a server in the proxy's network that sends its name to clients that have sent something.
func (p *proxy) backend(t *testing.T, name string) netip.AddrPort {
	t.Helper()
	return p.serve(t, func(conn net.Conn) {
		if _, err := conn.Read(make([]byte, 4096)); err == nil {
			_, _ = io.WriteString(conn, name)
		}
	})
}

// ask sends the bytes to a port of Envoy and returns the response; empty if the connection is closed without one.
func (p *proxy) ask(t *testing.T, port uint16, data []byte) string {
	t.Helper()
	conn := p.dial(t, port)
	defer func() { _ = conn.Close() }()
	lab.Must(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	if _, err := conn.Write(data); err != nil {
		t.Fatal(err)
	}
	response, err := io.ReadAll(conn)
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal(err)
	}
	return string(response) // after a reset, what was received before
}

// hello returns a ClientHello with any server name, even one that Go's client does not send; empty for none.
func hello(t *testing.T, name string) []byte {
	t.Helper()
	placeholder := strings.Repeat("a", len(name))
	data := lab.ClientHello(t, placeholder)
	if name == "" {
		return data
	}
	prefix := []byte{0, byte(len(name) >> 8), byte(len(name))} // of a host_name in the extension (RFC 6066)
	return bytes.Replace(data, append(prefix, placeholder...), append(slices.Clip(prefix), name...), 1)
}
