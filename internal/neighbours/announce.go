// Package neighbours announces a pod's IPv4 addresses to the hosts on its networks, and finds out which addresses of the
// networks are in use.
package neighbours

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Announce makes the hosts on each network update their ARP caches with the MAC address that our IPv4
// addresses now have. Otherwise hosts that cached a previous pod's MAC address would use it for half a minute
// or longer. Announce needs no capability: it sends a packet to another address of the network, so that the
// kernel broadcasts an ARP request, from which hosts update their entry of the sender (RFC 826). After an
// error it continues with the other addresses, and returns all errors.
func Announce(ctx context.Context) error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("announcing our addresses: listing the network interfaces: %w", err)
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagBroadcast == 0 {
			continue
		}
		addresses, listErr := i.Addrs()
		err = errors.Join(err, listErr)
		for _, a := range addresses {
			if p, parseErr := netip.ParsePrefix(a.String()); parseErr == nil && p.Addr().Is4() && p.Bits() < 31 {
				err = errors.Join(err, announce(ctx, p))
			}
		}
	}
	return err
}

// discardPort is the port of the discard protocol (RFC 863): a datagram needs no reply.
const discardPort = 9

func announce(ctx context.Context, ours netip.Prefix) error {
	neighbour := ours.Masked().Addr().Next()
	if neighbour == ours.Addr() {
		neighbour = neighbour.Next()
	}
	conn, err := dialDiscard(ctx, ours.Addr(), neighbour)
	if err == nil {
		_, err = conn.Write([]byte{0})
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		return fmt.Errorf("announcing address %s: %w", ours.Addr(), err)
	}
	return nil
}

// dialDiscard connects a UDP socket to the discard port of a neighbor.
func dialDiscard(ctx context.Context, source, neighbour netip.Addr) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0))}
	return dialer.DialContext(ctx, "udp4", netip.AddrPortFrom(neighbour, discardPort).String())
}
