package daemon

import (
	"context"
	"net"
	"net/netip"
)

// Listen listens on a TCP address. An address that a network interface has is served to packets that
// arrive by that interface only: Linux would take those that arrive by any other, such as a pod's
// second one on a VLAN.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{}
	if at, err := netip.ParseAddrPort(address); err == nil {
		config.Control = bindTo(DeviceOf(at.Addr()))
	}
	return config.Listen(ctx, "tcp", address)
}
