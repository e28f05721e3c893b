package neighbours

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
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
	// Refused reports whether the host has just refused a datagram, which proves that it is there: the kernel keeps the
	// MAC address of a host that is gone.
	Refused bool
}

const (
	// timeout is the time to wait for answers. The kernel sends three ARP requests at intervals of a second.
	timeout = 1500 * time.Millisecond
	// pollInterval is the time between reads of the neighbor table.
	pollInterval = 100 * time.Millisecond
	// refusalTimeout is the time to wait for refusals of hosts whose MAC address is known. Many hosts send none.
	refusalTimeout = 300 * time.Millisecond
)

// Probe finds out which IPv4 addresses are in use, without privileges: the kernel resolves the destination of a datagram
// by ARP, and any process can read its neighbor table. If the kernel's entry is stale, an ICMP message that refuses a
// datagram is an answer of the entry's MAC address. It returns as soon as hosts have answered for all addresses, and
// otherwise after 1.5 s. The result has no entry for addresses that are not on a network of this host. It returns an
// error if ctx is done before, or if the neighbor table cannot be read, which is supported on Linux only.
func Probe(ctx context.Context, addrs []netip.Addr) (map[netip.Addr]Result, error) {
	networks, err := Networks()
	if err != nil {
		return nil, fmt.Errorf("probing neighbors: %w", err)
	}
	return probe(ctx, networks, addrs, 0)
}

// probe is Probe on known networks, with a time to wait for refusals of hosts whose MAC address is known.
func probe(ctx context.Context, networks OwnNetworks, addrs []netip.Addr, refusalTimeout time.Duration) (map[netip.Addr]Result, error) {
	err := resolve(ctx, networks, addrs)
	var found map[netip.Addr]Result
	if err == nil {
		found, err = waitForAnswers(ctx, networks, addrs, refusalTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("probing neighbors: %w", err)
	}
	return found, nil
}

// resolve sends a datagram to each address on a network of this host. It is sent from our address on that network,
// because a pod's routes may depend on the source: the CNI plugin sbr leaves no route to the VLAN in the main table.
func resolve(ctx context.Context, networks OwnNetworks, addrs []netip.Addr) (err error) {
	sockets := map[netip.Addr]net.PacketConn{} // by our address
	defer func() {
		for _, conn := range sockets {
			err = errors.Join(err, conn.Close())
		}
	}()
	for _, a := range addrs {
		source := networks.Source(a)
		if !source.IsValid() {
			continue
		}
		if sockets[source] == nil {
			conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp4", netip.AddrPortFrom(source, 0).String())
			if err != nil {
				return fmt.Errorf("sending from %s: %w", source, err)
			}
			sockets[source] = conn
		}
		// Errors are ignored: the address has no route, and remains without a result.
		_, _ = sockets[source].WriteTo([]byte{0}, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, discardPort)))
	}
	return nil
}

// OwnNetworks are the IPv4 addresses of this host with their prefix lengths, the longest first.
type OwnNetworks []netip.Prefix

// Networks returns the current addresses, without those of loopback interfaces.
func Networks() (OwnNetworks, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing our addresses: %w", err)
	}
	var list OwnNetworks
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			list = append(list, p)
		}
	}
	slices.SortStableFunc(list, func(a, b netip.Prefix) int { return cmp.Compare(b.Bits(), a.Bits()) })
	return list, nil
}

// Source returns our address on the network of a, from which packets to a must be sent, or the zero Addr if a is not on
// one of our networks.
func (n OwnNetworks) Source(a netip.Addr) netip.Addr {
	for _, p := range n {
		if p.Contains(a) {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// waitForAnswers polls the neighbor table until every address in it is resolved, or until the timeout.
func waitForAnswers(ctx context.Context, networks OwnNetworks, addrs []netip.Addr, refusalTimeout time.Duration) (map[netip.Addr]Result, error) {
	refusals := newRefusals(networks)
	defer refusals.close()
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
				if f.MAC != nil && (f.Use == Unknown || refusalTimeout > 0) && refusals.has(ctx, a) {
					f.Use, f.Refused = Used, true
				}
				found[a] = f
				waiting = waiting || f.Use != Used || !f.Refused && time.Since(started) < refusalTimeout
			}
		}
		if !waiting || time.Since(started) >= timeout {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}
