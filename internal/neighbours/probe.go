package neighbours

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Use is the state of an address.
type Use int

// States of an address.
const (
	// Unknown means that the kernel's entry is stale. The kernel probes the neighbor again after some time.
	Unknown Use = iota
	// Free means that no host answers for the address.
	Free
	// Used means that a host has just answered for the address.
	Used
)

// A Result is the result of a probe, with the MAC address of the host that answered last; nil if none did.
type Result struct {
	Use Use
	MAC net.HardwareAddr
}

const (
	// timeout is the time to wait for answers. The kernel sends three ARP requests at intervals of a second.
	timeout = 1500 * time.Millisecond
	// pollInterval is the time between reads of the neighbor table.
	pollInterval = 100 * time.Millisecond
)

// Probe finds out which IPv4 addresses are in use, without privileges: the kernel resolves the destination of a datagram
// by ARP, and any process can read its neighbor table. It returns as soon as hosts have answered for all addresses, and
// otherwise after 1.5 s. The result has no entry for addresses that are not on a network of this host. It returns an
// error if ctx is done before, or if the neighbor table cannot be read, which is supported on Linux only.
func Probe(ctx context.Context, addrs []netip.Addr) (map[netip.Addr]Result, error) {
	conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp4", ":0")
	if err != nil {
		return nil, fmt.Errorf("probing neighbors: %w", err)
	}
	for _, a := range addrs {
		// Errors are ignored: the address has no route, and remains without a result.
		_, _ = conn.WriteTo([]byte{0}, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, discardPort)))
	}
	found, err := waitForAnswers(ctx, addrs)
	if err := errors.Join(err, conn.Close()); err != nil {
		return nil, fmt.Errorf("probing neighbors: %w", err)
	}
	return found, nil
}

// waitForAnswers polls the neighbor table until every address in it is resolved, or until the timeout.
func waitForAnswers(ctx context.Context, addrs []netip.Addr) (map[netip.Addr]Result, error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for started := time.Now(); ; {
		table, err := table()
		if err != nil {
			return nil, err
		}
		found, waiting := map[netip.Addr]Result{}, false
		for _, a := range addrs {
			if f, ok := table[a]; ok {
				found[a] = f
				waiting = waiting || f.Use != Used
			}
		}
		if !waiting || time.Since(started) >= timeout {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err() //nolint:wrapcheck // wrapped by Probe
		case <-tick.C:
		}
	}
}
