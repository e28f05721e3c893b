package backends

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// interfaceTo returns the name of the network interface through which packets to an address leave, empty without a
// route.
func interfaceTo(a netip.Addr) string {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 {
		return ""
	}
	link, err := net.InterfaceByIndex(routes[0].LinkIndex)
	if err != nil {
		return ""
	}
	return link.Name
}
