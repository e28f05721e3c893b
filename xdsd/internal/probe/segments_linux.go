package probe

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// smallSegment is the size of TCP segments that every network transports (RFC 9293, 3.7.1).
const smallSegment = 536

// smallSegments limits the TCP segments that a host sends on a connection before it is established.
func smallSegments(_, _ string, c syscall.RawConn) (err error) {
	control := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, smallSegment) })
	return errors.Join(control, err)
}

// unfragmented makes a socket send packets that are not fragmented on the way, even if the kernel has learned a
// smaller path MTU.
func unfragmented(network, _ string, c syscall.RawConn) (err error) {
	control := c.Control(func(fd uintptr) {
		if network == "udp4" {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
		}
	})
	return errors.Join(control, err)
}
