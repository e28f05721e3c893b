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
	// step is how often answers are looked for meanwhile.
	step = 100 * time.Millisecond
)

// Look finds out who uses some IPv4 addresses. It takes a moment where somebody answers for each, and 1.5 s otherwise. Of
// addresses on networks that this host is not on it returns nothing.
func Look(ctx context.Context, addrs []netip.Addr) (map[netip.Addr]Found, error) {
	conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp4", ":0")
	if err != nil {
		return nil, fmt.Errorf("looking for neighbours: %w", err)
	}
	for _, a := range addrs {
		// What fails is of a network that no route leads to.
		_, _ = conn.WriteTo([]byte{0}, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, discard)))
	}
	found, err := read(ctx, addrs)
	if err := errors.Join(err, conn.Close()); err != nil {
		return nil, fmt.Errorf("looking for neighbours: %w", err)
	}
	return found, nil
}

// read reads the kernel's table until it is known who uses each of the addresses that are in it, or patience ends.
func read(ctx context.Context, addrs []netip.Addr) (map[netip.Addr]Found, error) {
	tick := time.NewTicker(step)
	defer tick.Stop()
	for started := time.Now(); ; {
		table, err := table()
		if err != nil {
			return nil, err
		}
		found, waiting := map[netip.Addr]Found{}, false
		for _, a := range addrs {
			if f, ok := table[a]; ok {
				found[a] = f
				waiting = waiting || f.Use != Used
			}
		}
		if !waiting || time.Since(started) >= patience {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err() //nolint:wrapcheck // Look does
		case <-tick.C:
		}
	}
}
