package daemon

import (
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxAddresses limits the addresses of a network that are looked at for one without a route of its own.
const maxAddresses = 256

// divertedRoutes returns the routes by which packets from an address of an interface do not reach a part of its network
// directly. It asks the kernel, since the routing table may depend on the source address. Without the rights to read
// routes, it returns none.
func divertedRoutes(i net.Interface, own netip.Prefix) []divertedRoute {
	if !own.Addr().Is4() || own.Bits() > 30 {
		return nil
	}
	network := own.Masked()
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil
	}
	var parts []netip.Prefix
	for r := range slices.Values(routes) {
		if r.Dst == nil || r.Table == unix.RT_TABLE_LOCAL {
			continue
		}
		address, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		ones, _ := r.Dst.Mask.Size()
		part := netip.PrefixFrom(address, ones)
		if ok && ones > network.Bits() && network.Contains(address) && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	var diverted []divertedRoute
	for _, part := range append([]netip.Prefix{network}, parts...) {
		smaller := slices.DeleteFunc(slices.Clone(parts), func(p netip.Prefix) bool { return p.Bits() <= part.Bits() })
		at := hostIn(part, own, smaller)
		if !at.IsValid() {
			continue
		}
		found, err := netlink.RouteGetWithOptions(at.AsSlice(), &netlink.RouteGetOptions{SrcAddr: own.Addr().AsSlice()})
		r := divertedRoute{destination: part}
		if err == nil && len(found) > 0 { // otherwise the route discards packets, or none exists
			if found[0].LinkIndex == i.Index && found[0].Gw == nil {
				continue
			}
			if found[0].Gw != nil {
				r.gateway = found[0].Gw.String()
			}
			if device, err := net.InterfaceByIndex(found[0].LinkIndex); err == nil {
				r.device = device.Name
			}
		}
		if len(diverted) > 0 && diverted[0] == (divertedRoute{network, r.gateway, r.device}) {
			continue // by the route of the whole network
		}
		diverted = append(diverted, r)
	}
	return diverted
}

// hostIn returns an address of a host in part of a network that is not our own, and not in a smaller part; the zero Addr if
// there is none among the first ones.
func hostIn(part, own netip.Prefix, smaller []netip.Prefix) netip.Addr {
	a := part.Masked().Addr()
	for range maxAddresses {
		next := a.Next()
		used := a == own.Addr() || a == own.Masked().Addr() || !own.Contains(next) || slices.ContainsFunc(smaller, func(p netip.Prefix) bool { return p.Contains(a) })
		switch {
		case !part.Contains(a):
			return netip.Addr{}
		case !used:
			return a
		}
		a = next
	}
	return netip.Addr{}
}
