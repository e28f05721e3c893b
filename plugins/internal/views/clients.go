package views

import (
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/densityops/oooi/plugins/internal/nametree"
)

// clients finds the view of a client by the longest prefix that holds its address.
type clients struct {
	byPrefix map[netip.Prefix]*Sight
	bits     [2][]int // prefix lengths in use, longest first, of IPv4 and IPv6
	others   *Sight   // what everybody else sees; nil for nothing
	// routed: others are told from clients on a VLAN by their address, so they see nothing with
	// a link-local one, which every network has.
	routed bool
}

// Sight is what one kind of client sees.
type Sight struct {
	// View is the view's name.
	View string
	// Tree are the names.
	Tree *nametree.Tree

	passed [nametree.Apps]atomic.Pointer[nametree.Tally] // counts what is passed on, by part
}

func (c *clients) add(prefix netip.Prefix, s *Sight) {
	if c.byPrefix == nil {
		c.byPrefix = map[netip.Prefix]*Sight{}
	}
	c.byPrefix[prefix] = s
	lengths := &c.bits[familyOf(prefix.Addr())]
	if !slices.Contains(*lengths, prefix.Bits()) {
		*lengths = append(*lengths, prefix.Bits())
		slices.SortFunc(*lengths, func(a, b int) int { return b - a })
	}
}

// find returns what a client sees, nil when it is to see nothing. A query without
// a sender, which some plugin made up, sees nothing where addresses matter.
func (c *clients) find(client netip.Addr) *Sight {
	if !client.IsValid() && len(c.byPrefix) > 0 {
		return nil
	}
	if client.IsValid() {
		for _, bits := range c.bits[familyOf(client)] {
			prefix, err := client.Prefix(bits)
			if err != nil {
				continue
			}
			if s, ok := c.byPrefix[prefix]; ok {
				return s
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

// ClientAddr returns the address of a query's sender without allocating; invalid
// where there is none, as in a query that a plugin made up.
func ClientAddr(remote net.Addr) netip.Addr {
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
