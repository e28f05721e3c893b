package v1alpha1

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ParseAddress parses an address with an optional prefix length, such as "192.0.2.2/24". It checks the prefix
// length and ignores it: the prefix length of the network is used. An IPv4-mapped IPv6 address is returned as
// IPv4. It returns an error, which quotes text, if the address or the prefix length is invalid, or if the address has
// a zone.
func ParseAddress(text string) (netip.Addr, error) {
	address, prefixLength, found := strings.Cut(strings.TrimSpace(text), "/")
	if found {
		if _, err := netip.ParsePrefix(address + "/" + prefixLength); err != nil {
			return netip.Addr{}, fmt.Errorf("%q is not an IPv4 or IPv6 address with a valid prefix length", text)
		}
	}
	parsed, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q is not an IPv4 or IPv6 address", text)
	}
	if parsed.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("address %q has a zone, which is not supported", text)
	}
	return parsed.Unmap(), nil
}

// AddressRange is an inclusive range of addresses of one family.
//
// +kubebuilder:object:generate=false
type AddressRange struct {
	// First is the lowest address.
	First netip.Addr

	// Last is the highest address, never lower than First.
	Last netip.Addr
}

// Contains reports whether address is in r. An IPv4-mapped IPv6 address counts as IPv4.
func (r AddressRange) Contains(address netip.Addr) bool {
	address = address.Unmap()
	return address.BitLen() == r.First.BitLen() &&
		r.First.Compare(address) <= 0 && address.Compare(r.Last) <= 0
}

// Overlaps reports whether r and other have an address in common.
func (r AddressRange) Overlaps(other AddressRange) bool {
	return r.First.BitLen() == other.First.BitLen() && r.First.Compare(other.Last) <= 0 && other.First.Compare(r.Last) <= 0
}

// Without returns the parts of r that are in none of the other ranges, in ascending order. The other ranges may be in
// any order and may overlap.
func (r AddressRange) Without(others ...AddressRange) []AddressRange {
	var parts []AddressRange
	byFirst := func(a, b AddressRange) int { return a.First.Compare(b.First) }
	for _, other := range slices.SortedFunc(slices.Values(others), byFirst) {
		if !r.Overlaps(other) {
			continue
		}
		if r.First.Less(other.First) {
			parts = append(parts, AddressRange{First: r.First, Last: other.First.Prev()})
		}
		if r.Last.Compare(other.Last) <= 0 {
			return parts
		}
		r.First = other.Last.Next()
	}
	return append(parts, r)
}

// String returns r as "first-last", or as a single address if First equals Last.
func (r AddressRange) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// ParseAddressRange parses an address, a network in CIDR notation, which stands for all of its addresses, or
// "first-last". It returns an error for any other text, for a range of two address families or one that ends before it
// starts, and for a network of IPv4-mapped IPv6 addresses.
func ParseAddressRange(text string) (AddressRange, error) {
	text = strings.TrimSpace(text)
	if first, last, found := strings.Cut(text, "-"); found {
		return parseFirstLast(text, first, last)
	}
	if strings.Contains(text, "/") {
		return parseNetwork(text)
	}
	address, err := ParseAddress(text)
	if err != nil {
		return AddressRange{}, err
	}
	return AddressRange{First: address, Last: address}, nil
}

func parseFirstLast(text, first, last string) (AddressRange, error) {
	var r AddressRange
	var err error
	if r.First, err = parseAddressWithoutPrefix(first); err != nil {
		return AddressRange{}, fmt.Errorf("start of range %q: %w", text, err)
	}
	if r.Last, err = parseAddressWithoutPrefix(last); err != nil {
		return AddressRange{}, fmt.Errorf("end of range %q: %w", text, err)
	}
	if r.First.BitLen() != r.Last.BitLen() {
		return AddressRange{}, fmt.Errorf("range %q mixes address families", text)
	}
	if r.Last.Less(r.First) {
		return AddressRange{}, fmt.Errorf("range %q ends before it starts", text)
	}
	return r, nil
}

// parseAddressWithoutPrefix parses an address at one end of a range. A prefix length, which ParseAddress
// ignores, is an error: in a range it would look significant.
func parseAddressWithoutPrefix(text string) (netip.Addr, error) {
	if strings.Contains(text, "/") {
		return netip.Addr{}, fmt.Errorf("address %q has a prefix length; remove it", text)
	}
	return ParseAddress(text)
}

func parseNetwork(text string) (AddressRange, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return AddressRange{}, fmt.Errorf("%q is not a network in CIDR notation, such as 192.0.2.0/24", text)
	}
	r := RangeOf(prefix)
	if r.First.Is4In6() || r.Last.Is4In6() {
		return AddressRange{}, fmt.Errorf("network %q contains IPv4-mapped IPv6 addresses", text)
	}
	return r, nil
}

// RangeOf returns all addresses of a network, whose prefix must be valid.
func RangeOf(network netip.Prefix) AddressRange {
	first := network.Masked().Addr()
	bytes := first.AsSlice()
	for bit := network.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return AddressRange{First: first, Last: last}
}
