package envoy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/model"
)

// TestNamesThatRoutesMatch sends names, among them some that clients should not send, to an Envoy.
func TestNamesThatRoutesMatch(t *testing.T) {
	p := startProxy(t, 1)
	owner := model.Ref{Kind: "ProxyServer", Namespace: proxyName.Namespace, Name: proxyName.Name}
	m := &model.ProxyServer{Ref: owner}
	upstream := func(name string) string {
		m.Upstreams = append(m.Upstreams, &model.Upstream{
			Name: name, Owner: owner, FromVLAN: true, Addresses: []netip.AddrPort{p.backend(t, name)}, ConnectTimeout: 5 * time.Second, IdleTimeout: time.Hour,
		})
		return name
	}
	routes := []model.Route{}
	for _, host := range []string{"a.example.com", "*.example.com", "*.sub.example.com", "b.sub.example.com"} {
		routes = append(routes, model.Route{Host: host, Upstream: upstream(host), Owner: owner})
	}
	m.Listeners = []*model.Listener{
		{Port: 443, Routes: routes, Default: upstream("default")}, {Port: 444, Routes: routes, Plain: upstream("plain")}, {Port: 445, Routes: routes[:1]},
	}
	resources := mustTranslate(t, m, Options{})
	for _, u := range m.Upstreams {
		resources.Endpoints = append(resources.Endpoints, Endpoints(u, nil))
	}
	p.send(t, resources)
	for name, want := range map[string]string{
		"a.example.com": "a.example.com", "A.Example.COM": "a.example.com", "x.example.com": "*.example.com", "X.EXAMPLE.com": "*.example.com",
		"x.y.example.com": "*.example.com", "sub.example.com": "*.example.com", "x.sub.example.com": "*.sub.example.com",
		"b.sub.example.com": "b.sub.example.com", "x.b.sub.example.com": "*.sub.example.com", "xb.sub.example.com": "*.sub.example.com",
		"example.com": "", "xexample.com": "", "a.example.com.": "", "x.example.com.": "", "example.org": "", "example": "", ".": "", sentinelName: "sentinel", "": "",
	} {
		for port, other := range map[uint16]string{443: "default", 444: "", 445: ""} {
			want := want
			switch {
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
	for port, want := range map[uint16]string{443: "default", 444: "plain", 445: ""} {
		if got := p.ask(t, port, []byte("hello?\n")); got != want {
			t.Errorf("without TLS, port %d leads to %q, want %q", port, got, want)
		}
	}
}

// backend starts a server in the proxy's network that sends its name to clients that have sent something.
func (p *proxy) backend(t *testing.T, name string) netip.AddrPort {
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
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := conn.Read(make([]byte, 4096)); err == nil {
				_, _ = io.WriteString(conn, name)
			}
			_ = conn.Close()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

// ask sends the bytes to a port of Envoy and returns the response; empty if the connection is closed without one.
func (p *proxy) ask(t *testing.T, port uint16, data []byte) string {
	t.Helper()
	conn := p.dial(t, port)
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
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
	var sent firstWrite // with which the handshake ends
	placeholder := strings.Repeat("a", len(name))
	_ = tls.Client(&sent, &tls.Config{ServerName: placeholder, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}).HandshakeContext(t.Context())
	if name == "" {
		return sent.data
	}
	prefix := []byte{0, byte(len(name) >> 8), byte(len(name))} // of a host_name in the extension (RFC 6066)
	return bytes.Replace(sent.data, append(prefix, placeholder...), append(slices.Clip(prefix), name...), 1)
}

// A firstWrite is a connection that keeps the first bytes that are written to it, and fails.
type firstWrite struct {
	net.Conn
	data []byte
}

func (w *firstWrite) Write(data []byte) (int, error) {
	if w.data == nil {
		w.data = bytes.Clone(data)
	}
	return 0, io.ErrClosedPipe
}

func (*firstWrite) SetDeadline(time.Time) error { return nil }
