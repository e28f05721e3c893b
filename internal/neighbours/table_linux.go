package neighbours

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// table returns the kernel's table of IPv4 neighbors.
func table() (map[netip.Addr]Result, error) {
	list, err := netlink.NeighList(0, netlink.FAMILY_V4)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // interrupted by a change of the table
		return nil, fmt.Errorf("reading the neighbor table: %w", err)
	}
	all := map[netip.Addr]Result{}
	for _, n := range list {
		found := Result{MAC: n.HardwareAddr}
		switch n.State {
		case netlink.NUD_REACHABLE:
			found.Use = Used
		case netlink.NUD_INCOMPLETE, netlink.NUD_FAILED:
			found.Use = Free
		default:
		}
		if addr, ok := netip.AddrFromSlice(n.IP); ok {
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
