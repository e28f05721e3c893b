package model

import (
	"net/netip"
	"slices"
)

// Permits reports whether egress names may resolve to an address: those that are public, and those that the spec allows. The
// addresses of hosts themselves (loopback, link-local and multicast) are never permitted.
func (e *Egress) Permits(address netip.Addr) bool {
	address = address.Unmap()
	contains := func(p netip.Prefix) bool { return p.Contains(address) }
	switch {
	case !address.IsValid() || address.IsUnspecified() || address.IsLoopback() || address.IsMulticast() || address.IsLinkLocalUnicast():
		return false
	case slices.ContainsFunc(e.Deny, contains):
		return false
	case slices.ContainsFunc(e.Allow, contains):
		return true
	}
	return slices.ContainsFunc(public, contains) && !slices.ContainsFunc(special, contains)
}

// A NetworkBlock is a network without some networks in it.
type NetworkBlock struct {
	netip.Prefix

	Except []netip.Prefix
}

// Blocks returns the networks that contain the permitted addresses.
func (e *Egress) Blocks() []NetworkBlock {
	var list []NetworkBlock
	add := func(networks, except []netip.Prefix) {
		for _, network := range networks {
			block := NetworkBlock{Prefix: network}
			isIn := func(p netip.Prefix) bool { return p.Bits() > network.Bits() && network.Contains(p.Addr()) }
			contains := func(p netip.Prefix) bool { return p.Bits() <= network.Bits() && p.Contains(network.Addr()) }
			if slices.ContainsFunc(except, contains) {
				continue
			}
			for _, p := range except {
				if isIn(p) {
					block.Except = append(block.Except, p)
				}
			}
			list = append(list, block)
		}
	}
	add(public, sortedPrefixes(slices.Concat(special, e.Deny)))
	add(e.Allow, e.Deny)
	return list
}

// public are all IPv4 addresses, and the global unicast addresses of IPv6 that are assigned to regions (RFC 4291). The latter exclude
// prefixes that embed IPv4 addresses, such as 64:ff9b::/96 (RFC 6052), by which a translator would reach private ones.
var public = prefixes("0.0.0.0/0", "2000::/3")

// special are the networks that IANA's registries of special-purpose addresses do not list as globally reachable, and 6to4,
// which embeds IPv4 addresses (RFC 6890, RFC 3056).
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}
