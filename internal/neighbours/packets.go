package neighbours

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"
)

const (
	// minLostPackets is the number of probes in a row in which a host must have refused a small datagram and none of the
	// size of the MTU, until large packets count as lost. Each probe sends packetAttempts of these.
	minLostPackets = 3
	packetAttempts = 2
	// datagramHeaders is the size of the headers of IPv4 and UDP.
	datagramHeaders = 28
)

// packetSizes are the sizes of packets that are sent to a host that does not receive those of the size of the MTU. They
// descend, since hosts limit the rate of the ICMP messages that they send.
var packetSizes = []int{8900, 1500, 1450, 1400, 1280, 1000, 576}

// packetState is what is known about the IP packets that a host receives.
type packetState struct {
	// lost is the number of probes in a row in which the host received small packets only.
	lost int
	// largest is the size of the largest packets that the host receives, 0 while it is not certain.
	largest int
}

// observe returns the state after a probe with packets of the size of the MTU.
func (p packetState) observe(mtu int, received bool) packetState {
	if received {
		return packetState{largest: mtu}
	}
	p.lost++
	return p
}

// lossy reports whether it is certain that large packets are lost.
func (p packetState) lossy() bool { return p.lost >= minLostPackets }

// probePackets sends datagrams of the size of the MTU to the hosts that have refused a small one. It returns the states of
// all hosts that have a MAC address.
func probePackets(ctx context.Context, networks OwnNetworks, results map[netip.Addr]Result, before map[netip.Addr]packetState) (map[netip.Addr]packetState, error) {
	mtus, err := ownMTUs()
	if err != nil {
		return nil, err
	}
	states, pending := map[netip.Addr]packetState{}, map[netip.Addr]int{}
	for host, r := range results {
		if r.MAC != nil {
			states[host] = before[host]
		}
		if mtu := mtus[networks.Source(host)]; r.Refused && mtu > 0 {
			pending[host] = mtu
		}
	}
	probed := maps.Clone(pending)
	for range packetAttempts {
		received := receivers(ctx, networks, pending)
		maps.DeleteFunc(pending, func(host netip.Addr, _ int) bool { return received[host] })
	}
	for host, mtu := range probed {
		_, lost := pending[host]
		states[host] = states[host].observe(mtu, !lost)
	}
	maps.DeleteFunc(pending, func(host netip.Addr, _ int) bool { return !states[host].lossy() })
	for _, size := range packetSizes {
		smaller := map[netip.Addr]int{}
		for host := range pending {
			if size < probed[host] {
				smaller[host] = size
			}
		}
		for host := range receivers(ctx, networks, smaller) {
			states[host] = packetState{lost: states[host].lost, largest: size}
			delete(pending, host)
		}
	}
	for host := range pending {
		states[host] = packetState{lost: states[host].lost, largest: datagramHeaders + 1} // the small datagram
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("probing neighbors: %w", err)
	}
	return states, nil
}

// receivers sends each host a datagram in an IP packet of a size, which is not fragmented. It returns the hosts that refuse
// it; the ICMP message that refuses a datagram is small.
func receivers(ctx context.Context, networks OwnNetworks, sizes map[netip.Addr]int) map[netip.Addr]bool {
	sockets, received := map[netip.Addr]net.Conn{}, map[netip.Addr]bool{}
	defer func() {
		for _, conn := range sockets {
			_ = conn.Close() // no data is lost
		}
	}()
	for _, host := range slices.SortedFunc(maps.Keys(sizes), netip.Addr.Compare)[:min(len(sizes), maxRefusals)] {
		conn, err := dialDiscard(ctx, networks.Source(host), host)
		if err != nil {
			continue
		}
		sockets[host] = conn
		if forbidFragments(conn) {
			_, _ = conn.Write(make([]byte, sizes[host]-datagramHeaders)) // after an error, nothing refuses it
		}
	}
	for end := time.Now().Add(refusalTimeout); len(received) < len(sockets) && time.Now().Before(end) && ctx.Err() == nil; time.Sleep(pollInterval / 10) {
		for host, conn := range sockets {
			if refused(conn) {
				received[host] = true
			}
		}
	}
	return received
}

// ownMTUs returns the MTU of the interface of each of our IPv4 addresses.
func ownMTUs() (map[netip.Addr]int, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing the network interfaces: %w", err)
	}
	mtus := map[netip.Addr]int{}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("listing the addresses of interface %s: %w", i.Name, err)
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
				mtus[p.Addr()] = i.MTU
			}
		}
	}
	return mtus, nil
}
