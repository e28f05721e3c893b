package pool

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/densityops/oooi/internal/neighbours"
)

const (
	// probeInterval is the minimum time between two probes of free addresses.
	probeInterval = 2 * time.Second
	// unusedFor is the time for which a probed free address counts as unused.
	unusedFor = 5 * time.Minute
	// maxPendingProbes limits the probes that clients wait for: the kernel's neighbor table has room for about a
	// thousand entries.
	maxPendingProbes = 512
	// probeTimeout is the timeout of one probe.
	probeTimeout = 5 * time.Second
	// batchDelay is the time that a probe waits for others to join it.
	batchDelay = 50 * time.Millisecond
	// maxProbesPerMessage is the maximum number of addresses that are probed for one message.
	maxProbesPerMessage = 3
)

// probeOutcome is the outcome of a probe on behalf of a client.
type probeOutcome int

const (
	probed probeOutcome = iota
	// probeImpossible means that the address is not on a network of this host.
	probeImpossible
	// probeBusy means that too many probes are pending, or that the probe failed.
	probeBusy
)

// A batch is a probe of several addresses.
type batch struct {
	addrs []netip.Addr
	done  chan struct{} // closed when found and err are set
	found map[netip.Addr]neighbours.Result
	err   error
}

// An unused address is a free address for which no host answered a probe.
type unused struct {
	addr  netip.Addr
	until time.Time
}

// probeLoop probes free addresses in advance, and those in quarantine, until ctx is done. No client waits for it.
func (p *Pool) probeLoop(ctx context.Context) {
	tick := p.Clock.NewTicker(probeInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		p.ProbeFree(ctx)
		p.RecheckQuarantined(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C():
		}
	}
}

// ProbeFree probes free addresses, as many as Config.Ahead lacks, and quarantines those in use. It logs errors. Run
// calls it periodically.
func (p *Pool) ProbeFree(ctx context.Context) {
	addrs := p.probeCandidates()
	if len(addrs) == 0 {
		return
	}
	found, err := p.Probe(ctx, addrs)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.logFailedProbe(ctx, "cannot probe free addresses", err)
		return
	}
	if len(found) == 0 && p.shouldWarn(&p.lastFailedProbe) {
		p.Log.Warn("cannot probe free addresses: this host lacks an address in their network", "cidr", p.CIDR)
	}
	// A host that answers for all addresses must not block all of them, so the limit for declined addresses applies.
	now, limit := p.Clock.Now(), p.Ranges.Size()/4+1-p.quarantined()
	for _, a := range addrs {
		switch f := found[a]; {
		case f.Use == neighbours.Free:
			p.unused = append(p.unused, unused{a, now.Add(unusedFor)})
		case f.Use == neighbours.Used && limit > 0 && p.vacant(a, now): // otherwise a client has leased it in the meantime
			limit--
			p.quarantineInUse(a, f.MAC.String(), now)
		}
	}
}

// logFailedProbe logs the error of a probe, unless ctx has ended or another one was logged shortly before.
func (p *Pool) logFailedProbe(ctx context.Context, message string, err error) {
	if ctx.Err() == nil && p.shouldWarn(&p.lastFailedProbe) {
		p.Log.Error(message, "err", err)
	}
}

// probeAddress probes one address. It unlocks p.mu during the probe. Probes for several clients are combined.
func (p *Pool) probeAddress(a netip.Addr) (neighbours.Result, probeOutcome) {
	switch {
	case p.Probe == nil:
		return neighbours.Result{}, probeImpossible
	case p.pendingProbes >= maxPendingProbes:
		return neighbours.Result{}, probeBusy
	}
	b := p.batch
	if b == nil {
		b = &batch{done: make(chan struct{})}
		p.batch = b
		time.AfterFunc(batchDelay, func() { p.probeBatch(b) })
	}
	b.addrs = append(b.addrs, a)
	p.pendingProbes++
	p.mu.Unlock()
	<-b.done
	p.mu.Lock()
	p.pendingProbes--
	if b.err != nil {
		if p.shouldWarn(&p.lastFailedProbe) {
			p.Log.Error("cannot probe an address", "address", a, "err", b.err)
		}
		return neighbours.Result{}, probeBusy
	}
	found, ok := b.found[a]
	if !ok {
		if p.shouldWarn(&p.lastFailedProbe) {
			p.Log.Warn("cannot probe an address: this host has no address in the same subnet", "address", a, "cidr", p.CIDR)
		}
		return neighbours.Result{}, probeImpossible
	}
	return found, probed
}

// probeBatch probes the addresses of a batch.
func (p *Pool) probeBatch(b *batch) {
	defer close(b.done)
	p.mu.Lock()
	p.batch = nil // no more addresses are added
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	b.found, b.err = p.Probe(ctx, b.addrs)
}

// probeCandidates returns free addresses to probe, in turn, and reclaimable ones if none is left.
func (p *Pool) probeCandidates() []netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Clock.Now()
	p.unused = slices.DeleteFunc(p.unused, func(u unused) bool { return !u.until.After(now) || !p.vacant(u.addr, now) })
	missing := p.Ahead - len(p.unused)
	var list []netip.Addr
	add := func(a netip.Addr) {
		if !slices.ContainsFunc(p.unused, func(u unused) bool { return u.addr == a }) {
			list = append(list, a)
		}
	}
	for range p.Ranges.Size() - p.taken.taken {
		if len(list) >= missing {
			break
		}
		i, _ := p.taken.free(p.nextProbe)
		p.nextProbe = (i + 1) % p.Ranges.Size()
		add(p.Ranges.Addr(i))
	}
	if p.taken.taken == p.Ranges.Size() && len(p.reclaimable) == 0 && now.Sub(p.relisted) >= warnInterval {
		p.relist()
	}
	for _, a := range p.reclaimable {
		if len(list) >= missing {
			break
		}
		if p.vacant(a, now) {
			add(a)
		}
	}
	return list
}

// vacant reports whether an address could be leased to a new client.
func (p *Pool) vacant(a netip.Addr, now time.Time) bool {
	e := p.entries[a]
	return e == nil || e.heldBy == "" && !e.writing && !e.avoidUntil.After(now) && (e.binding.Holder == "" || p.ended(e))
}

// quarantineInUse quarantines an address in use; only the MAC address using it may lease it, which may be a VM
// whose binding was lost.
func (p *Pool) quarantineInUse(a netip.Addr, mac string, now time.Time) {
	p.inUse++
	e := p.entry(a)
	e.quarantine(now.Add(max(p.Quarantine, unusedFor)), mac, now)
	e.user = mac
	p.Log.Warn("a free address is in use by another host; quarantining it",
		"address", a, "mac", mac, "for", max(p.Quarantine, unusedFor), "remedy", "find the host with this MAC address, or exclude the address")
}

// takeUnused returns a probed free address for a client, or an invalid address.
func (p *Pool) takeUnused(c Client, now time.Time) netip.Addr {
	at := slices.IndexFunc(p.unused, func(u unused) bool {
		return u.until.After(now) && p.vacant(u.addr, now) && !p.reservedForOther(c, u.addr)
	})
	if at < 0 {
		return netip.Addr{}
	}
	addr := p.unused[at].addr
	p.unused = slices.Delete(p.unused, at, at+1)
	return addr
}
