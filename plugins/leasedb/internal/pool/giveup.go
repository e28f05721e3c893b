package pool

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// Forget ends an offer to a client that chose another server's.
func (p *Pool) Forget(c Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.holders[c.Holder]; h != nil && h.held.IsValid() && !p.entries[h.held].writing {
		p.unhold(h.held)
	}
}

// Release ends an ordinary lease; the client gets the address back while nobody needed it. A machine's
// address is its own for as long as it exists. RFC 2131, section 4.3.4.
func (p *Pool) Release(ctx context.Context, c Client, addr netip.Addr) Reason {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[addr]
	switch {
	case e == nil || e.binding.Holder != c.Holder || e.binding.Released:
		return ReasonNotYours
	case c.Machine:
		return ReasonMachine
	case e.writing:
		return ReasonInProgress
	}
	p.release(ctx, e)
	return ReasonDone
}

// release writes down that a binding's holder has the address no more.
func (p *Pool) release(ctx context.Context, e *entry) {
	b := e.binding
	b.Released, b.Used = true, later(b.Used, p.Clock.Now())
	p.write(ctx, e, b, "an address could not be released")
}

// write replaces a binding whose holder does not wait for it. A failure is logged, and what is in the
// store stays true.
func (p *Pool) write(ctx context.Context, e *entry, b store.Binding, failure string) {
	e.writing = true
	written, err := p.put(ctx, b)
	e.writing = false
	if err != nil {
		p.Log.Warn(failure, "address", b.Addr, "holder", b.Holder, "err", err)
		p.tidy(b.Addr)
		return
	}
	p.apply(written)
}

// Decline takes an address from a client that found it in use, and keeps it from everybody for the
// time of a quarantine. ours: the address was this server's to give, so that it writes; other
// replicas only heed it. RFC 2131, section 4.3.3.
func (p *Pool) Decline(ctx context.Context, c Client, addr netip.Addr, ours bool) Reason {
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
	}
	recent := slices.DeleteFunc(p.declines[c.Holder], func(t time.Time) bool { return now.Sub(t) >= p.Quarantine })
	if len(recent) >= declinesPerClient || p.quarantined() > p.Ranges.Size()/4 {
		return ReasonTooMany
	}
	p.declines[c.Holder] = append(recent, now)
	e.avoid, e.user = now.Add(p.Quarantine), ""
	p.Log.Warn("a client found its address in use by somebody else", "address", addr, "holder", c.Holder, "mac", c.MAC, "quarantine", p.Quarantine)
	if !ours || !p.ready() {
		return ReasonDone
	}
	b := e.binding
	b.Holder, b.Expires, b.Released, b.Used = store.Declined, e.avoid.UTC().Truncate(time.Microsecond), false, later(b.Used, now)
	p.write(ctx, e, b, "a quarantine could not be written; this replica keeps it in mind")
	return ReasonDone
}

// quarantined counts addresses that were declined.
func (p *Pool) quarantined() int {
	n, now := 0, p.Clock.Now()
	for _, e := range p.entries {
		if e.avoid.After(now) || e.binding.Holder == store.Declined && e.binding.Expires.After(now) {
			n++
		}
	}
	return n
}

// later returns a time to the microsecond, after another one.
func later(than, t time.Time) time.Time {
	if t = t.UTC().Truncate(time.Microsecond); t.After(than) {
		return t
	}
	return than.Add(time.Microsecond)
}
