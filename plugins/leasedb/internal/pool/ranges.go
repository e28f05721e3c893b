package pool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
)

// maxSize is the maximum number of addresses of a pool: its bitmap is searched linearly when most of them are
// taken.
const maxSize = 1 << 20

// Ranges numbers the addresses of several ranges from 0, without excluded ones.
type Ranges struct {
	parts []part // ascending
	size  int
}

type part struct {
	v1alpha1.AddressRange

	from int // number of First
}

// NewRanges returns the addresses in ranges that are not in excluded, numbered in ascending order. It returns
// an error if ranges overlap, if all addresses are excluded, or if a range or the result has more than 2^20
// addresses. All ranges must be of one address family.
func NewRanges(ranges, excluded []v1alpha1.AddressRange) (Ranges, error) {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b v1alpha1.AddressRange) int { return a.First.Compare(b.First) })
	var all Ranges
	for i, r := range ranges {
		if i > 0 && ranges[i-1].Overlaps(r) {
			return Ranges{}, fmt.Errorf("ranges %v and %v overlap", ranges[i-1], r)
		}
		if high(r.First) != high(r.Last) || low(r.Last)-low(r.First) >= maxSize {
			return Ranges{}, fmt.Errorf("range %v has more than %d addresses, the limit of a pool", r, maxSize)
		}
		for _, p := range r.Without(excluded...) {
			all.add(p)
		}
	}
	if all.size == 0 {
		return Ranges{}, errors.New("all addresses of the ranges are excluded")
	}
	if all.size > maxSize {
		return Ranges{}, fmt.Errorf("the ranges have %d addresses, more than the limit of %d", all.size, maxSize)
	}
	return all, nil
}

func (r *Ranges) add(added v1alpha1.AddressRange) {
	r.parts = append(r.parts, part{added, r.size})
	r.size += int(low(added.Last)-low(added.First)) + 1 //nolint:gosec // limited by NewRanges
}

// Size returns the number of addresses.
func (r Ranges) Size() int { return r.size }

// Number returns the number of an address, and whether it is in the ranges.
func (r Ranges) Number(a netip.Addr) (int, bool) {
	i, found := slices.BinarySearchFunc(r.parts, a, func(p part, a netip.Addr) int { return p.First.Compare(a) })
	if !found {
		i--
	}
	if i < 0 || !r.parts[i].Contains(a) {
		return 0, false
	}
	return r.parts[i].from + int(low(a)-low(r.parts[i].First)), true //nolint:gosec // limited by NewRanges
}

// Addr is the inverse of Number. number must be at least 0 and less than Size.
func (r Ranges) Addr(number int) netip.Addr {
	i, found := slices.BinarySearchFunc(r.parts, number, func(p part, n int) int { return p.from - n })
	if !found {
		i--
	}
	p := r.parts[i]
	bytes := p.First.As16()
	binary.BigEndian.PutUint64(bytes[8:], low(p.First)+uint64(number-p.from)) //nolint:gosec // number is at least from
	a := netip.AddrFrom16(bytes)
	if p.First.Is4() {
		return a.Unmap()
	}
	return a
}

func high(a netip.Addr) uint64 { b := a.As16(); return binary.BigEndian.Uint64(b[:8]) }
func low(a netip.Addr) uint64  { b := a.As16(); return binary.BigEndian.Uint64(b[8:]) }
