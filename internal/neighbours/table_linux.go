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
	number := 0
	err := control(conn, func(fd int) (err error) {
		number, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		return err
	})
	return err == nil && syscall.Errno(number) == syscall.ECONNREFUSED
}

// forbidFragments makes the kernel send the datagrams of a socket in one packet each, whatever it knows of the path's MTU.
func forbidFragments(conn net.Conn) bool {
	return control(conn, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	}) == nil
}

// control calls use with the file descriptor of a socket.
func control(conn net.Conn, use func(fd int) error) error {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return errors.ErrUnsupported
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = use(int(fd)) })
	return errors.Join(err, failed)
}
