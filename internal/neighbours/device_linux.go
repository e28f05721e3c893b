package neighbours

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Hosts returns the MAC addresses of the hosts that answer ARP requests for IPv4 addresses on the network of a device. The
// device needs no address on that network, and the caller no privilege. It returns as soon as hosts have answered for all
// addresses, and otherwise after 1.5 s. It returns an error if the device does not exist, or if ctx is done before.
func Hosts(ctx context.Context, device string, addrs []netip.Addr) (map[netip.Addr]net.HardwareAddr, error) {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("probing neighbors on %s: %w", device, err)
	}
	// A socket that is bound to the device considers all destinations as on its network.
	bound := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.BindToDevice(int(fd), device) })
		return errors.Join(err, failed)
	}}
	conn, err := bound.ListenPacket(ctx, "udp4", ":0")
	if err != nil {
		return nil, fmt.Errorf("probing neighbors on %s: %w", device, err)
	}
	defer func() { _ = conn.Close() }()
	for _, a := range addrs {
		if _, err := conn.WriteTo([]byte{0}, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, discardPort))); err != nil {
			return nil, fmt.Errorf("probing %s on %s: %w", a, device, err)
		}
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for started := time.Now(); ; {
		list, err := netlink.NeighList(link.Index, netlink.FAMILY_V4)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // interrupted by a change of the table
			return nil, fmt.Errorf("reading the neighbor table: %w", err)
		}
		found := map[netip.Addr]net.HardwareAddr{}
		for i := range list {
			if a, ok := netip.AddrFromSlice(list[i].IP); ok && list[i].State == netlink.NUD_REACHABLE {
				found[a] = list[i].HardwareAddr
			}
		}
		answered := map[netip.Addr]net.HardwareAddr{}
		for _, a := range addrs {
			if mac := found[a.Unmap()]; mac != nil {
				answered[a] = mac
			}
		}
		if len(answered) == len(addrs) || time.Since(started) >= timeout {
			return answered, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("probing neighbors on %s: %w", device, ctx.Err())
		case <-tick.C:
		}
	}
}
