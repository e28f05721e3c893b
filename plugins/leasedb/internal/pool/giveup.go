package pool

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/neighbour"
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
//
// Anyone on the network can send a DECLINE in another's name. It counts only for a short time after an ACK to a client
// that did not use the address yet, once, and if somebody else answers for the address. Where that cannot be found
// out, or nobody answers, it counts only for an address that is new to the client, see inUseByOther.
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
	case now.Sub(e.acked) > declineFor:
		p.warnDoubted(c, addr, "it came too long after the ACK, or after a renewal")
		return ReasonLate
	}
	recent := slices.DeleteFunc(p.declines[c.Holder], func(t time.Time) bool { return now.Sub(t) >= p.Quarantine })
	if len(recent) >= declinesPerClient || p.quarantined() > p.Ranges.Size()/4 {
		return ReasonTooMany
	}
	e.acked = zero
	e.writing = true                  // what is asked for meanwhile finds things as they are
	user, why := p.inUseByOther(c, e) //nolint:contextcheck // several clients share a look
	e.writing = false
	switch {
	case e.binding.Holder != c.Holder || e.binding.Released: // another replica wrote meanwhile
		p.tidy(addr)
		return ReasonDone
	case why != "":
		return why
	case p.quarantined() > p.Ranges.Size()/4: // by others, meanwhile
		return ReasonTooMany
	}
	now = p.Clock.Now()
	p.declines[c.Holder] = append(recent, now)
	e.avoid, e.user = now.Add(p.Quarantine), ""
	p.Log.Warn("a client found its address in use by somebody else", "address", addr, "holder", c.Holder, "mac", c.MAC, "user", user, "quarantine", p.Quarantine)
	if !ours || !p.ready() {
		return ReasonDone
	}
	b := e.binding
	b.Holder, b.Expires, b.Released, b.Used = store.Declined, e.avoid.UTC().Truncate(time.Microsecond), false, later(b.Used, now)
	p.write(ctx, e, b, "a quarantine could not be written; this replica keeps it in mind")
	return ReasonDone
}

// inUseByOther looks who answers for an address that a client declines. It returns the MAC address of whoever does, empty
// where nobody can tell, or why the client is not believed.
func (p *Pool) inUseByOther(c Client, e *entry) (user string, why Reason) {
	addr, fresh := e.binding.Addr, p.Clock.Now().Sub(e.bound) <= declineFor
	found, outcome := p.lookAt(addr)
	mac := found.MAC.String()
	switch {
	case outcome == looked && found.Use == neighbour.Used && mac != c.MAC:
		return mac, ""
	case outcome == looked && found.Use != neighbour.Free && mac == c.MAC: // just now, or a moment ago
		p.warnDoubted(c, addr, "the client itself answers for it")
	case !fresh:
		p.warnDoubted(c, addr, "nobody else is seen to answer for it, and the client has had it before")
	case outcome == looked && !e.doubted: // it may see more than we do: if it declines the address again it has its way
		e.doubted = true
		p.warnDoubted(c, addr, "nobody else answers for it")
	default:
		return "", ""
	}
	return "", ReasonNotInUse
}

// warnDoubted reports the first of many DECLINEs that are not believed.
func (p *Pool) warnDoubted(c Client, addr netip.Addr, why string) {
	if p.warn(&p.lastDoubted) {
		p.Log.Warn("a DECLINE is ignored; it may be forged", "address", addr, "holder", c.Holder, "mac", c.MAC, "reason", why)
	}
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
