package pool

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/neighbour"
)

const (
	// lookEvery is how often free addresses are looked at, at most.
	lookEvery = 2 * time.Second
	// unusedFor is for how long an address that nobody used is believed to be unused.
	unusedFor = 5 * time.Minute
	// looksAtOnce bounds the addresses that clients wait for: the kernel's table has room for a thousand.
	looksAtOnce = 512
	// lookTimeout bounds one look.
	lookTimeout = 5 * time.Second
	// gather is for how long a look waits for others that can be made with it.
	gather = 50 * time.Millisecond
	// mostLooks is how many addresses are looked at for one message.
	mostLooks = 3
)

// lookOutcome is how a look on behalf of a client ended.
type lookOutcome int

const (
	looked lookOutcome = iota
	// lookBlind: nobody can tell, since the address is not on a network of this host.
	lookBlind
	// lookBusy: too many looks are under way, or it failed.
	lookBusy
)

// batch is a look at several addresses at once.
type batch struct {
	addrs []netip.Addr
	done  chan struct{} // closed when the rest is there
	found map[netip.Addr]neighbour.Found
	err   error
}

// unused is a free address that nobody was found to use.
type unused struct {
	addr netip.Addr
	till time.Time
}

// look looks at free addresses ahead of need, again and again until the context ends. No client waits for it.
func (p *Pool) look(ctx context.Context) {
	tick := p.Clock.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		p.Look(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C():
		}
	}
}

// Look finds out who uses some of the free addresses. Run calls it again and again.
func (p *Pool) Look(ctx context.Context) {
	addrs := p.toLookAt()
	if len(addrs) == 0 {
		return
	}
	found, err := p.Neighbours(ctx, addrs)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil && p.warn(&p.lastLooked) {
			p.Log.Error("addresses cannot be looked at before they are given", "err", err)
		}
		return
	}
	if len(found) == 0 && p.warn(&p.lastLooked) {
		p.Log.Warn("addresses cannot be looked at before they are given: this host has no address of their network", "cidr", p.CIDR)
	}
	// One host that answers for all must not keep all from everybody: no more is kept than may be declined.
	now, most := p.Clock.Now(), p.Ranges.Size()/4+1-p.quarantined()
	for _, a := range addrs {
		switch f := found[a]; {
		case f.Use == neighbour.Free:
			p.unused = append(p.unused, unused{a, now.Add(unusedFor)})
		case f.Use == neighbour.Used && most > 0 && p.vacant(a, now): // else it was given to somebody meanwhile, who uses it
			most--
			p.keepFrom(a, f.MAC.String(), now)
		}
	}
}

// lookAt finds out who uses one address, without the lock. Looks of several clients share one.
func (p *Pool) lookAt(a netip.Addr) (neighbour.Found, lookOutcome) {
	switch {
	case p.Neighbours == nil:
		return neighbour.Found{}, lookBlind
	case p.looking >= looksAtOnce:
		return neighbour.Found{}, lookBusy
	}
	b := p.batch
	if b == nil {
		b = &batch{done: make(chan struct{})}
		p.batch = b
		time.AfterFunc(gather, func() { p.lookTogether(b) })
	}
	b.addrs = append(b.addrs, a)
	p.looking++
	p.mu.Unlock()
	<-b.done
	p.mu.Lock()
	p.looking--
	if b.err != nil {
		if p.warn(&p.lastLooked) {
			p.Log.Error("cannot look who uses an address", "address", a, "err", b.err)
		}
		return neighbour.Found{}, lookBusy
	}
	found, ok := b.found[a]
	if !ok {
		if p.warn(&p.lastLooked) {
			p.Log.Warn("cannot look who uses an address: this host has no address of its network", "address", a, "cidr", p.CIDR)
		}
		return neighbour.Found{}, lookBlind
	}
	return found, looked
}

// lookTogether makes the look of a batch.
func (p *Pool) lookTogether(b *batch) {
	defer close(b.done)
	p.mu.Lock()
	p.batch = nil // nobody joins it any more
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	b.found, b.err = p.Neighbours(ctx, b.addrs)
}

// toLookAt lists free addresses, round and round, and where there is none left those that others had.
func (p *Pool) toLookAt() []netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Clock.Now()
	p.unused = slices.DeleteFunc(p.unused, func(u unused) bool { return !u.till.After(now) || !p.vacant(u.addr, now) })
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
		i, _ := p.taken.free(p.looked)
		p.looked = (i + 1) % p.Ranges.Size()
		add(p.Ranges.Addr(i))
	}
	if p.taken.taken == p.Ranges.Size() && len(p.reclaimable) == 0 && now.Sub(p.relisted) >= warnEvery {
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

// vacant reports whether a new client could get an address.
func (p *Pool) vacant(a netip.Addr, now time.Time) bool {
	e := p.entries[a]
	return e == nil || e.heldBy == "" && !e.writing && !e.avoid.After(now) && (e.binding.Holder == "" || p.over(e))
}

// keepFrom keeps an address that is in use from everybody but who uses it: that may be a machine whose binding was lost.
func (p *Pool) keepFrom(a netip.Addr, mac string, now time.Time) {
	p.inUse++
	e := p.entry(a)
	e.avoid, e.user = now.Add(max(p.Quarantine, unusedFor)), mac
	p.Log.Warn("an address that nobody was given is in use; it is kept from others",
		"address", a, "mac", mac, "for", max(p.Quarantine, unusedFor), "remedy", "find out who has this MAC address, or exclude the address")
}

// takeUnused returns an address that nobody was found to use, for a client; not valid: none is known.
func (p *Pool) takeUnused(c Client, now time.Time) netip.Addr {
	at := slices.IndexFunc(p.unused, func(u unused) bool {
		return u.till.After(now) && p.vacant(u.addr, now) && !p.anothers(c, u.addr)
	})
	if at < 0 {
		return netip.Addr{}
	}
	addr := p.unused[at].addr
	p.unused = slices.Delete(p.unused, at, at+1)
	return addr
}
