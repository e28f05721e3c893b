package pool

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/neighbour"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// Verdict is what becomes of a message.
type Verdict int

// The verdicts.
const (
	// Silent: no answer. Another server may have one, or the client asks again.
	Silent Verdict = iota
	// Grant: the client has, or is offered, the address.
	Grant
	// Refuse: the client must not use the address.
	Refuse
)

// Answer is what a client is told.
type Answer struct {
	Verdict Verdict
	Addr    netip.Addr
	// Lease is for how long the address is granted.
	Lease time.Duration
	// Reason is why there is no grant.
	Reason Reason
}

// Reason is why a client is refused or met with silence; a metric has it as a label.
type Reason string

// Reasons that a pool has.
const (
	ReasonNotSynced   Reason = "not-synced"       // the store or the directory is not (yet) known as it is now
	ReasonExhausted   Reason = "exhausted"        // no address is left
	ReasonInProgress  Reason = "in-progress"      // an earlier message of the client, or for the address, is being worked on
	ReasonStore       Reason = "store-failed"     // a write failed, or nobody knows whether it did
	ReasonTaken       Reason = "taken"            // the address is another client's, or not one to give
	ReasonMismatch    Reason = "other-address"    // the client has another address
	ReasonNoBinding   Reason = "no-binding"       // the client has no address, so nothing can be said of it
	ReasonWrongNet    Reason = "wrong-network"    // the address is not in the network
	ReasonNotYours    Reason = "not-the-clients"  // a client gives up what it does not have
	ReasonTooMany     Reason = "too-many"         // a client declines too often
	ReasonLate        Reason = "late-decline"     // a client declines what it was not given just now
	ReasonNotInUse    Reason = "not-in-use"       // a client declines what nobody else was found to use
	ReasonMachine     Reason = "machine-exists"   // a machine's address is not given up while the machine exists
	ReasonOtherServer Reason = "other-server"     // the client has chosen another server
	ReasonDone        Reason = "nothing-to-say"   // the message has no answer
	ReasonUnknown     Reason = "unknown-client"   // the directory does not know the client
	ReasonMalformed   Reason = "malformed"        // the message lacks what its type must have
	ReasonDisregarded Reason = "not-for-a-server" // the message is of no type that a server answers
)

func silent(r Reason) Answer { return Answer{Verdict: Silent, Reason: r} }
func refuse(r Reason) Answer { return Answer{Verdict: Refuse, Reason: r} }

// Discover offers a client an address and keeps it for a minute. Nothing is written.
// wanted is what the client would like, if valid. RFC 2131, section 4.3.1.
func (p *Pool) Discover(c Client, wanted netip.Addr) Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireHolds()
	cur, ready := p.current(c.Holder), p.ready()
	if cur != nil && p.inForce(c, cur) && (!ready || !p.moves(c, cur)) {
		p.seen(c, cur)
		if lease := p.remaining(cur); lease > 0 {
			return Answer{Verdict: Grant, Addr: cur.binding.Addr, Lease: lease}
		}
	}
	if !ready {
		return silent(ReasonNotSynced)
	}
	var addr netip.Addr
	if h := p.holders[c.Holder]; h != nil && h.held.IsValid() && p.permitted(c, h.held) {
		addr = h.held
	} else if addr = p.choose(c, wanted); !addr.IsValid() {
		p.warnExhausted()
		return silent(ReasonExhausted)
	}
	p.hold(c, addr)
	if p.rebuilding {
		return p.offerUnused(c, addr)
	}
	return Answer{Verdict: Grant, Addr: addr, Lease: p.Lease}
}

// offerUnused offers a client the address that is kept for it, or another one, after a look who uses it.
func (p *Pool) offerUnused(c Client, addr netip.Addr) Answer {
	for range mostLooks {
		e := p.entries[addr]
		if e.looked {
			return Answer{Verdict: Grant, Addr: addr, Lease: p.Lease}
		}
		if e.writing {
			return silent(ReasonInProgress)
		}
		found, outcome := p.lookAt(addr)
		if e = p.entries[addr]; e == nil || e.heldBy != c.Holder {
			return silent(ReasonInProgress) // an answer to another of its messages was faster, or the store
		}
		now := p.Clock.Now()
		switch mac := found.MAC.String(); {
		case outcome == lookBusy:
			return silent(ReasonInProgress)
		case outcome == lookBlind, found.Use == neighbour.Free, mac == c.MAC, !p.knows(found.MAC) && p.quarantined() > p.Ranges.Size()/4:
			// One host that answers for all must not keep all from everybody.
			e.looked = true
			return Answer{Verdict: Grant, Addr: addr, Lease: p.Lease}
		case found.Use == neighbour.Used:
			p.unhold(addr)
			p.keepFrom(addr, mac, now)
		default: // the kernel asks again; it knows in a moment
			p.unhold(addr)
			e := p.entry(addr)
			e.avoid, e.user = now.Add(holdFor), mac
		}
		if addr = p.choose(c, netip.Addr{}); !addr.IsValid() {
			p.warnExhausted()
			return silent(ReasonExhausted)
		}
		p.hold(c, addr)
	}
	return silent(ReasonInProgress) // the next message goes on
}

// knows reports whether a MAC address is a machine's.
func (p *Pool) knows(mac net.HardwareAddr) bool {
	if p.Directory == nil {
		return false
	}
	_, ok := p.Directory.Lookup(mac)
	return ok
}

// moves reports whether a client is to go to the address that is reserved for it.
func (p *Pool) moves(c Client, cur *entry) bool {
	return c.Reserved.IsValid() && c.Reserved != cur.binding.Addr && p.permitted(c, c.Reserved) && p.open(c, c.Reserved)
}

// Select gives a client the address that it chose out of offers. RFC 2131, section 4.3.2, SELECTING.
func (p *Pool) Select(ctx context.Context, c Client, addr netip.Addr) Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.noteAck(c, p.selects(ctx, c, addr))
}

func (p *Pool) selects(ctx context.Context, c Client, addr netip.Addr) Answer {
	p.expireHolds()
	if cur := p.current(c.Holder); cur != nil && cur.binding.Addr == addr && p.inForce(c, cur) {
		return p.confirm(ctx, c, cur)
	}
	if !p.ready() {
		return silent(ReasonNotSynced)
	}
	cur, h := p.current(c.Holder), p.holders[c.Holder]
	switch {
	case !p.permitted(c, addr):
		return refuse(ReasonTaken)
	case cur != nil && p.inForce(c, cur) && h.held != addr && !p.has(c, addr):
		return refuse(ReasonMismatch) // it is offered no other, and must not collect them
	default:
		return p.bind(ctx, c, addr)
	}
}

// Verify answers a client that has an address from before it was started: INIT-REBOOT of RFC 2131,
// section 4.3.2. A client that is not known to have any is refused only if the directory knows its
// machine; such a machine gets the address that it uses if nobody else has it.
func (p *Pool) Verify(ctx context.Context, c Client, addr netip.Addr) Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.noteAck(c, p.verify(ctx, c, addr))
}

// Renew answers a client that uses an address, as Verify does: RENEWING and REBINDING. Such a client has checked the
// address before, so that it has no reason to decline it any more.
func (p *Pool) Renew(ctx context.Context, c Client, addr netip.Addr) Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.verify(ctx, c, addr)
	if e := p.entries[addr]; a.Verdict == Grant && e != nil {
		e.acked = zero
	}
	return a
}

// noteAck records when a client was told to use an address. It checks the address then, and may decline it.
func (p *Pool) noteAck(c Client, a Answer) Answer {
	if e := p.entries[a.Addr]; a.Verdict == Grant && e != nil && e.binding.Holder == c.Holder {
		e.acked = p.Clock.Now()
	}
	return a
}

func (p *Pool) verify(ctx context.Context, c Client, addr netip.Addr) Answer {
	p.expireHolds()
	cur := p.current(c.Holder)
	if cur != nil && cur.binding.Addr == addr && p.inForce(c, cur) {
		return p.confirm(ctx, c, cur)
	}
	switch {
	case !p.ready():
		return silent(ReasonNotSynced)
	case !c.Machine && cur == nil:
		return silent(ReasonNoBinding)
	case !p.CIDR.Contains(addr):
		return refuse(ReasonWrongNet)
	case p.has(c, addr): // an older binding of its own that it uses after all becomes its newest
		return p.bind(ctx, c, addr)
	case cur != nil && p.inForce(c, cur):
		return refuse(ReasonMismatch)
	case !p.permitted(c, addr), cur != nil && cur.binding.Addr != addr && !c.Machine:
		return refuse(ReasonTaken)
	default:
		return p.bind(ctx, c, addr)
	}
}

// has reports whether an address is the client's by any of its bindings, be it not the newest.
func (p *Pool) has(c Client, addr netip.Addr) bool {
	e := p.entries[addr]
	return e != nil && e.binding.Holder == c.Holder && p.inForce(c, e)
}

// confirm answers the holder of a binding that is in force: without a write for a machine, and for an
// ordinary lease that is young or cannot be written.
func (p *Pool) confirm(ctx context.Context, c Client, e *entry) Answer {
	p.seen(c, e)
	left := p.remaining(e)
	if e.binding.Expires.IsZero() || left > p.Lease-p.Lease/young || e.writing || !p.ready() {
		if left <= 0 {
			return silent(ReasonNotSynced)
		}
		return Answer{Verdict: Grant, Addr: e.binding.Addr, Lease: left}
	}
	answer := p.bind(ctx, c, e.binding.Addr)
	// What was promised before still holds where nothing newer could be written.
	if answer.Verdict != Grant && p.inForce(c, e) && e.binding.Holder == c.Holder {
		if left := p.remaining(e); left > 0 {
			return Answer{Verdict: Grant, Addr: e.binding.Addr, Lease: left}
		}
	}
	return answer
}

// remaining is what a client can be promised of a binding in force, in whole seconds.
func (p *Pool) remaining(e *entry) time.Duration {
	if e.binding.Expires.IsZero() {
		return p.Lease
	}
	return min(e.binding.Expires.Sub(p.Clock.Now()).Truncate(time.Second), p.Lease)
}

// seen takes down that the holder of a binding is there.
func (p *Pool) seen(c Client, e *entry) {
	e.gone, e.missing, e.describe, e.confirmed = zero, zero, nil, true
	if b := e.binding; b.MAC != c.MAC || b.Hostname != c.Hostname {
		e.describe = &c
	}
}

// bind writes a binding and answers by what came of it. The lock is not held meanwhile.
func (p *Pool) bind(ctx context.Context, c Client, addr netip.Addr) Answer {
	if h := p.holders[c.Holder]; h != nil && h.writing {
		return silent(ReasonInProgress)
	}
	if e := p.entries[addr]; e != nil && e.writing {
		return silent(ReasonInProgress)
	}
	if !p.open(c, addr) {
		return refuse(ReasonTaken)
	}
	e, h := p.entry(addr), p.holder(c.Holder)
	e.writing, h.writing = true, true
	defer func() {
		e.writing, h.writing = false, false
		p.tidy(addr)
		p.tidyHolder(c.Holder)
	}()
	b, err := p.put(ctx, p.binding(c, e.binding, addr))
	if errors.Is(err, store.ErrConflict) {
		if why := p.reread(ctx, c, addr); why.Reason != "" {
			return why
		}
		b, err = p.put(ctx, p.binding(c, e.binding, addr))
	}
	switch {
	case errors.Is(err, store.ErrConflict):
		return silent(ReasonInProgress) // a replica is at it, too
	case err != nil:
		p.warnFailed(addr, c, err)
		return silent(ReasonStore)
	}
	p.apply(b)
	if e.binding.Holder != c.Holder {
		return refuse(ReasonTaken) // reclaimed in the moment between
	}
	e.avoid, e.user = zero, "" // it was the client that used it
	if h.held.IsValid() && h.held != addr {
		p.unhold(h.held)
	}
	return Answer{Verdict: Grant, Addr: addr, Lease: p.Lease}
}

// binding is what is written for a client, in place of what is there.
func (p *Pool) binding(c Client, before store.Binding, addr netip.Addr) store.Binding {
	now := p.Clock.Now().UTC().Truncate(time.Microsecond)
	b := store.Binding{Addr: addr, Holder: c.Holder, MAC: c.MAC, Hostname: c.Hostname, Used: now, UID: before.UID, Revision: before.Revision}
	if cur := p.current(c.Holder); cur != nil && !cur.binding.Used.Before(now) {
		b.Used = cur.binding.Used.Add(time.Microsecond) // another replica's clock is ahead
	}
	if !c.Machine {
		b.Expires = now.Add(p.Lease)
	}
	return b
}

// put writes without the lock.
func (p *Pool) put(ctx context.Context, b store.Binding) (store.Binding, error) {
	p.mu.Unlock()
	defer p.mu.Lock()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return p.Store.Put(ctx, b) //nolint:wrapcheck // it is logged where it is handled
}

// reread finds out what somebody else has just written. Without a reason in the answer the client can
// have the address: a replica wrote it for the same client, or nobody has it any more. It is then written
// again, so that it is the client's newest on all replicas.
func (p *Pool) reread(ctx context.Context, c Client, addr netip.Addr) Answer {
	p.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, writeTimeout)
	b, err := p.Store.Get(bounded, addr)
	cancel()
	p.mu.Lock()
	e := p.entry(addr)
	switch {
	case errors.Is(err, store.ErrNotFound):
		p.drop(addr)
		return Answer{}
	case errors.Is(err, store.ErrUnusable):
		e.avoid, e.user = p.Clock.Now().Add(unusableFor), ""
		p.Log.Error("an address cannot be given out", "address", addr, "err", err)
		return refuse(ReasonTaken)
	case err != nil:
		return silent(ReasonStore)
	}
	p.apply(b)
	if e.binding.Holder != c.Holder && !p.over(e) {
		return refuse(ReasonTaken)
	}
	return Answer{}
}
