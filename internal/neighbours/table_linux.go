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
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return false
	}
	number := 0
	if control.Control(func(fd uintptr) { number, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) }) != nil {
		return false
	}
	return err == nil && syscall.Errno(number) == syscall.ECONNREFUSED
}

// forbidFragments makes the kernel send the datagrams of a socket in one packet each, whatever it knows of the path's MTU.
func forbidFragments(conn net.Conn) bool {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return false
	}
	if control.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	}) != nil {
		return false
	}
	return err == nil
}
