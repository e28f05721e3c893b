package daemon

import (
	"context"
	"net"
	"net/netip"
)

// Listen listens on a TCP address. If this is the IP address of a network interface for which DeviceOf returns a name,
// only packets that arrive on that interface are accepted. By default, Linux also accepts packets that arrive on other
// interfaces, such as a pod's second interface on a VLAN.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{}
	if at, err := netip.ParseAddrPort(address); err == nil {
		config.Control = bindTo(DeviceOf(at.Addr()))
	}
	return config.Listen(ctx, "tcp", address)
}
