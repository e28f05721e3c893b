package daemon

import (
	"errors"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// DeviceOf returns the network interface that has an address, if sockets can be bound to it: not a
// loopback interface, over which a host reaches all of its addresses; and before Linux 5.7 none, unless
// the process has CAP_NET_RAW. Empty for no interface.
func DeviceOf(address netip.Addr) string {
	interfaces, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback == 0 && has(i, address) && canBind(i.Name) {
			return i.Name
		}
	}
	return ""
}

func has(i net.Interface, address netip.Addr) bool {
	addresses, err := i.Addrs()
	if err != nil {
		return false
	}
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr() == address {
			return true
		}
	}
	return false
}

func canBind(device string) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.BindToDevice(fd, device) == nil
}

// bindTo binds a socket to a device; to none for an empty name.
func bindTo(device string) func(network, address string, c syscall.RawConn) error {
	if device == "" {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		control := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) })
		return errors.Join(control, err)
	}
}
