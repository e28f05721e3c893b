// Package neighbours announces a pod's IPv4 addresses to the hosts on its networks, and finds out which addresses of the
// networks are in use.
package neighbours

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// discardPort is the port of the discard protocol (RFC 863): a datagram needs no reply.
const discardPort = 9

// networks are the IPv4 addresses of this host with their prefix lengths, the longest first.
type networks []netip.Prefix

// ownNetworks returns the current addresses of interfaces that are up and on which hosts resolve addresses by ARP.
func ownNetworks() (networks, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing the network interfaces: %w", err)
	}
	var list networks
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagBroadcast == 0 {
			continue
		}
		for _, p := range prefixes(&i) {
			if p.Addr().Is4() {
				list = append(list, p)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b netip.Prefix) int { return cmp.Compare(b.Bits(), a.Bits()) })
	return list, nil
}

// prefixes returns the addresses of an interface; none if it was deleted.
func prefixes(i *net.Interface) []netip.Prefix {
	addresses, _ := i.Addrs()
	list := []netip.Prefix{}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
			list = append(list, p)
		}
	}
	return list
}

// source returns this host's address on the network of a, from which packets to a must be sent, because a pod's routes may depend on
// the source: the CNI plugin sbr leaves no route to the VLAN in the main table. It returns the zero Addr if a is not on one of the
// networks.
func (n networks) source(a netip.Addr) netip.Addr {
	for _, p := range n {
		if p.Contains(a) {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// others returns the addresses that are on one of the networks and not this host's own, each once, sorted.
func (n networks) others(addresses []netip.Addr) []netip.Addr {
	list := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool {
		return !n.source(a).IsValid() || slices.ContainsFunc(n, func(p netip.Prefix) bool { return p.Addr() == a })
	})
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// dial connects a UDP socket to the discard port of a host on one of the networks, and sends a datagram.
func (n networks) dial(ctx context.Context, a netip.Addr) (net.Conn, error) {
	return sendDatagram(ctx, &net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.source(a), 0))}, a)
}

// sendDatagram connects a UDP socket to the discard port of a host, and sends a datagram.
func sendDatagram(ctx context.Context, d *net.Dialer, a netip.Addr) (net.Conn, error) {
	conn, err := d.DialContext(ctx, "udp4", netip.AddrPortFrom(a, discardPort).String())
	if err == nil {
		_, err = conn.Write([]byte{0})
		if err != nil {
			_ = conn.Close() // nothing was sent
		}
	}
	return conn, err
}

// Announce makes the hosts on each network update their ARP caches with the MAC address that this host's IPv4
// addresses now have. Otherwise hosts that cached a previous pod's MAC address would use it for half a minute
// or longer. Announce needs no capability: it sends a packet to another address of the network, so that the
// kernel broadcasts an ARP request, from which hosts update their entry of the sender (RFC 826). After an
// error it continues with the other addresses, and returns all errors.
func Announce(ctx context.Context) error {
	own, err := ownNetworks()
	for _, p := range own {
		if p.Bits() >= 31 {
			continue
		}
		neighbour := p.Masked().Addr().Next()
		if neighbour == p.Addr() {
			neighbour = neighbour.Next()
		}
		conn, sendErr := networks{p}.dial(ctx, neighbour)
		if sendErr == nil {
			sendErr = conn.Close()
		}
		if sendErr != nil {
			err = errors.Join(err, fmt.Errorf("announcing address %s: %w", p.Addr(), sendErr))
		}
	}
	return err
}

// localErrors are errors of connections for which nothing was sent: no free source port, file descriptor or memory.
var localErrors = []error{
	syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
}

// Local reports whether a connection failed because of a resource of this host, which proves nothing about the other one.
func Local(err error) bool {
	return slices.ContainsFunc(localErrors, func(target error) bool { return errors.Is(err, target) })
}
