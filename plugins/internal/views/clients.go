package views

import (
	"net"
	"net/netip"
	"slices"

	"github.com/densityops/oooi/plugins/internal/nametree"
)

// clients maps a client to its view by the longest prefix that contains its address.
type clients struct {
	networks
	views  []*ClientView // of the VLANs
	common []*ClientView // indexed by commonNumber
	others *ClientView   // the view of all other clients; nil for none
	// routed is set if other clients are distinguished from those on a VLAN by their address only. In that
	// case, clients with a link-local address get no view, because link-local addresses exist on every
	// network.
	routed bool
}

// A ClientView is a view with the names that its clients can resolve.
type ClientView struct {
	// Name is the view's name.
	Name string
	// Tree contains the names of the view.
	Tree *nametree.Tree

	counters *viewCounters
}

// networks maps networks to the numbers of their views.
type networks struct {
	byPrefix map[netip.Prefix]int
	bits     [2][]int // prefix lengths in use, longest first, of IPv4 and IPv6
}

// noView is the number of a network whose clients do not get a view.
const noView = -1

// commonNumber returns the number of a view in clients.common. Numbers of VLANs are not negative.
func commonNumber(i int) int { return noView - 1 - i }

func (c *networks) add(prefix netip.Prefix, view int) {
	if c.byPrefix == nil {
		c.byPrefix = map[netip.Prefix]int{}
	}
	c.byPrefix[prefix] = view
	lengths := &c.bits[familyOf(prefix.Addr())]
	if !slices.Contains(*lengths, prefix.Bits()) {
		*lengths = append(*lengths, prefix.Bits())
		slices.SortFunc(*lengths, func(a, b int) int { return b - a })
	}
}

// find returns the view of a client, or nil if the client gets none. A query without a source address, which a
// plugin created, gets none if views depend on addresses.
func (c *clients) find(client netip.Addr) *ClientView {
	if !client.IsValid() && len(c.byPrefix) > 0 {
		return nil
	}
	if client.IsValid() {
		for _, bits := range c.bits[familyOf(client)] {
			prefix, err := client.Prefix(bits)
			if err != nil {
				continue
			}
			switch view, ok := c.byPrefix[prefix]; {
			case !ok:
			case view == noView:
				return nil
			case view < 0:
				return c.common[commonNumber(view)]
			default:
				return c.views[view]
			}
		}
		if c.routed && client.IsLinkLocalUnicast() {
			return nil
		}
	}
	return c.others
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// clientAddr returns the address of a query's sender, without a zone, and usually without allocating. An IPv4-mapped
// address is returned as IPv4. The result is invalid if the query has no sender, because a plugin created it.
func clientAddr(remote net.Addr) netip.Addr {
	switch a := remote.(type) {
	case *net.UDPAddr:
		return a.AddrPort().Addr().Unmap().WithZone("")
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	if remote == nil {
		return netip.Addr{}
	}
	ap, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}
