package pool

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"time"
)

// relistEvery is how often addresses to reclaim are looked for, at most.
const relistEvery = time.Second

var zero time.Time

// choose finds an address for a client that has none, and that is reserved for nobody else: what is reserved for it, what
// it had, what it asks for, one that nobody was found to use, a free one where the hash of its identity points to (so that replicas
// choose the same), what nobody needs any more, and at last what was offered longest ago to a client that has not come back. Not
// valid: there is none.
func (p *Pool) choose(c Client, wanted netip.Addr) netip.Addr {
	candidates := []netip.Addr{c.Reserved}
	if e := p.current(c.Holder); e != nil {
		candidates = append(candidates, e.binding.Addr)
	}
	for _, a := range append(candidates, wanted) {
		if a.IsValid() && p.permitted(c, a) && p.open(c, a) {
			return a
		}
	}
	if a := p.takeUnused(c, p.Clock.Now()); a.IsValid() {
		return a
	}
	start := fnv.New64a()
	_, _ = start.Write([]byte(c.Holder))                 // it cannot fail
	from := int(start.Sum64() % uint64(p.Ranges.Size())) //nolint:gosec // a remainder of an int
	for range p.Ranges.Size() - p.taken.taken {
		i, _ := p.taken.free(from)
		if a := p.Ranges.Addr(i); !p.anothers(c, a) {
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
			if p.permitted(c, oldest.addr) && p.open(c, oldest.addr) {
				return oldest.addr
			}
		}
	}
	return netip.Addr{}
}

// reclaim finds the longest unused address whose binding is over.
func (p *Pool) reclaim(c Client) netip.Addr {
	for range 2 {
		for len(p.reclaimable) > 0 {
			a := p.reclaimable[0]
			p.reclaimable = p.reclaimable[1:]
			if p.open(c, a) {
				return a
			}
		}
		if now := p.Clock.Now(); now.Sub(p.relisted) < relistEvery {
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
		if _, ok := p.Ranges.Number(a); ok && e.binding.Holder != "" && p.over(e) && e.heldBy == "" {
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

// hold keeps an address for a client that was offered it.
func (p *Pool) hold(c Client, a netip.Addr) {
	h := p.holder(c.Holder)
	if h.held.IsValid() && h.held != a {
		p.unhold(h.held)
		h = p.holder(c.Holder)
	}
	e, now := p.entry(a), p.Clock.Now()
	if e.heldBy == c.Holder && e.heldTill.Sub(now) > holdFor/2 {
		return // a flood of one client's must not fill the list
	}
	if e.heldBy != "" && e.heldBy != c.Holder {
		p.unhold(a)
		e = p.entry(a)
	}
	e.looked = e.looked && e.heldBy == c.Holder
	e.heldBy, e.heldTill, h.held = c.Holder, now.Add(holdFor), a
	p.holds = append(p.holds, hold{a, e.heldTill})
}

// expireHolds ends the offers whose time is over.
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
