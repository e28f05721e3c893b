package envoy

import (
	"net"
	"net/netip"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

// TestReusePortAfterOpenConnection adds a listener on the port that one of Envoy's connections to a backend has as its source.
func TestReusePortAfterOpenConnection(t *testing.T) {
	p := startProxy(t, 1)
	var backend net.Listener
	if err := p.network.Do(func() (err error) {
		backend, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = backend.Close() }()
	u := upstream("backend", netip.MustParseAddrPort(backend.Addr().String()))
	m := &model.ProxyServer{Ref: owner, Upstreams: []*model.Upstream{u}, Listeners: []*model.Listener{{Port: 443, Default: u.Name}}}
	p.send(t, withEndpoints(t, m))
	client := p.dial(t, 443)
	defer func() { _ = client.Close() }()
	if _, err := client.Write([]byte("hello")); err != nil { // not TLS, so Envoy immediately selects the port's default
		t.Fatal(err)
	}
	conn, err := backend.Accept()
	lab.Must(t, err)
	defer func() { _ = conn.Close() }()
	source, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	lab.Must(t, err)
	m.Listeners = append(m.Listeners, &model.Listener{Port: int32(source.Port()), Default: u.Name})
	p.send(t, withEndpoints(t, m))
	_ = p.dial(t, source.Port()).Close()
}

// dial connects to a port of Envoy when it is open.
func (p *proxy) dial(t *testing.T, port uint16) (conn net.Conn) {
	t.Helper()
	lab.Poll(t, "Envoy to open the port", func() (open bool) {
		var err error
		conn, err = p.network.Dial(t.Context(), netip.Addr{}, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
		return err == nil
	})
	return conn
}
