package probe

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// smallSegment is the size of TCP segments that every network transports (RFC 9293, 3.7.1).
const smallSegment = 536

// setSegmentSize limits the TCP segments that a host sends on a connection before it is established.
func setSegmentSize(_, _ string, c syscall.RawConn) (err error) {
	control := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, smallSegment) })
	return errors.Join(control, err)
}

// setUnfragmented makes a socket set DF in all packets, and ignore the known MTU of paths.
func setUnfragmented(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE); err == nil {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
}
