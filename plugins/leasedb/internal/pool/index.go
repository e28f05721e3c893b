package pool

import (
	"net/netip"
	"slices"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// Replace implements store.Sink. Bindings that are newer than the list remain.
func (p *Pool) Replace(all []store.Binding, revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	listed := make(map[netip.Addr]bool, len(all))
	if !p.loaded {
		p.loadMark(all)
	}
	for _, b := range all {
		listed[b.Addr] = true
		p.apply(b)
	}
	for addr, e := range p.entries {
		if e.binding.Holder != "" && !listed[addr] && e.binding.Revision <= revision {
			p.recordLoss(e, "")
			p.drop(addr)
		}
	}
	if !p.loaded {
		p.loaded, p.loadedAt = true, p.Clock.Now()
		p.rebuilding = p.Suspect != "" || p.Directory != nil && len(all) == 0
		p.logOutOfRange()
	}
	if p.rebuilding && p.Suspect == "" && len(all) > 0 {
		p.rebuilding = false // the snapshot file was empty, but the store is not
	}
}

// loadMark sets the mark to the newest time in the store.
func (p *Pool) loadMark(all []store.Binding) {
	if p.Marker != nil {
		p.mark = p.Marker.Mark()
	}
	for _, b := range all {
		if b.Used.After(p.mark) {
			p.mark = b.Used
		}
	}
}

// Set implements store.Sink.
func (p *Pool) Set(b store.Binding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apply(b)
}

// Remove implements store.Sink.
func (p *Pool) Remove(addr netip.Addr, revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[addr]; e != nil && e.binding.Revision < revision {
		p.recordLoss(e, "")
		p.drop(addr)
	}
}

// apply updates an entry with a stored binding, unless it has a newer one.
func (p *Pool) apply(b store.Binding) {
	if !p.CIDR.Contains(b.Addr) {
		return
	}
	e := p.entry(b.Addr)
	before := e.binding
	if before.Holder != "" && before.Revision >= b.Revision {
		return
	}
	if before.Holder != "" && before.Holder != b.Holder && before.UID == b.UID && !b.Released && b.Holder != store.Declined {
		p.recordLoss(e, b.Holder) // no replica changes the holder of a binding in force
	}
	e.binding = b
	p.changes++
	if before.Holder != b.Holder || !before.Expires.Equal(b.Expires) {
		e.minEnd = p.minimumEnd(b)
	}
	if before.Holder != b.Holder || before.Released && !b.Released {
		e.boundAt, e.ackedAt, e.unconfirmedDecline, e.confirmed = zero, zero, false, p.loaded
		if p.loaded {
			e.boundAt, e.ackedAt = p.Clock.Now(), p.Clock.Now()
		}
	}
	if before.Holder != b.Holder {
		if before.Holder != "" {
			p.unbind(b.Addr, before.Holder)
		}
		h := p.holder(b.Holder)
		h.addrs = append(h.addrs, b.Addr)
	}
	if e.user != "" && e.user == b.MAC && b.Holder != store.Declined && !b.Released {
		e.endAvoidance() // a probe found it in use before its binding was known
	}
	if !b.Released {
		p.endLoss(b.Holder)
	}
	if e.heldBy != "" && !p.ended(e) {
		p.unhold(b.Addr) // the offer has become a binding, of this or another client
	}
}

// drop removes the binding of an address.
func (p *Pool) drop(addr netip.Addr) {
	e := p.entries[addr]
	p.unbind(addr, e.binding.Holder)
	e.binding = store.Binding{}
	p.changes++
	p.removeIfEmpty(addr)
}

func (p *Pool) unbind(addr netip.Addr, name string) {
	e := p.entries[addr]
	e.deletedAt, e.missingSince, e.newDescription = zero, zero, nil
	if h := p.holders[name]; h != nil {
		h.addrs = slices.DeleteFunc(h.addrs, func(a netip.Addr) bool { return a == addr })
		p.removeHolderIfEmpty(name)
	}
}

// unhold removes the offer of an address.
func (p *Pool) unhold(addr netip.Addr) {
	e := p.entries[addr]
	if h := p.holders[e.heldBy]; h != nil && h.held == addr {
		h.held = netip.Addr{}
		p.removeHolderIfEmpty(e.heldBy)
	}
	e.heldBy, e.heldTill, e.probed = "", zero, false
	p.removeIfEmpty(addr)
}

// current returns the entry with the newest binding of a holder, or nil. The holder has older ones if it asked two
// replicas at once, or moved.
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

// newer reports whether a precedes b: bindings in force precede released ones, then the newer one precedes.
func newer(a, b store.Binding) bool {
	if a.Released != b.Released {
		return b.Released
	}
	if !a.Used.Equal(b.Used) {
		return a.Used.After(b.Used)
	}
	return b.Addr.Less(a.Addr)
}

// isProtected reports whether an address is never leased.
func (p *Pool) isProtected(a netip.Addr) bool {
	return slices.ContainsFunc(p.Protected, func(r v1alpha1.AddressRange) bool { return r.Contains(a) })
}

// permitted reports whether a client may have the address, whether or not it is free.
func (p *Pool) permitted(c Client, a netip.Addr) bool {
	if p.isProtected(a) || !p.CIDR.Contains(a) {
		return false
	}
	_, ok := p.Ranges.Number(a)
	return ok || a == c.Reserved
}

// inForce reports whether a binding currently entitles the client to its address. A VM's binding does so outside of the
// ranges, too, unless the address is reserved for another VM.
func (p *Pool) inForce(c Client, e *entry) bool {
	b, now := e.binding, p.Clock.Now()
	if b.Released || e.avoided(c, now) || p.isProtected(b.Addr) {
		return false
	}
	if b.Expires.IsZero() {
		return p.permitted(c, b.Addr) || !p.reservedForOther(c, b.Addr)
	}
	return p.permitted(c, b.Addr) && b.Expires.After(now)
}

// reservedForOther reports whether an address is reserved for another VM.
func (p *Pool) reservedForOther(c Client, a netip.Addr) bool {
	if p.Directory == nil {
		return false
	}
	owner, reserved := p.Directory.ReservedFor(a)
	return reserved && owner.String() != c.Holder
}

// available reports whether an address can be leased to a client without a binding in force for it.
func (p *Pool) available(c Client, a netip.Addr) bool {
	if p.reservedForOther(c, a) {
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
	return e.binding.Holder == "" || e.binding.Holder == c.Holder || p.ended(e)
}

// avoided reports whether an address must not be leased to a client now, because it was declined, found in use, or is
// not usable. The host that was found to use the address may lease it.
func (e *entry) avoided(c Client, now time.Time) bool {
	return e.avoidUntil.After(now) && (e.user == "" || e.user != c.MAC)
}

// ended reports whether the binding of an entry has ended, so that any client can have the address.
func (p *Pool) ended(e *entry) bool {
	b := e.binding
	if b.Released {
		return true
	}
	end := b.Expires
	if e.minEnd.After(end) {
		end = e.minEnd
	}
	if b.Holder != store.Declined {
		end = end.Add(grace)
	}
	return !b.Expires.IsZero() && end.Before(p.Clock.Now())
}

// minimumEnd returns the earliest time at which an expiring binding may end, independently of the clock of the replica
// that wrote it. A new binding is valid for its lease time from now on. One that was stored before this process started
// is valid for the time that remained at the last write to the store, because no clock reliably shows how long ago that
// was.
func (p *Pool) minimumEnd(b store.Binding) time.Time {
	left := b.Expires.Sub(b.Used)
	if !p.loaded {
		left = b.Expires.Sub(p.mark)
	}
	if b.Expires.IsZero() || left <= 0 {
		return zero
	}
	return p.Clock.Now().Add(left)
}

// logOutOfRange logs the bindings that the configuration no longer covers.
func (p *Pool) logOutOfRange() {
	for addr, e := range p.entries {
		b := e.binding
		if b.Holder == "" || b.Holder == store.Declined || p.ended(e) {
			continue
		}
		if _, ok := p.Ranges.Number(addr); !ok {
			what := "it stays until its VM is deleted"
			if !b.Expires.IsZero() {
				what = "the client gets another address at its next request"
			}
			p.Log.Warn("a binding is outside of the ranges; "+what, "address", addr, "holder", b.Holder)
		}
	}
}
