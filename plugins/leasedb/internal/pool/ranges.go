package pool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// maxSize is the maximum number of addresses of a pool: its bitmap is searched linearly when most of them are
// taken.
const maxSize = 1 << 20

// A Range is an inclusive range of addresses.
type Range struct{ First, Last netip.Addr }

// ParseRange parses "FIRST-LAST" or "ADDRESS". It returns an error if an address is invalid or has a zone, if both
// are of different address families, or if FIRST comes after LAST.
func ParseRange(s string) (Range, error) {
	first, last, two := strings.Cut(s, "-")
	if !two {
		last = first
	}
	var r Range
	var err error
	if r.First, err = netip.ParseAddr(first); err != nil {
		return Range{}, fmt.Errorf("%q is not an address", first)
	}
	if r.Last, err = netip.ParseAddr(last); err != nil {
		return Range{}, fmt.Errorf("%q is not an address", last)
	}
	switch {
	case r.First.Zone() != "" || r.Last.Zone() != "":
		return Range{}, fmt.Errorf("%q has a zone, which is not supported", s)
	case r.First.Is4() != r.Last.Is4():
		return Range{}, errors.New("first and last address are of different address families")
	case r.Last.Less(r.First):
		return Range{}, fmt.Errorf("%v comes after %v", r.First, r.Last)
	}
	return r, nil
}

// String returns "FIRST-LAST".
func (r Range) String() string { return r.First.String() + "-" + r.Last.String() }

// Contains reports whether an address is in the range.
func (r Range) Contains(a netip.Addr) bool { return !a.Less(r.First) && !r.Last.Less(a) }

// Ranges numbers the addresses of several ranges from 0, without excluded ones.
type Ranges struct {
	parts []part // ascending
	size  int
}

type part struct {
	Range

	from int // number of First
}

// NewRanges returns the addresses in ranges that are not in excluded, numbered in ascending order. It returns
// an error if ranges overlap, if all addresses are excluded, or if a range or the result has more than 2^20
// addresses. All ranges must be of one address family.
func NewRanges(ranges, excluded []Range) (Ranges, error) {
	ranges, excluded = slices.Clone(ranges), slices.Clone(excluded)
	byFirst := func(a, b Range) int { return a.First.Compare(b.First) }
	slices.SortFunc(ranges, byFirst)
	slices.SortFunc(excluded, byFirst)
	for i, r := range ranges {
		if i > 0 && ranges[i-1].Contains(r.First) {
			return Ranges{}, fmt.Errorf("ranges %v and %v overlap", ranges[i-1], r)
		}
		if high(r.First) != high(r.Last) || low(r.Last)-low(r.First) >= maxSize {
			return Ranges{}, fmt.Errorf("range %v has more than %d addresses, the limit of a pool", r, maxSize)
		}
	}
	var all Ranges
	for _, r := range ranges {
		for _, x := range excluded {
			if x.Last.Less(r.First) || r.Last.Less(x.First) {
				continue
			}
			if r.First.Less(x.First) {
				all.add(Range{r.First, x.First.Prev()})
			}
			r.First = x.Last.Next() // invalid after the last address of the family
			if !r.First.IsValid() || r.Last.Less(r.First) {
				r = Range{}
				break
			}
		}
		if r.First.IsValid() {
			all.add(r)
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

func (r *Ranges) add(added Range) {
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
