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
	// MAC address of a host that is gone. If the host sends ARP requests, its entry stays stale although it does not
	// answer the kernel's ARP requests.
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
// by ARP, and any process can read its neighbor table. If the kernel's entry is stale, an ICMP message that refuses the
// datagram is an answer of the entry's MAC address. It returns as soon as hosts have answered for all addresses, and
// otherwise after 1.5 s. The result omits addresses that are not on a network of this host. It returns an error if
// ctx is done before, or if the neighbor table cannot be read.
func Probe(ctx context.Context, addrs []netip.Addr) (map[netip.Addr]Result, error) {
	own, err := ownNetworks()
	if err != nil {
		return nil, fmt.Errorf("probing neighbors: %w", err)
	}
	return probe(ctx, 0, own.dial, own.others(addrs), 0)
}

// Hosts returns the MAC addresses of the hosts that answer for IPv4 addresses on the network of a device. The
// device needs no address on that network, and the caller no privilege. It returns as soon as hosts have answered for all
// addresses, and otherwise after 1.5 s. It returns an error if the device does not exist, or if ctx is done before.
func Hosts(ctx context.Context, device string, addrs []netip.Addr) (map[netip.Addr]net.HardwareAddr, error) {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("probing neighbors on %s: %w", device, err)
	}
	// A socket that is bound to the device considers all destinations as on its network.
	bound := &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.BindToDevice(int(fd), device) })
		return errors.Join(err, failed)
	}}
	results, err := probe(ctx, link.Index, func(ctx context.Context, a netip.Addr) (net.Conn, error) { return sendDatagram(ctx, bound, a) }, addrs, 0)
	found := map[netip.Addr]net.HardwareAddr{}
	for a, r := range results {
		if r.Use == Used {
			found[a] = r.MAC
		}
	}
	return found, err
}

// probe sends datagrams with dial, and waits until each address is resolved on a link, or on any with link 0, and the hosts have
// refused the datagrams, or until refusalTimeout.
func probe(ctx context.Context, link int, dial func(context.Context, netip.Addr) (net.Conn, error), addrs []netip.Addr,
	refusalTimeout time.Duration) (map[netip.Addr]Result, error) {
	sockets, isRefused := map[netip.Addr]net.Conn{}, map[netip.Addr]bool{}
	defer func() {
		for _, conn := range sockets {
			_ = conn.Close() // no data is lost
		}
	}()
	for _, a := range addrs {
		conn, err := dial(ctx, a)
		switch {
		case err == nil:
			sockets[a] = conn
		case Local(err):
			return nil, fmt.Errorf("probing %s: %w", a, err)
		default: // without a route, the address is omitted from the result
		}
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for started := time.Now(); ; {
		known, err := table(link)
		if err != nil {
			return nil, err
		}
		found, waiting := map[netip.Addr]Result{}, false
		for a, conn := range sockets {
			isRefused[a] = isRefused[a] || refused(conn)
			r, ok := known[a]
			if !ok {
				continue
			}
			if r.MAC != nil && isRefused[a] {
				r.Use, r.Refused = Used, true
			}
			found[a] = r
			waiting = waiting || r.Use != Used || !r.Refused && time.Since(started) < refusalTimeout
		}
		if !waiting || time.Since(started) >= timeout {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("probing neighbors: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// table returns the kernel's table of IPv4 neighbors on a link, or on all with link 0.
func table(link int) (map[netip.Addr]Result, error) {
	list, err := netlink.NeighList(link, netlink.FAMILY_V4)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // interrupted by a change to the table
		return nil, fmt.Errorf("reading the neighbor table: %w", err)
	}
	all := map[netip.Addr]Result{}
	for i := range list {
		found := Result{MAC: list[i].HardwareAddr}
		switch list[i].State {
		case netlink.NUD_REACHABLE:
			found.Use = Used
		case netlink.NUD_INCOMPLETE, netlink.NUD_FAILED:
			found.Use = Free
		default:
		}
		if addr, ok := netip.AddrFromSlice(list[i].IP); ok {
			all[addr] = found
		}
	}
	return all, nil
}

// refused reports whether an ICMP message has refused the datagram of a connected socket. It does not block.
func refused(conn net.Conn) bool {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	number := 0
	control := raw.Control(func(fd uintptr) { number, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) })
	return control == nil && err == nil && syscall.Errno(number) == syscall.ECONNREFUSED
}
