package daemon

import (
	"net"
	"net/netip"
	"sync"
)

// Limits of the connections to a daemon's HTTP endpoints. Probes, Prometheus and doctor need a few at a time.
const (
	maxConnections           = 256
	maxConnectionsOfAnOrigin = 32
)

// A limitedListener closes connections above a limit of all and of those from one address, so that a client that holds
// connections uses up neither the file descriptors of the daemon nor the connections of other clients.
type limitedListener struct {
	net.Listener

	mu    sync.Mutex
	total int
	open  map[netip.Addr]int
}

func limitConnections(l net.Listener) *limitedListener {
	return &limitedListener{Listener: l, open: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		var origin netip.Addr // the zero value for a connection without an IP address
		if at, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
			origin = at.Addr().Unmap()
		}
		if l.add(origin) {
			return &limitedConn{Conn: conn, end: sync.OnceFunc(func() { l.remove(origin) })}, nil
		}
		_ = conn.Close() // nothing was sent
	}
}

// add counts a connection, and reports whether the limits allow it.
func (l *limitedListener) add(origin netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= maxConnections || l.open[origin] >= maxConnectionsOfAnOrigin {
		return false
	}
	l.total++
	l.open[origin]++
	return true
}

func (l *limitedListener) remove(origin netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	l.open[origin]--
	if l.open[origin] == 0 {
		delete(l.open, origin)
	}
}

// A limitedConn is a connection that is counted until it is closed.
type limitedConn struct {
	net.Conn

	end func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.end()
	return c.Conn.Close()
}
