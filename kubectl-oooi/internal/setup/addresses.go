package setup

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
)

// A subnet is an IPv4 network with the addresses in use.
type subnet struct {
	network netip.Prefix
	taken   []v1alpha1.AddressRange
}

// reserve marks an address as used. Addresses outside of the network have no effect.
func (s *subnet) reserve(address netip.Addr) {
	s.reserveRange(v1alpha1.AddressRange{First: address, Last: address})
}

func (s *subnet) reserveRange(r v1alpha1.AddressRange) {
	if r.First.IsValid() && r.First.Is4() {
		s.taken = append(s.taken, r)
	}
}

// free returns the ranges of unused addresses, the lowest first, without the network address and the broadcast address.
func (s *subnet) free() []v1alpha1.AddressRange {
	all := v1alpha1.RangeOf(s.network)
	return all.Without(append(slices.Clone(s.taken),
		v1alpha1.AddressRange{First: all.First, Last: all.First}, v1alpha1.AddressRange{First: all.Last, Last: all.Last})...)
}

// next reserves and returns the lowest free address.
func (s *subnet) next() (netip.Addr, error) {
	gaps := s.free()
	if len(gaps) == 0 {
		return netip.Addr{}, fmt.Errorf("no free address in %s", s.network)
	}
	s.reserve(gaps[0].First)
	return gaps[0].First, nil
}

// largest returns the largest free range; of several equally large ones, the lowest.
func (s *subnet) largest() (v1alpha1.AddressRange, error) {
	var best v1alpha1.AddressRange
	size := uint32(0)
	for _, gap := range s.free() {
		if n := toUint32(gap.Last) - toUint32(gap.First) + 1; n > size {
			best, size = gap, n
		}
	}
	if size == 0 {
		return best, fmt.Errorf("no free address in %s", s.network)
	}
	return best, nil
}

func toUint32(a netip.Addr) uint32 {
	b := a.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}
