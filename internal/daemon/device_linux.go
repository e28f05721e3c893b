package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// DeviceOf returns the name of the network interface with address, or "" if there is no such interface or sockets
// cannot be bound to it. Loopback interfaces are excluded, because a host reaches all its addresses over them.
// Binding requires Linux 5.7 or CAP_NET_RAW.
func DeviceOf(address netip.Addr) string {
	interfaces, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback == 0 && hasAddress(i, address) && canBind(i.Name) {
			return i.Name
		}
	}
	return ""
}

// GatewaysOf returns the gateways of the routes through a network interface.
func GatewaysOf(device string) ([]netip.Addr, error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("finding interface %s: %w", device, err)
	}
	routes, err := netlink.RouteList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing the routes through %s: %w", device, err)
	}
	var list []netip.Addr
	for i := range routes {
		if a, ok := netip.AddrFromSlice(routes[i].Gw); ok {
			list = append(list, a.Unmap())
		}
	}
	return list, nil
}

func hasAddress(i net.Interface, address netip.Addr) bool {
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

// bindTo returns a function for net.ListenConfig.Control that binds a socket to a device, or nil if device is
// empty.
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
