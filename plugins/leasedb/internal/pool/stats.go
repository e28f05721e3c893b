package pool

import (
	"net/netip"
	"slices"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// Stats counts the addresses of a pool.
type Stats struct {
	// Size is how many there are in the ranges; Free is how many of them can be given to a new client now.
	Size int `json:"size"`
	Free int `json:"free"`
	// Bound are in force, Released have a former holder only, Held were offered, Quarantined were declined or found in use.
	Bound       int `json:"bound"`
	Released    int `json:"released"`
	Held        int `json:"held"`
	Quarantined int `json:"quarantined"`
	// Unused are free ones that were looked at: nobody used them. InUse is how many were found in use.
	Unused int    `json:"unused"`
	InUse  uint64 `json:"inUse"`
	// Exhausted is how many clients were turned away because no address was left.
	Exhausted uint64 `json:"exhausted"`
	// ClockJumps is how often the system clock jumped; ClockOffset is how many seconds it is ahead of the pool's own.
	ClockJumps  uint64  `json:"clockJumps"`
	ClockOffset float64 `json:"clockOffsetSeconds"`
	// Loaded: the store's content, be it of a snapshot, is known. Synced: it is known as it is now.
	Loaded bool `json:"loaded"`
	Synced bool `json:"synced"`
}

// Stats counts.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireHolds()
	s := Stats{
		Size: p.Ranges.Size(), Exhausted: p.exhausted, Loaded: p.loaded, Synced: p.loaded && p.Store.Synced(), Quarantined: p.quarantined(),
		Unused: len(p.unused), InUse: p.inUse, ClockJumps: p.jumps, ClockOffset: p.offset.Seconds(),
	}
	s.Free = s.Size - p.taken.taken
	for a, e := range p.entries {
		b := e.binding
		_, inRange := p.Ranges.Number(a)
		switch {
		case e.heldBy != "":
			s.Held++
		case inRange && b.Holder != "" && p.over(e) && !e.writing && !e.avoid.After(p.Clock.Now()):
			s.Free++
		}
		switch {
		case b.Holder == "" || b.Holder == store.Declined:
		case p.over(e):
			s.Released++
		default:
			s.Bound++
		}
	}
	return s
}

// Loaded reports whether the store's content, be it of a snapshot, is known.
func (p *Pool) Loaded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loaded
}

// Lease is a binding as people see it.
type Lease struct {
	Addr     netip.Addr `json:"address"`
	Holder   string     `json:"holder"`
	MAC      string     `json:"mac,omitempty"`
	Hostname string     `json:"hostname,omitempty"`
	// State is "bound", "released" or "declined".
	State   string    `json:"state"`
	Expires time.Time `json:"expires,omitzero"`
	Used    time.Time `json:"written"`
}

// Leases lists the bindings by address.
func (p *Pool) Leases() []Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	leases := make([]Lease, 0, len(p.entries))
	for a, e := range p.entries {
		b := e.binding
		if b.Holder == "" {
			continue
		}
		l := Lease{Addr: a, Holder: b.Holder, MAC: b.MAC, Hostname: b.Hostname, State: "bound", Used: b.Used.Add(p.offset)}
		if !b.Expires.IsZero() {
			l.Expires = b.Expires.Add(p.offset)
		}
		switch {
		case b.Holder == store.Declined:
			l.State = "declined"
		case p.over(e):
			l.State = "released"
		}
		leases = append(leases, l)
	}
	slices.SortFunc(leases, func(a, b Lease) int { return a.Addr.Compare(b.Addr) })
	return leases
}

// Bindings returns all bindings as they are in the store, as far as is known.
func (p *Pool) Bindings() []store.Binding {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]store.Binding, 0, len(p.entries))
	for _, e := range p.entries {
		if e.binding.Holder != "" {
			all = append(all, e.binding)
		}
	}
	return all
}

// Changes counts the changes of bindings so far.
func (p *Pool) Changes() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changes
}
