package neighbours

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// connectTimeout limits one connection. The kernel repeats a lost packet after a second.
const connectTimeout = 2 * time.Second

// Results of a connection to a port.
const (
	Accepted = "accepted"
	Refused  = "refused"
	Silent   = "timeout"
)

// PortResult is the result of connections to a port on the VLAN.
type PortResult struct {
	Address netip.AddrPort
	// Result is the result of the last connection, and Failures the number of connections in a row that were not
	// accepted. The kernel keeps the MAC address of a host that is gone for up to 75 seconds, in which its ports are
	// Silent.
	Result   string
	Failures int
}

// Ports connects to TCP ports on the VLAN repeatedly. The zero value is ready to use. It is safe for concurrent use, except
// Connect.
type Ports struct {
	mu      sync.Mutex
	results []PortResult // replaced by each Connect, not changed
}

// Results returns the results of the last Connect, sorted by address.
func (p *Ports) Results() []PortResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.results
}

// Connect connects concurrently to the ports whose hosts answered the last probe of m, and drops the results of all
// others. The connections carry no data.
func (p *Ports) Connect(ctx context.Context, m *Monitor, ports []netip.AddrPort) {
	own, err := ownNetworks()
	if err != nil {
		return
	}
	slices.SortFunc(ports, netip.AddrPort.Compare)
	ports = slices.DeleteFunc(slices.Compact(ports), func(a netip.AddrPort) bool {
		return m.hosts[a.Addr()].MAC == ""
	})
	results := make([]PortResult, len(ports))
	var group sync.WaitGroup
	for i, port := range ports {
		r := &results[i]
		if at := slices.IndexFunc(p.results, func(r PortResult) bool { return r.Address == port }); at >= 0 {
			*r = p.results[at]
		}
		r.Address = port
		group.Go(func() { r.connect(ctx, own.source(port.Addr())) })
	}
	group.Wait()
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.results = results
}

// connect connects to the port from a source address, and closes the connection.
func (r *PortResult) connect(ctx context.Context, source netip.Addr) {
	dialer := net.Dialer{Timeout: connectTimeout, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))}
	conn, err := dialer.DialContext(ctx, "tcp", r.Address.String())
	switch {
	case err == nil:
		_ = conn.Close() // no data was sent
		r.Result, r.Failures = Accepted, 0
		return
	case Local(err):
		return
	case errors.Is(err, syscall.ECONNREFUSED):
		r.Result = Refused
	default:
		r.Result = Silent
	}
	r.Failures++
}
