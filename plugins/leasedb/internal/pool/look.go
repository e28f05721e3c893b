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
	// looksAtOnce bounds the looks on behalf of clients that are under way: each takes a socket and reads the kernel's table.
	looksAtOnce = 64
	// lookTimeout bounds one.
	lookTimeout = 5 * time.Second
)

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

// lookAt finds out who uses one address, without the lock. It reports false where that cannot be told: the address is not on
// a network of this host, what the kernel knows is old, or too many looks are under way.
func (p *Pool) lookAt(ctx context.Context, a netip.Addr) (neighbour.Found, bool) {
	if p.Neighbours == nil {
		return neighbour.Found{}, false
	}
	select {
	case p.looking <- struct{}{}:
	default:
		return neighbour.Found{}, false
	}
	p.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	found, err := p.Neighbours(bounded, []netip.Addr{a})
	cancel()
	p.mu.Lock()
	<-p.looking
	if err != nil && ctx.Err() == nil && p.warn(&p.lastLooked) {
		p.Log.Error("cannot look who uses an address", "address", a, "err", err)
	}
	f, ok := found[a]
	return f, err == nil && ok && f.Use != neighbour.Unknown
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

// takeUnused returns an address that nobody was found to use; not valid: none is known.
func (p *Pool) takeUnused(now time.Time) netip.Addr {
	for len(p.unused) > 0 {
		first := p.unused[0]
		p.unused = p.unused[1:]
		if first.till.After(now) && p.vacant(first.addr, now) {
			return first.addr
		}
	}
	return netip.Addr{}
}
