// Package neighbours has the machines on a network learn at once where a pod is.
package neighbours

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Announce tells the neighbours on each network which MAC address our IPv4 addresses have now.
// Those that knew a former pod by them would go on sending to that one, for half a minute and
// more. It takes no capability: a packet to anybody has the kernel ask all of them who that is,
// and who is asked takes down who asks (RFC 826).
func Announce(ctx context.Context) error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("announcing our addresses: %w", err)
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagBroadcast == 0 {
			continue
		}
		addresses, more := i.Addrs()
		err = errors.Join(err, more)
		for _, a := range addresses {
			if p, no := netip.ParsePrefix(a.String()); no == nil && p.Addr().Is4() && p.Bits() < 31 {
				err = errors.Join(err, announce(ctx, p))
			}
		}
	}
	return err
}

// discard is the port of a service that takes everything and says nothing.
const discard = "9"

func announce(ctx context.Context, ours netip.Prefix) error {
	anybody := ours.Masked().Addr().Next()
	if anybody == ours.Addr() {
		anybody = anybody.Next()
	}
	dialer := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(ours.Addr(), 0))}
	conn, err := dialer.DialContext(ctx, "udp4", net.JoinHostPort(anybody.String(), discard))
	if err == nil {
		_, err = conn.Write([]byte{0})
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		return fmt.Errorf("announcing %s: %w", ours.Addr(), err)
	}
	return nil
}
