package neighbours

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// maxRefusals limits the sockets of one probe.
const maxRefusals = 64

// refusals finds out which hosts answer a datagram to a port on which nothing listens with an ICMP message, which needs
// no privileges. A host whose entry in the neighbor table is stale may answer no ARP request of ours, because its own
// ARP requests reset the kernel's timer.
type refusals struct {
	networks OwnNetworks
	sockets  map[netip.Addr]net.Conn // nil after the answer, or if the datagram could not be sent
	answered map[netip.Addr]bool
}

func newRefusals(networks OwnNetworks) *refusals {
	return &refusals{networks, map[netip.Addr]net.Conn{}, map[netip.Addr]bool{}}
}

// has reports whether a host has answered. The first call for an address sends the datagram.
func (r *refusals) has(ctx context.Context, a netip.Addr) bool {
	conn, sent := r.sockets[a]
	switch {
	case r.answered[a]:
		return true
	case !sent && len(r.sockets) < maxRefusals:
		r.sockets[a] = r.send(ctx, a)
	case conn != nil:
		r.answered[a] = refused(conn)
	}
	return r.answered[a]
}

// send sends a datagram, and returns its socket, nil after an error: the address has no route.
func (r *refusals) send(ctx context.Context, a netip.Addr) net.Conn {
	conn, err := dialDiscard(ctx, r.networks.Source(a), a)
	if err != nil {
		return nil
	}
	if _, err := conn.Write([]byte{0}); err != nil {
		_ = conn.Close() // nothing was sent
		return nil
	}
	return conn
}

func (r *refusals) close() {
	for _, conn := range r.sockets {
		if conn != nil {
			_ = conn.Close() // no data is lost
		}
	}
}

// refuses reports whether a host refuses a datagram to a port on which nothing listens.
func refuses(ctx context.Context, networks OwnNetworks, host netip.Addr) bool {
	r := newRefusals(networks)
	defer r.close()
	for range int(timeout / pollInterval) {
		if r.has(ctx, host) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pollInterval):
		}
	}
	return false
}
