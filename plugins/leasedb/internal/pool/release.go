package pool

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// Forget withdraws the offer to a client that selected another server.
func (p *Pool) Forget(c Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.holders[c.Holder]; h != nil && h.held.IsValid() && !p.entries[h.held].writing {
		p.unhold(h.held)
	}
}

// Release handles RELEASE (RFC 2131, section 4.3.4). It ends an ordinary lease; the client gets the same address again
// unless another client has needed it. A VM keeps its address as long as it exists. Release returns ReasonDone, or why
// it released nothing.
func (p *Pool) Release(ctx context.Context, c Client, addr netip.Addr) Reason {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[addr]
	switch {
	case e == nil || e.binding.Holder != c.Holder || e.binding.Released:
		return ReasonNotYours
	case c.VM:
		return ReasonVMExists
	case e.writing:
		return ReasonInProgress
	}
	p.release(ctx, e)
	return ReasonDone
}

// release writes that a binding has ended.
func (p *Pool) release(ctx context.Context, e *entry) {
	b := e.binding
	b.Released, b.Used = true, later(b.Used, p.Clock.Now())
	p.write(ctx, e, b, "cannot release an address")
}

// write replaces the binding of an entry, for callers whose client does not wait for the write. If the write fails, it
// logs the text failure, and the previous binding remains.
func (p *Pool) write(ctx context.Context, e *entry, b store.Binding, failure string) {
	e.writing = true
	written, err := p.put(ctx, b)
	e.writing = false
	if err != nil {
		p.Log.Warn(failure, "address", b.Addr, "holder", b.Holder, "err", err)
		p.removeIfEmpty(b.Addr)
		return
	}
	p.apply(written)
}

// Decline handles DECLINE (RFC 2131, section 4.3.3). It takes an address from a client that found it in use, and
// quarantines it. selected is set if the client selected this server, which then writes the quarantine; other
// replicas only keep it in memory.
//
// Any host on the network can forge a DECLINE of a client. Decline accepts a DECLINE once for each ACK, only for a
// short time after an ACK to a client that did not use the address before, and only if another host answers for the
// address. If that cannot be determined, or no host answers, the address must be new to the client; see inUseByOther.
// Decline returns ReasonDone if the address is quarantined or the client has lost it, or why it ignores the DECLINE.
func (p *Pool) Decline(ctx context.Context, c Client, addr netip.Addr, selected bool) Reason {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, now := p.entries[addr], p.Clock.Now()
	switch {
	case e == nil || e.binding.Holder != c.Holder || e.binding.Released:
		return ReasonNotYours
	case e.writing:
		return ReasonInProgress
	case e.avoided(c, now):
		return ReasonDone
	case now.Sub(e.ackedAt) > declineFor:
		p.warnIgnoredDecline(c, addr, "too long after the ACK, or after a renewal")
		return ReasonLate
	}
	recent := slices.DeleteFunc(p.declines[c.Holder], func(t time.Time) bool { return now.Sub(t) >= p.Quarantine })
	if len(recent) >= declinesPerClient || p.quarantined() > p.Ranges.Size()/4 {
		return ReasonTooMany
	}
	e.ackedAt = zero
	e.writing = true                  // the entry must not change during the probe
	user, why := p.inUseByOther(c, e) //nolint:contextcheck // several clients share a probe
	e.writing = false
	switch {
	case e.binding.Holder != c.Holder || e.binding.Released: // another replica has written the binding
		p.removeIfEmpty(addr)
		return ReasonDone
	case why != "":
		return why
	case p.quarantined() > p.Ranges.Size()/4: // by other clients, during the probe
		return ReasonTooMany
	}
	now = p.Clock.Now()
	p.declines[c.Holder] = append(recent, now)
	e.quarantine(now.Add(p.Quarantine), user, now)
	p.Log.Warn("a client declined its address as used by another host; quarantining it", "address", addr, "holder", c.Holder,
		"mac", c.MAC, "user", user, "quarantine", p.Quarantine)
	if !selected || !p.ready() {
		return ReasonDone
	}
	b := e.binding
	b.Holder, b.Expires, b.Released, b.Used = store.Declined, e.avoidUntil.UTC().Truncate(time.Microsecond), false, later(b.Used, now)
	p.write(ctx, e, b, "cannot write the quarantine of an address; only this replica applies it")
	return ReasonDone
}

// inUseByOther probes an address that a client declines. It returns the MAC address of the other host that uses it,
// empty if unknown, or the reason why the DECLINE is not accepted.
func (p *Pool) inUseByOther(c Client, e *entry) (user string, why Reason) {
	addr, fresh := e.binding.Addr, p.Clock.Now().Sub(e.boundAt) <= declineFor
	found, outcome := p.probeAddress(addr)
	mac := found.MAC.String()
	switch {
	case outcome == probed && found.Use == neighbours.Used && mac != c.MAC:
		return mac, ""
	case outcome == probed && found.Use != neighbours.Free && mac == c.MAC: // now or shortly before
		p.warnIgnoredDecline(c, addr, "the client answers for the address")
	case !fresh:
		p.warnIgnoredDecline(c, addr, "no other host answers for the address, which is not new to the client")
	case outcome == probed && !e.unconfirmedDecline: // the client may see a host that the probe did not find: accept its next DECLINE
		e.unconfirmedDecline = true
		p.warnIgnoredDecline(c, addr, "no other host answers for the address")
	default:
		return "", ""
	}
	return "", ReasonNotInUse
}

// warnIgnoredDecline logs an ignored DECLINE, at most once per warnInterval.
func (p *Pool) warnIgnoredDecline(c Client, addr netip.Addr, why string) {
	if p.shouldWarn(&p.lastIgnoredDecline) {
		p.Log.Warn("ignoring a DECLINE, which may be forged", "address", addr, "holder", c.Holder, "mac", c.MAC, "reason", why)
	}
}

// quarantined returns the number of addresses that were declined or found in use, or are not usable. Addresses kept
// for VMs whose bindings were lost do not count.
func (p *Pool) quarantined() int {
	n, now := 0, p.Clock.Now()
	kept := map[netip.Addr]bool{}
	for _, l := range p.lost {
		kept[l.Addr] = true
	}
	for a, e := range p.entries {
		if e.usage == nil && kept[a] {
			continue
		}
		if e.avoidUntil.After(now) || e.binding.Holder == store.Declined && e.binding.Expires.After(now) {
			n++
		}
	}
	return n
}

// later returns t in microseconds, or the first microsecond after than if t is not later.
func later(than, t time.Time) time.Time {
	if t = t.UTC().Truncate(time.Microsecond); t.After(than) {
		return t
	}
	return than.Add(time.Microsecond)
}
