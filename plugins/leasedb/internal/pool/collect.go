package pool

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

const (
	// collectEvery is how often bindings are looked through.
	collectEvery = 10 * time.Second
	// warnEvery is how often the log says the same of one client after the other.
	warnEvery = time.Minute
	// writesPerCollect bounds the writes that keep one round from its end.
	writesPerCollect = 1000
	// markEvery is how often the store keeps the time.
	markEvery = time.Minute
	// leastJump is by how much the system clock must change at once.
	leastJump = 10 * time.Second
)

// Run follows the store and the directory, and releases what nobody has any more, until the context ends.
func (p *Pool) Run(ctx context.Context) {
	if p.Directory != nil {
		defer p.Directory.Subscribe(p.noteDeleted)()
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { p.Store.Run(ctx, p) })
	if p.Neighbours != nil && p.Ahead > 0 {
		group.Go(func() { p.look(ctx) })
	}
	tick := p.Clock.NewTicker(collectEvery)
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

// noteDeleted takes down that a machine was seen to go.
func (p *Pool) noteDeleted(i vm.Interface) {
	p.seenMu.Lock()
	defer p.seenMu.Unlock()
	p.deleted[i.String()] = p.Clock.Now()
}

// markDeleted takes over what noteDeleted took down.
func (p *Pool) markDeleted() {
	p.seenMu.Lock()
	seen := p.deleted
	p.deleted = map[string]time.Time{}
	p.seenMu.Unlock()
	for name, at := range seen {
		if h := p.holders[name]; h != nil {
			for _, a := range h.addrs {
				p.entries[a].gone = at
			}
		}
	}
}

// Collect releases the addresses of machines that are gone, and deletes what was released long ago. Run
// calls it again and again.
func (p *Pool) Collect(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Clock.Now()
	// Nobody looked while the process stood still.
	unbroken := now.Sub(p.lastCollect) < 3*collectEvery
	p.lastCollect = now
	p.expireHolds()
	p.expireDeclines(now)
	p.checkClock(now)
	p.checkRebuilt(now)
	p.checkReservations(now)
	p.markDeleted()
	due := p.due(now, unbroken)
	if !p.loaded || !p.Store.Synced() {
		return
	}
	for _, a := range due[:min(len(due), writesPerCollect)] {
		e := p.entries[a] // it can be another's by now
		if e == nil || e.writing || ctx.Err() != nil {
			continue
		}
		switch b := e.binding; {
		case p.stale(b, now), !b.Released && p.gone(e, now):
			p.Log.Info("releasing an address", "address", a, "holder", b.Holder)
			p.release(ctx, e)
		case p.forgettable(e, now) && e.heldBy == "":
			p.delete(ctx, e)
		case e.describe != nil:
			c := *e.describe
			e.describe = nil
			b.MAC, b.Hostname = c.MAC, c.Hostname
			p.write(ctx, e, b, "a client's new MAC address could not be written down")
		}
	}
}

// checkRebuilt says that the store was found empty although there are machines, and notices when every machine that is there
// has a binding, or has had the time to renew what it was promised before.
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
		if p.saidRebuilding {
			p.Log.Info("machines have renewed their addresses; they are given out without a look again")
		}
	case p.saidRebuilding, p.Suspect == "" && unbound == 0:
	default:
		p.saidRebuilding = true
		reason := p.Suspect
		if reason == "" {
			reason = "the store has no bindings, although there are machines on the network"
		}
		p.Log.Warn("bindings may be missing; each address is looked at before it is offered", "reason", reason, "machines", unbound, "until", "all have a binding, or "+p.Lease.String()+" have passed",
			"remedy", "if the network is not new: mount the volume of the lease file, restore it, or run coredhcp import")
	}
}

// Rebuilding says why bindings may be missing, so that each address is looked at before it is offered; empty where none
// are.
func (p *Pool) Rebuilding() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.rebuilding:
		return ""
	case p.Suspect != "":
		return p.Suspect
	case !p.saidRebuilding:
		return ""
	default:
		return "the store had no bindings, although there are machines on the network"
	}
}

// checkClock notices jumps of the system clock, and has the store keep the time. Leases go on by the pool's own clock, which
// never jumps.
func (p *Pool) checkClock(now time.Time) {
	if p.Wall != nil {
		offset := p.Wall().Round(0).Sub(now.Round(0))
		if by := offset - p.offset; by.Abs() >= leastJump {
			p.jumps++
			p.offset = offset
			p.Log.Warn("the system clock has jumped; no lease ends earlier or later for it", "by", by.Round(time.Second), "ahead", offset.Round(time.Second))
		}
	}
	if p.Marker == nil || !p.loaded || now.Sub(p.marked) < markEvery {
		return
	}
	p.marked = now
	p.mu.Unlock()
	err := p.Marker.SetMark(now)
	p.mu.Lock()
	if err != nil && p.warn(&p.lastFailed) {
		p.Log.Error("the time could not be written; bindings may fail to be, too", "err", err)
	}
}

// due marks machines that are missing, and lists the addresses of which there is something to write.
func (p *Pool) due(now time.Time, unbroken bool) []netip.Addr {
	var due []netip.Addr
	synced := p.Directory != nil && p.Directory.Synced()
	for a, e := range p.entries {
		p.tidy(a)
		if e.binding.Holder == "" {
			continue
		}
		if i, err := vm.ParseInterface(e.binding.Holder); err == nil && p.Directory != nil && !e.binding.Released {
			exists := p.Directory.Exists(i)
			switch {
			case exists:
				e.gone, e.missing = zero, zero
			case !synced || !unbroken:
				e.missing = zero
			}
			if synced && !exists && e.missing.IsZero() {
				e.missing = now
			}
		}
		if p.gone(e, now) || p.stale(e.binding, now) || p.forgettable(e, now) || e.describe != nil {
			due = append(due, a)
		}
	}
	// The oldest first: they are also the first to be given to others.
	slices.SortFunc(due, func(a, b netip.Addr) int { return p.entries[a].binding.Used.Compare(p.entries[b].binding.Used) })
	return due
}

// gone reports whether the machine behind a binding is known to exist no more.
func (p *Pool) gone(e *entry, now time.Time) bool {
	return !e.binding.Released &&
		(!e.gone.IsZero() && now.Sub(e.gone) >= goneFor || !e.missing.IsZero() && now.Sub(e.missing) >= p.Lease+missingFor)
}

// stale reports whether a machine has long had a newer binding: this one was left behind when it moved, or
// when it asked two replicas at a time.
func (p *Pool) stale(b store.Binding, now time.Time) bool {
	if b.Released || !b.Expires.IsZero() || b.Holder == "" {
		return false
	}
	newest := p.current(b.Holder)
	// The clock may be wrong after a restart, and the machine use the older one: then it renews that.
	known := newest.confirmed || now.Sub(p.loadedAt) >= p.Lease+missingFor
	return newest.binding.Addr != b.Addr && known && now.Sub(newest.binding.Used) >= p.Lease+missingFor
}

// forgettable reports whether a binding has long been over.
func (p *Pool) forgettable(e *entry, now time.Time) bool {
	switch b := e.binding; {
	case b.Holder == store.Declined:
		return p.over(e)
	case b.Released:
		return now.Sub(b.Used) >= affinityFor
	default:
		return p.over(e) && now.Sub(b.Expires) >= affinityFor
	}
}

// delete deletes a binding that is over.
func (p *Pool) delete(ctx context.Context, e *entry) {
	b := e.binding
	e.writing = true
	err := p.deleteUnlocked(ctx, b)
	e.writing = false
	if err != nil {
		p.Log.Warn("a binding that is over could not be deleted", "address", b.Addr, "err", err)
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
	return p.Store.Delete(ctx, b) //nolint:wrapcheck // it is logged where it is handled
}

func (p *Pool) expireDeclines(now time.Time) {
	for name, times := range p.declines {
		if now.Sub(times[len(times)-1]) >= p.Quarantine {
			delete(p.declines, name)
		}
	}
}

// warnExhausted makes an exhausted pool loud, but not too loud.
func (p *Pool) warnExhausted() {
	p.exhausted++
	if p.warn(&p.lastWarned) {
		p.Log.Error("no address is left: widen the ranges, or find out who has them", "addresses", p.Ranges.Size())
	}
}

// warnFailed reports the first of many writes that fail; a metric counts all.
func (p *Pool) warnFailed(addr netip.Addr, c Client, err error) {
	if p.warn(&p.lastFailed) {
		p.Log.Error("a binding could not be written, and others may follow; the client asks again", "address", addr, "holder", c.Holder, "err", err)
	}
}

// warn reports whether the log is to say something again, which it said at last.
func (p *Pool) warn(last *time.Time) bool {
	now := p.Clock.Now()
	if now.Sub(*last) < warnEvery {
		return false
	}
	*last = now
	return true
}
