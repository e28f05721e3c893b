package pool

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// Verdict is the kind of an Answer.
type Verdict int

const (
	// Silent means no reply. Another server may reply, or the client retries.
	Silent Verdict = iota
	// Grant means that the address is offered or acknowledged.
	Grant
	// Refuse means that the client must not use the address: it gets a NAK.
	Refuse
)

// An Answer is the pool's answer to a message of a client.
type Answer struct {
	Verdict Verdict
	// Addr is the granted address; invalid unless Verdict is Grant.
	Addr netip.Addr
	// Lease is the lease time; 0 unless Verdict is Grant.
	Lease time.Duration
	// Reason is why no address is granted; empty if Verdict is Grant.
	Reason Reason
}

// Reason is why a client is refused or gets no reply. It is the value of a metric label, and the message in a NAK.
type Reason string

// Reasons of a pool and of the plugin.
const (
	ReasonNotSynced   Reason = "not_synced"        // the store or the directory is not synced
	ReasonExhausted   Reason = "exhausted"         // no address is free
	ReasonInProgress  Reason = "in_progress"       // an earlier message of the client, or for the address, is being handled
	ReasonStore       Reason = "store_failed"      // a write failed, or its result is unknown
	ReasonTaken       Reason = "taken"             // the address belongs to another client, or may not be leased
	ReasonMismatch    Reason = "other_address"     // the client has another address
	ReasonNoBinding   Reason = "no_binding"        // the client lacks a binding
	ReasonWrongNet    Reason = "wrong_network"     // the address is not in the network
	ReasonNotYours    Reason = "not_its_address"   // a client releases or declines an address that it does not have
	ReasonTooMany     Reason = "too_many_declines" // a client declines too often
	ReasonLate        Reason = "late_decline"      // a client declines too long after an ACK
	ReasonNotInUse    Reason = "not_in_use"        // a client declines an address that no other host was found to use
	ReasonVMExists    Reason = "vm_exists"         // the address of a VM is not released while the VM exists
	ReasonOtherServer Reason = "other_server"      // the client selected another server
	ReasonDone        Reason = "no_reply_needed"   // the message needs no reply
	ReasonUnknown     Reason = "unknown_client"    // the directory does not contain the client
	ReasonMalformed   Reason = "malformed"         // the message lacks a required field
	ReasonDisregarded Reason = "unexpected_type"   // the message type is not for a server
)

func silent(r Reason) Answer { return Answer{Verdict: Silent, Reason: r} }
func refuse(r Reason) Answer { return Answer{Verdict: Refuse, Reason: r} }

// Discover handles DISCOVER (RFC 2131, section 4.3.1). If a binding is in force, it offers that address, unless the
// client must move to a reserved one. Otherwise it chooses an address and holds it for the client for a minute, without
// a write. The answer is Silent if the pool is not synced, or if no address is left. wanted is the address that the
// client requests; invalid for none.
func (p *Pool) Discover(c Client, wanted netip.Addr) Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireHolds()
	cur, ready := p.current(c.Holder), p.ready()
	if cur != nil && p.inForce(c, cur) && (!ready || !p.mustMove(c, cur)) {
		p.recordContact(c, cur)
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
		return p.offerProbed(c, addr)
	}
	return Answer{Verdict: Grant, Addr: addr, Lease: p.Lease}
}

// offerProbed probes the address that is held for a client, and offers it, or else another one that is not in use.
func (p *Pool) offerProbed(c Client, addr netip.Addr) Answer {
	for range maxProbesPerMessage {
		e := p.entries[addr]
		if e.probed {
			return Answer{Verdict: Grant, Addr: addr, Lease: p.Lease}
		}
		if e.writing {
			return silent(ReasonInProgress)
		}
		found, outcome := p.probeAddress(addr)
		if e = p.entries[addr]; e == nil || e.heldBy != c.Holder {
			return silent(ReasonInProgress) // taken in the meantime, by another message of the client or a change in the store
		}
		now := p.Clock.Now()
		switch mac := found.MAC.String(); {
		case outcome == probeBusy:
			return silent(ReasonInProgress)
		case outcome == probeImpossible, found.Use == neighbours.Free, mac == c.MAC, !p.isKnownMAC(found.MAC) && p.quarantined() > p.Ranges.Size()/4:
			// A host that answers for all addresses must not block all of them.
			e.probed = true
			return Answer{Verdict: Grant, Addr: addr, Lease: p.Lease}
		case found.Use == neighbours.Used:
			p.unhold(addr)
			p.quarantineInUse(addr, mac, now)
		default: // the kernel's entry is stale; it probes the host again
			p.unhold(addr)
			e := p.entry(addr)
			e.avoidUntil, e.user, e.usage = now.Add(holdFor), mac, nil
		}
		if addr = p.choose(c, netip.Addr{}); !addr.IsValid() {
			p.warnExhausted()
			return silent(ReasonExhausted)
		}
		p.hold(c, addr)
	}
	return silent(ReasonInProgress) // continued with the next message
}

// isKnownMAC reports whether a MAC address belongs to a VM.
func (p *Pool) isKnownMAC(mac net.HardwareAddr) bool {
	if p.Directory == nil {
		return false
	}
	_, ok := p.Directory.Lookup(mac)
	return ok
}

// mustMove reports whether a client must move to the address that is reserved for it.
func (p *Pool) mustMove(c Client, cur *entry) bool {
	return c.Reserved.IsValid() && c.Reserved != cur.binding.Addr && p.permitted(c, c.Reserved) && p.available(c, c.Reserved)
}

// Select handles a REQUEST that selects an offer (RFC 2131, section 4.3.2, SELECTING). It grants the address when the
// binding is stored or was in force before, and refuses it if the client may not have it.
func (p *Pool) Select(ctx context.Context, c Client, addr netip.Addr) Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recordAck(c, p.selectLocked(ctx, c, addr))
}

func (p *Pool) selectLocked(ctx context.Context, c Client, addr netip.Addr) Answer {
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
	case cur != nil && p.inForce(c, cur) && h.held != addr && !p.hasBinding(c, addr):
		return refuse(ReasonMismatch) // it was offered no other address, and must not collect addresses
	default:
		return p.bind(ctx, c, addr)
	}
}

// Verify handles a REQUEST of a client that restarts with an address (RFC 2131, section 4.3.2, INIT-REBOOT). Without a
// binding, an ordinary client gets no reply; a VM gets the address that it uses, and is refused if that is not free.
func (p *Pool) Verify(ctx context.Context, c Client, addr netip.Addr) Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recordAck(c, p.verify(ctx, c, addr))
}

// Renew handles a REQUEST of a client that uses an address (RENEWING and REBINDING), as Verify does. The client has
// checked the address before, so a DECLINE is not accepted afterwards.
func (p *Pool) Renew(ctx context.Context, c Client, addr netip.Addr) Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.verify(ctx, c, addr)
	if e := p.entries[addr]; a.Verdict == Grant && e != nil {
		e.ackedAt = zero
	}
	return a
}

// recordAck records the time of an ACK. The client checks the address afterwards, and may decline it.
func (p *Pool) recordAck(c Client, a Answer) Answer {
	if e := p.entries[a.Addr]; a.Verdict == Grant && e != nil && e.binding.Holder == c.Holder {
		e.ackedAt = p.Clock.Now()
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
	case !c.VM && cur == nil:
		return silent(ReasonNoBinding)
	case !p.CIDR.Contains(addr):
		return refuse(ReasonWrongNet)
	case p.hasBinding(c, addr): // the client uses an older binding, which becomes its newest
		return p.bind(ctx, c, addr)
	case cur != nil && p.inForce(c, cur):
		return refuse(ReasonMismatch)
	case !p.permitted(c, addr), cur != nil && cur.binding.Addr != addr && !c.VM:
		return refuse(ReasonTaken)
	default:
		return p.bind(ctx, c, addr)
	}
}

// hasBinding reports whether a client has a binding of an address in force, possibly not its newest.
func (p *Pool) hasBinding(c Client, addr netip.Addr) bool {
	e := p.entries[addr]
	return e != nil && e.binding.Holder == c.Holder && p.inForce(c, e)
}

// confirm grants a binding in force. It writes nothing for a VM, and for an ordinary lease if the lease is young or
// cannot be written.
func (p *Pool) confirm(ctx context.Context, c Client, e *entry) Answer {
	p.recordContact(c, e)
	left := p.remaining(e)
	if e.binding.Expires.IsZero() || left > p.Lease-p.Lease/youngPart || e.writing || !p.ready() {
		if left <= 0 {
			return silent(ReasonNotSynced)
		}
		return Answer{Verdict: Grant, Addr: e.binding.Addr, Lease: left}
	}
	answer := p.bind(ctx, c, e.binding.Addr)
	// If the write fails, the time that was granted before is still valid.
	if answer.Verdict != Grant && p.inForce(c, e) && e.binding.Holder == c.Holder {
		if left := p.remaining(e); left > 0 {
			return Answer{Verdict: Grant, Addr: e.binding.Addr, Lease: left}
		}
	}
	return answer
}

// remaining returns the lease time that can be granted for a binding in force, in whole seconds.
func (p *Pool) remaining(e *entry) time.Duration {
	if e.binding.Expires.IsZero() {
		return p.Lease
	}
	return min(e.binding.Expires.Sub(p.Clock.Now()).Truncate(time.Second), p.Lease)
}

// recordContact records that the holder of a binding was in contact.
func (p *Pool) recordContact(c Client, e *entry) {
	e.deletedAt, e.missingSince, e.newDescription, e.confirmed, e.requestedAt = zero, zero, nil, true, p.Clock.Now()
	if b := e.binding; b.MAC != c.MAC || b.Hostname != c.Hostname {
		e.newDescription = &c
	}
}

// bind writes a binding and returns the answer. It unlocks p.mu during the write.
func (p *Pool) bind(ctx context.Context, c Client, addr netip.Addr) Answer {
	if h := p.holders[c.Holder]; h != nil && h.writing {
		return silent(ReasonInProgress)
	}
	if e := p.entries[addr]; e != nil && e.writing {
		return silent(ReasonInProgress)
	}
	if !p.available(c, addr) {
		return refuse(ReasonTaken)
	}
	e, h := p.entry(addr), p.holder(c.Holder)
	e.writing, h.writing = true, true
	defer func() {
		e.writing, h.writing = false, false
		p.removeIfEmpty(addr)
		p.removeHolderIfEmpty(c.Holder)
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
		return silent(ReasonInProgress) // another replica is writing the binding too
	case err != nil:
		p.warnFailed(addr, c, err)
		return silent(ReasonStore)
	}
	p.apply(b)
	if e.binding.Holder != c.Holder {
		return refuse(ReasonTaken) // leased to another client in the meantime
	}
	e.requestedAt = p.Clock.Now()
	e.endAvoidance() // the host that used the address is the client
	if h.held.IsValid() && h.held != addr {
		p.unhold(h.held)
	}
	return Answer{Verdict: Grant, Addr: addr, Lease: p.Lease}
}

// binding returns the new binding of a client, which replaces before.
func (p *Pool) binding(c Client, before store.Binding, addr netip.Addr) store.Binding {
	now := p.Clock.Now().UTC().Truncate(time.Microsecond)
	b := store.Binding{Addr: addr, Holder: c.Holder, MAC: c.MAC, Hostname: c.Hostname, Used: now, UID: before.UID, Revision: before.Revision}
	if cur := p.current(c.Holder); cur != nil && !cur.binding.Used.Before(now) {
		b.Used = cur.binding.Used.Add(time.Microsecond) // another replica's clock is ahead
	}
	if !c.VM {
		b.Expires = now.Add(p.Lease)
	}
	return b
}

// put writes a binding. It unlocks p.mu during the write.
func (p *Pool) put(ctx context.Context, b store.Binding) (store.Binding, error) {
	p.mu.Unlock()
	defer p.mu.Lock()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return p.Store.Put(ctx, b)
}

// reread loads the binding that another writer has just stored. If the returned answer has no reason, the address is
// available to the client: another replica wrote the binding for this client, or the address is free again. The caller
// then writes the binding again, so that it becomes the client's newest binding on all replicas.
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
		e.avoidUntil, e.user, e.usage = p.Clock.Now().Add(unusableFor), "", nil
		p.Log.Error("address cannot be leased, because its stored object is not a valid binding; correct or delete it", "address", addr, "err", err)
		return refuse(ReasonTaken)
	case err != nil:
		return silent(ReasonStore)
	}
	p.apply(b)
	if e.binding.Holder != c.Holder && !p.ended(e) {
		return refuse(ReasonTaken)
	}
	return Answer{}
}
