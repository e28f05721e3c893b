package pool

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"time"
)

// relistInterval is the minimum time between two searches for reclaimable addresses.
const relistInterval = time.Second

var zero time.Time

// choose returns an address for a client without a binding in force, or an invalid address if none is left. It
// prefers, in this order: the reserved address, the previous address, the address of a lost binding, the wanted
// address, a probed free address, a free address by hash of the client's identity (so that replicas choose the same),
// an address whose binding has ended, and the address that was offered longest ago and not requested.
func (p *Pool) choose(c Client, wanted netip.Addr) netip.Addr {
	candidates := []netip.Addr{c.Reserved}
	if e := p.current(c.Holder); e != nil {
		candidates = append(candidates, e.binding.Addr)
	}
	if l, ok := p.lost[c.Holder]; ok && l.NewHolder == "" {
		candidates = append(candidates, l.Addr)
	}
	for _, a := range append(candidates, wanted) {
		if a.IsValid() && p.permitted(c, a) && p.available(c, a) {
			return a
		}
	}
	if a := p.takeUnused(c, p.Clock.Now()); a.IsValid() {
		return a
	}
	start := fnv.New64a()
	_, _ = start.Write([]byte(c.Holder))                 // never returns an error
	from := int(start.Sum64() % uint64(p.Ranges.Size())) //nolint:gosec // less than an int
	for range p.Ranges.Size() - p.taken.taken {
		i, _ := p.taken.free(from)
		if a := p.Ranges.Addr(i); !p.reservedForOther(c, a) {
			return a
		}
		from = (i + 1) % p.Ranges.Size()
	}
	if a := p.reclaim(c); a.IsValid() {
		return a
	}
	for len(p.holds) > 0 {
		oldest := p.holds[0]
		p.holds = p.holds[1:]
		if e := p.entries[oldest.addr]; e != nil && e.heldTill.Equal(oldest.until) && !e.writing {
			p.unhold(oldest.addr)
			if p.permitted(c, oldest.addr) && p.available(c, oldest.addr) {
				return oldest.addr
			}
		}
	}
	return netip.Addr{}
}

// reclaim returns the longest unused address whose binding has ended.
func (p *Pool) reclaim(c Client) netip.Addr {
	for range 2 {
		for len(p.reclaimable) > 0 {
			a := p.reclaimable[0]
			p.reclaimable = p.reclaimable[1:]
			if p.available(c, a) {
				return a
			}
		}
		if now := p.Clock.Now(); now.Sub(p.relisted) < relistInterval {
			break
		}
		p.relist()
	}
	return netip.Addr{}
}

func (p *Pool) relist() {
	p.relisted = p.Clock.Now()
	p.reclaimable = p.reclaimable[:0]
	for a, e := range p.entries {
		if _, ok := p.Ranges.Number(a); ok && e.binding.Holder != "" && p.ended(e) && e.heldBy == "" {
			p.reclaimable = append(p.reclaimable, a)
		}
	}
	slices.SortFunc(p.reclaimable, func(a, b netip.Addr) int {
		if c := p.entries[a].binding.Used.Compare(p.entries[b].binding.Used); c != 0 {
			return c
		}
		return a.Compare(b)
	})
}

// hold reserves an offered address for a client.
func (p *Pool) hold(c Client, a netip.Addr) {
	h := p.holder(c.Holder)
	if h.held.IsValid() && h.held != a {
		p.unhold(h.held)
		h = p.holder(c.Holder)
	}
	e, now := p.entry(a), p.Clock.Now()
	if e.heldBy == c.Holder && e.heldTill.Sub(now) > holdFor/2 {
		return // a flood of messages from one client must not fill the list
	}
	if e.heldBy != "" && e.heldBy != c.Holder {
		p.unhold(a)
		e = p.entry(a)
	}
	e.probed = e.probed && e.heldBy == c.Holder
	e.heldBy, e.heldTill, h.held = c.Holder, now.Add(holdFor), a
	p.holds = append(p.holds, hold{a, e.heldTill})
}

// expireHolds removes expired offers.
func (p *Pool) expireHolds() {
	now := p.Clock.Now()
	for len(p.holds) > 0 && !p.holds[0].until.After(now) {
		first := p.holds[0]
		p.holds = p.holds[1:]
		if e := p.entries[first.addr]; e != nil && e.heldTill.Equal(first.until) && !e.writing {
			p.unhold(first.addr)
		}
	}
}
