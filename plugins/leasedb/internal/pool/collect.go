package pool

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

const (
	// collectInterval is the time between two runs of Collect.
	collectInterval = 10 * time.Second
	// warnInterval is the minimum time between two log messages about the same fault of different clients.
	warnInterval = time.Minute
	// writesPerCollect limits the writes of one run.
	writesPerCollect = 1000
	// markInterval is the time between two marks of the store.
	markInterval = time.Minute
	// minJump is the minimum sudden change of the system clock that counts as a jump.
	minJump = 10 * time.Second
)

// Run watches the store and the directory, releases addresses of deleted VMs and probes free addresses, until ctx is
// done.
func (p *Pool) Run(ctx context.Context) {
	if p.Directory != nil {
		defer p.Directory.Subscribe(p.recordDeletion)()
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { p.Store.Run(ctx, p) })
	if p.Probe != nil {
		group.Go(func() { p.probeLoop(ctx) })
	}
	tick := p.Clock.NewTicker(collectInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
			p.Collect(ctx)
		}
	}
}

// recordDeletion records the deletion of a VM interface.
func (p *Pool) recordDeletion(i vm.Interface) {
	p.deletedMu.Lock()
	defer p.deletedMu.Unlock()
	p.deleted[i.String()] = p.Clock.Now()
}

// applyDeletions applies the recorded deletions to the entries.
func (p *Pool) applyDeletions() {
	p.deletedMu.Lock()
	deleted := p.deleted
	p.deleted = map[string]time.Time{}
	p.deletedMu.Unlock()
	for name, at := range deleted {
		if h := p.holders[name]; h != nil {
			for _, a := range h.addrs {
				p.entries[a].deletedAt = at
			}
		}
	}
}

// Collect releases the addresses of deleted VMs, and deletes bindings that ended more than a day ago and expired
// quarantines. It logs errors of the store. Run calls it periodically.
func (p *Pool) Collect(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Clock.Now()
	// No run happened while the process was suspended.
	uninterrupted := now.Sub(p.lastCollect) < 3*collectInterval
	p.lastCollect = now
	p.expireHolds()
	p.expireDeclines(now)
	p.checkClock(now)
	p.checkRebuilt(now)
	p.checkReservations(now)
	p.applyDeletions()
	p.forgetLosses()
	due := p.due(now, uninterrupted)
	if !p.loaded || !p.Store.Synced() {
		return
	}
	for _, a := range due[:min(len(due), writesPerCollect)] {
		e := p.entries[a] // may have changed since due
		if e == nil || e.writing || ctx.Err() != nil {
			continue
		}
		switch b := e.binding; {
		case p.superseded(b, now), !b.Released && p.machineDeleted(e, now):
			p.Log.Info("releasing address", "address", a, "holder", b.Holder)
			p.release(ctx, e)
		case p.deletable(e, now) && e.heldBy == "":
			p.delete(ctx, e)
		case e.newDescription != nil:
			c := *e.newDescription
			e.newDescription = nil
			b.MAC, b.Hostname = c.MAC, c.Hostname
			p.write(ctx, e, b, "cannot write the new MAC address or hostname of a client")
		}
	}
}

// checkRebuilt logs once that bindings may be missing, and ends the probing of offered addresses when every known
// VM has a binding, or when all clients have had the time to renew.
func (p *Pool) checkRebuilt(now time.Time) {
	if !p.rebuilding {
		return
	}
	unbound, known := 0, p.Directory != nil && p.Directory.Synced()
	if known {
		for _, c := range p.Directory.Clients() {
			if p.current(c.String()) == nil {
				unbound++
			}
		}
	}
	switch {
	case known && unbound == 0, now.Sub(p.loadedAt) >= p.Lease:
		p.rebuilding = false
		if p.rebuildingLogged {
			p.Log.Info("all VMs have a binding or had time to renew; addresses are offered without a probe again")
		}
	case p.rebuildingLogged, p.Suspect == "" && unbound == 0:
	default:
		p.rebuildingLogged = true
		reason := p.Suspect
		if reason == "" {
			reason = "the store contains no bindings although the network has VMs"
		}
		p.Log.Warn("bindings may be missing; each address is probed before it is offered", "reason", reason, "vms", unbound,
			"until", "all VMs have a binding, or "+p.Lease.String()+" have passed",
			"remedy", "unless the network is new, mount the volume of the lease file, restore the file, or run coredhcp import")
	}
}

// Rebuilding returns the reason why bindings may be missing, in which case each address is probed before it is offered.
// It returns "" if no bindings are known to be missing.
func (p *Pool) Rebuilding() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.rebuilding:
		return ""
	case p.Suspect != "":
		return p.Suspect
	case !p.rebuildingLogged:
		return ""
	default:
		return "the store contained no bindings although the network has VMs"
	}
}

// checkClock detects jumps of the system clock, and writes the time mark to the store. Leases use the pool's own
// clock, which does not jump.
func (p *Pool) checkClock(now time.Time) {
	if p.Wall != nil {
		offset := p.Wall().Round(0).Sub(now.Round(0))
		if by := offset - p.offset; by.Abs() >= minJump {
			p.jumps++
			p.offset = offset
			p.Log.Warn("the system clock jumped; leases are not affected", "by", by.Round(time.Second), "ahead", offset.Round(time.Second))
		}
	}
	if p.Marker == nil || !p.loaded || now.Sub(p.marked) < markInterval {
		return
	}
	p.marked = now
	p.mu.Unlock()
	err := p.Marker.SetMark(now)
	p.mu.Lock()
	if err != nil && p.shouldWarn(&p.lastFailedWrite) {
		p.Log.Error("cannot write the time mark; writes of bindings may fail, too", "err", err)
	}
}

// due updates which VMs are missing, and returns the addresses whose bindings must be written.
func (p *Pool) due(now time.Time, uninterrupted bool) []netip.Addr {
	var due []netip.Addr
	synced := p.Directory != nil && p.Directory.Synced()
	for a, e := range p.entries {
		p.removeIfEmpty(a)
		if e.binding.Holder == "" {
			continue
		}
		if i, err := dhcplease.ParseInterface(e.binding.Holder); err == nil && p.Directory != nil && !e.binding.Released {
			exists := p.Directory.Exists(i)
			switch {
			case exists:
				e.deletedAt, e.missingSince = zero, zero
			case !synced || !uninterrupted:
				e.missingSince = zero
			}
			if synced && !exists && e.missingSince.IsZero() {
				e.missingSince = now
			}
		}
		if p.machineDeleted(e, now) || p.superseded(e.binding, now) || p.deletable(e, now) || e.newDescription != nil {
			due = append(due, a)
		}
	}
	// The oldest bindings come first, because their addresses are also the first to be reclaimed.
	slices.SortFunc(due, func(a, b netip.Addr) int { return p.entries[a].binding.Used.Compare(p.entries[b].binding.Used) })
	return due
}

// machineDeleted reports whether the VM of a binding is known to be deleted.
func (p *Pool) machineDeleted(e *entry, now time.Time) bool {
	return !e.binding.Released &&
		(!e.deletedAt.IsZero() && now.Sub(e.deletedAt) >= deletedFor || !e.missingSince.IsZero() && now.Sub(e.missingSince) >= p.Lease+missingFor)
}

// superseded reports whether a VM has had a newer binding for a long time. The older binding remained when the VM moved
// to another address, or asked two replicas at once.
func (p *Pool) superseded(b store.Binding, now time.Time) bool {
	if b.Released || !b.Expires.IsZero() || b.Holder == "" {
		return false
	}
	newest := p.current(b.Holder)
	// After a restart with a wrong clock, the VM may use the older binding, and then renews it.
	known := newest.confirmed || now.Sub(p.loadedAt) >= p.Lease+missingFor
	return newest.binding.Addr != b.Addr && known && now.Sub(newest.binding.Used) >= p.Lease+missingFor
}

// deletable reports whether a binding ended long ago.
func (p *Pool) deletable(e *entry, now time.Time) bool {
	switch b := e.binding; {
	case b.Holder == store.Declined:
		return p.ended(e)
	case b.Released:
		return now.Sub(b.Used) >= affinityFor
	default:
		return p.ended(e) && now.Sub(b.Expires) >= affinityFor
	}
}

// delete deletes a binding that has ended.
func (p *Pool) delete(ctx context.Context, e *entry) {
	b := e.binding
	e.writing = true
	err := p.deleteUnlocked(ctx, b)
	e.writing = false
	if err != nil {
		p.Log.Warn("cannot delete an ended binding", "address", b.Addr, "err", err)
		return
	}
	if e.binding.Revision == b.Revision && e.binding.UID == b.UID {
		p.drop(b.Addr)
	}
}

func (p *Pool) deleteUnlocked(ctx context.Context, b store.Binding) error {
	p.mu.Unlock()
	defer p.mu.Lock()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return p.Store.Delete(ctx, b)
}

func (p *Pool) expireDeclines(now time.Time) {
	for name, times := range p.declines {
		if now.Sub(times[len(times)-1]) >= p.Quarantine {
			delete(p.declines, name)
		}
	}
}

// warnExhausted counts a client without an address, and logs it at most once per warnInterval.
func (p *Pool) warnExhausted() {
	p.exhausted++
	if p.shouldWarn(&p.lastExhausted) {
		p.Log.Error("no address is left; extend the ranges, or check which clients have addresses", "addresses", p.Ranges.Size())
	}
}

// warnFailed logs a failed write, at most once per warnInterval. A metric counts all.
func (p *Pool) warnFailed(addr netip.Addr, c Client, err error) {
	if p.shouldWarn(&p.lastFailedWrite) {
		p.Log.Error("cannot write a binding; the client retries", "address", addr, "holder", c.Holder, "err", err)
	}
}

// shouldWarn reports whether a warning is due that was last logged at last, and updates last.
func (p *Pool) shouldWarn(last *time.Time) bool {
	now := p.Clock.Now()
	if now.Sub(*last) < warnInterval {
		return false
	}
	*last = now
	return true
}
