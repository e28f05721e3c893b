package pool

import (
	"net/netip"
	"slices"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// Replace is store.Sink's. Bindings that were written after the list was made stay.
func (p *Pool) Replace(all []store.Binding, revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	listed := make(map[netip.Addr]bool, len(all))
	if !p.loaded {
		p.setMark(all)
	}
	for _, b := range all {
		listed[b.Addr] = true
		p.apply(b)
	}
	for addr, e := range p.entries {
		if e.binding.Holder != "" && !listed[addr] && e.binding.Revision <= revision {
			p.drop(addr)
		}
	}
	if !p.loaded {
		p.loaded, p.loadedAt = true, p.Clock.Now()
		p.rebuilding = p.Suspect != "" || p.Directory != nil && len(all) == 0
		p.reportDropped()
	}
	if p.rebuilding && p.Suspect == "" && len(all) > 0 {
		p.rebuilding = false // a snapshot file lacked what the store has
	}
}

// setMark finds the newest time that the store knows of.
func (p *Pool) setMark(all []store.Binding) {
	if p.Marker != nil {
		p.mark = p.Marker.Mark()
	}
	for _, b := range all {
		if b.Used.After(p.mark) {
			p.mark = b.Used
		}
	}
}

// Set is store.Sink's.
func (p *Pool) Set(b store.Binding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apply(b)
}

// Remove is store.Sink's.
func (p *Pool) Remove(addr netip.Addr, revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[addr]; e != nil && e.binding.Revision < revision {
		p.drop(addr)
	}
}

// apply takes in a binding as it is in the store, unless something newer is known.
func (p *Pool) apply(b store.Binding) {
	if !p.CIDR.Contains(b.Addr) {
		return
	}
	e := p.entry(b.Addr)
	before := e.binding
	if before.Holder != "" && before.Revision >= b.Revision {
		return
	}
	e.binding = b
	p.changes++
	if before.Holder != b.Holder || !before.Expires.Equal(b.Expires) {
		e.guard = p.guarded(b)
	}
	if before.Holder != b.Holder || before.Released && !b.Released {
		e.bound, e.acked, e.doubted, e.confirmed = zero, zero, false, p.loaded
		if p.loaded {
			e.bound, e.acked = p.Clock.Now(), p.Clock.Now()
		}
	}
	if before.Holder != b.Holder {
		if before.Holder != "" {
			p.unbind(b.Addr, before.Holder)
		}
		h := p.holder(b.Holder)
		h.addrs = append(h.addrs, b.Addr)
	}
	if e.heldBy != "" && !p.over(e) {
		p.unhold(b.Addr) // it has become the client's, or somebody else's
	}
}

// drop forgets an address's binding.
func (p *Pool) drop(addr netip.Addr) {
	e := p.entries[addr]
	p.unbind(addr, e.binding.Holder)
	e.binding = store.Binding{}
	p.changes++
	p.tidy(addr)
}

func (p *Pool) unbind(addr netip.Addr, name string) {
	e := p.entries[addr]
	e.gone, e.missing, e.describe = zero, zero, nil
	if h := p.holders[name]; h != nil {
		h.addrs = slices.DeleteFunc(h.addrs, func(a netip.Addr) bool { return a == addr })
		p.tidyHolder(name)
	}
}

// unhold ends an offer.
func (p *Pool) unhold(addr netip.Addr) {
	e := p.entries[addr]
	if h := p.holders[e.heldBy]; h != nil && h.held == addr {
		h.held = netip.Addr{}
		p.tidyHolder(e.heldBy)
	}
	e.heldBy, e.heldTill, e.looked = "", zero, false
	p.tidy(addr)
}

// current returns the binding in force of a client: the newest. There can be older ones where
// it asked two replicas at a time, or moved.
func (p *Pool) current(name string) *entry {
	var newest *entry
	h := p.holders[name]
	if h == nil {
		return nil
	}
	for _, a := range h.addrs {
		if e := p.entries[a]; newest == nil || newer(e.binding, newest.binding) {
			newest = e
		}
	}
	return newest
}

// newer puts bindings that hold before those that are released, and then goes by time.
func newer(a, b store.Binding) bool {
	if a.Released != b.Released {
		return b.Released
	}
	if !a.Used.Equal(b.Used) {
		return a.Used.After(b.Used)
	}
	return b.Addr.Less(a.Addr)
}

// owns reports whether an address is one that no client ever gets.
func (p *Pool) owns(a netip.Addr) bool {
	return slices.ContainsFunc(p.Own, func(r Range) bool { return r.Contains(a) })
}

// permitted reports whether an address is one that a client may have at all.
func (p *Pool) permitted(c Client, a netip.Addr) bool {
	if p.owns(a) || !p.CIDR.Contains(a) {
		return false
	}
	_, ok := p.Ranges.Number(a)
	return ok || a == c.Reserved
}

// inForce reports whether a binding entitles its client to the address now.
func (p *Pool) inForce(c Client, e *entry) bool {
	b, now := e.binding, p.Clock.Now()
	return !b.Released && p.permitted(c, b.Addr) && !e.avoided(c, now) && (b.Expires.IsZero() || b.Expires.After(now))
}

// anothers reports whether an address is reserved for a machine other than the client.
func (p *Pool) anothers(c Client, a netip.Addr) bool {
	if p.Directory == nil {
		return false
	}
	owner, reserved := p.Directory.ReservedFor(a)
	return reserved && owner.String() != c.Holder
}

// open reports whether a client can be given an address that is not in force as its own.
func (p *Pool) open(c Client, a netip.Addr) bool {
	if p.anothers(c, a) {
		return false
	}
	e := p.entries[a]
	if e == nil {
		return true
	}
	now := p.Clock.Now()
	if e.writing || e.avoided(c, now) || e.heldBy != "" && e.heldBy != c.Holder && e.heldTill.After(now) {
		return false
	}
	return e.binding.Holder == "" || e.binding.Holder == c.Holder || p.over(e)
}

// avoided reports whether an address is kept from a client: not from one that was found to use it.
func (e *entry) avoided(c Client, now time.Time) bool {
	return e.avoid.After(now) && (e.user == "" || e.user != c.MAC)
}

// over reports whether anybody can have the address of an entry with a binding.
func (p *Pool) over(e *entry) bool {
	b := e.binding
	if b.Released {
		return true
	}
	end := b.Expires
	if e.guard.After(end) {
		end = e.guard
	}
	if b.Holder != store.Declined {
		end = end.Add(grace)
	}
	return !b.Expires.IsZero() && end.Before(p.Clock.Now())
}

// guarded returns until when a binding with an end holds at least, whatever the clocks of those say who wrote it: what it
// promised holds from when it is told of, and of one from before this process what was left of it when the store was last
// written to. How long ago that was is nothing that a clock can be trusted with.
func (p *Pool) guarded(b store.Binding) time.Time {
	left := b.Expires.Sub(b.Used)
	if !p.loaded {
		left = b.Expires.Sub(p.mark)
	}
	if b.Expires.IsZero() || left <= 0 {
		return zero
	}
	return p.Clock.Now().Add(left)
}

// reportDropped says which bindings the configuration no longer covers.
func (p *Pool) reportDropped() {
	for addr, e := range p.entries {
		b := e.binding
		if b.Holder == "" || b.Holder == store.Declined || p.over(e) {
			continue
		}
		if _, ok := p.Ranges.Number(addr); !ok {
			p.Log.Warn("a binding is outside of the ranges and in force only where the address is reserved for its holder; otherwise the client is moved when it next asks",
				"address", addr, "holder", b.Holder)
		}
	}
}
