package neighbours

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

const (
	// connectTimeout limits one connection. The kernel repeats a lost packet after a second.
	connectTimeout = 2 * time.Second
	// minFailures is the number of connections in a row without an answer after which a host counts as silent, and certainFailures
	// the same for a host that may be gone: the kernel keeps the MAC address of such a host for up to 75 seconds.
	minFailures     = 2
	certainFailures = 6
)

// Results of a connection to a port. portUnknown is that of a connection that this host could not
// begin.
const (
	portAccepts = "accepted"
	portRefuses = "refused"
	portSilent  = "timeout"
	portUnknown = ""
)

// A portState has the last results of connections to a port.
type portState struct {
	// failures is the number of failures in a row, and known the last result that is certain, empty for none.
	failures int
	known    string
}

// observe returns the state after another connection. present reports whether the host is known to be there.
func (s portState) observe(result string, present bool) portState {
	switch result {
	case portAccepts:
		return portState{known: portAccepts}
	case portUnknown:
		return s
	}
	s.failures++
	if certain(s.failures, present) {
		s.known = result
	}
	return s
}

// Ports connects to TCP ports on the VLAN repeatedly. The zero value is ready to use. It is safe for concurrent use, except
// Connect.
type Ports struct {
	mu     sync.Mutex // only Connect writes what it protects
	states map[netip.AddrPort]portState
}

// Connect connects to the ports concurrently, and forgets all others. The connections carry no data.
func (p *Ports) Connect(ctx context.Context, networks OwnNetworks, ports []netip.AddrPort) {
	results, present := make([]string, len(ports)), make([]bool, len(ports))
	var group sync.WaitGroup
	for i, port := range ports {
		group.Go(func() {
			results[i] = connect(ctx, networks.Source(port.Addr()), port)
			// A refusal is a packet of the host.
			present[i] = results[i] == portRefuses || results[i] == portSilent && refuses(ctx, networks, port.Addr())
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return
	}
	states := map[netip.AddrPort]portState{}
	for i, port := range ports {
		states[port] = p.states[port].observe(results[i], present[i])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.states = states
}

// connect connects to a port from a source address, and closes the connection.
func connect(ctx context.Context, source netip.Addr, port netip.AddrPort) string {
	dialer := net.Dialer{Timeout: connectTimeout, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))}
	conn, err := dialer.DialContext(ctx, "tcp", port.String())
	switch {
	case err == nil:
		_ = conn.Close() // no data was sent
		return portAccepts
	case errors.Is(err, syscall.ECONNREFUSED):
		return portRefuses
	case Local(err):
		return portUnknown
	}
	return portSilent
}

// certain reports whether a port of a host whose host has a MAC address is silent, after a number of failed connections in a row. A
// host that refuses datagrams is there; without that, it may be gone until the kernel has forgotten its MAC address.
func certain(failures int, refuses bool) bool {
	return failures >= certainFailures || failures >= minFailures && refuses
}
