// Package neighbour finds out which addresses of a network are in use, without any privilege: the kernel asks for the
// hardware address of whom a datagram is for, and shows everybody who asks what it was told.
package neighbour

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Use is what is known of an address.
type Use int

// The uses.
const (
	// Unknown: what the kernel was told is from before, and who told it may have gone. It asks again in a while.
	Unknown Use = iota
	// Free: nobody answers for it.
	Free
	// Used: somebody has just answered.
	Used
)

// Found is what was found out about an address, with who uses it.
type Found struct {
	Use Use
	MAC net.HardwareAddr
}

const (
	// discard is the port of RFC 863. Nobody is to understand the datagram.
	discard = 9
	// patience is for how long an answer may take. The kernel asks three times, a second apart.
	patience = 1500 * time.Millisecond
)

// Look finds out who uses some IPv4 addresses. It takes a moment. Of addresses on networks that this host is not on it
// returns nothing.
func Look(ctx context.Context, addrs []netip.Addr) (map[netip.Addr]Found, error) {
	conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp4", ":0")
	if err != nil {
		return nil, fmt.Errorf("looking for neighbours: %w", err)
	}
	for _, a := range addrs {
		// What fails is of a network that no route leads to.
		_, _ = conn.WriteTo([]byte{0}, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, discard)))
	}
	select {
	case <-ctx.Done():
	case <-time.After(patience):
	}
	table, err := table()
	if err := errors.Join(err, ctx.Err(), conn.Close()); err != nil {
		return nil, fmt.Errorf("looking for neighbours: %w", err)
	}
	found := make(map[netip.Addr]Found, len(addrs))
	for _, a := range addrs {
		if f, ok := table[a]; ok {
			found[a] = f
		}
	}
	return found, nil
}
