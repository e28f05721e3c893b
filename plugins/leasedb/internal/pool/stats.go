package pool

import (
	"net/netip"
	"slices"
	"time"

	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// Stats contains the numbers of addresses by state.
type Stats struct {
	// Size is the number of addresses in the ranges, Free the number of addresses that a new client could get.
	Size int `json:"size"`
	Free int `json:"free"`
	// Bound counts addresses with a binding in force, Released addresses with only a previous holder, Held offered
	// addresses, Quarantined addresses that were declined or found in use, or whose stored object is invalid.
	Bound       int `json:"bound"`
	Released    int `json:"released"`
	Held        int `json:"held"`
	Quarantined int `json:"quarantined"`
	// Unused counts free addresses for which no host answered a recent probe. InUse counts the times that a probe found
	// a free address in use, since the start.
	Unused int    `json:"unused"`
	InUse  uint64 `json:"inUse"`
	// Exhausted counts DISCOVER messages that got no offer because no address was left, since the start.
	Exhausted uint64 `json:"exhausted"`
	// ClockJumps counts jumps of the system clock since the start. ClockOffset is the system clock minus the pool's
	// clock, in seconds.
	ClockJumps  uint64  `json:"clockJumps"`
	ClockOffset float64 `json:"clockOffsetSeconds"`
	// Loaded is set if bindings are known, from the store or the snapshot file. Synced is set if they are current.
	Loaded bool `json:"loaded"`
	Synced bool `json:"synced"`
}

// Stats returns the current statistics.
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
		case inRange && b.Holder != "" && p.ended(e) && !e.writing && !e.avoidUntil.After(p.Clock.Now()):
			s.Free++
		}
		switch {
		case b.Holder == "" || b.Holder == store.Declined:
		case p.ended(e):
			s.Released++
		default:
			s.Bound++
		}
	}
	return s
}

// Loaded reports whether bindings are known, from the store or the snapshot file.
func (p *Pool) Loaded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loaded
}

// A Lease is a binding as shown to users.
type Lease struct {
	Addr     netip.Addr `json:"address"`
	Holder   string     `json:"holder"`
	MAC      string     `json:"mac,omitempty"`
	Hostname string     `json:"hostname,omitempty"`
	// State is "bound", "released" or "declined".
	State string `json:"state"`
	// Expires is the end of the binding, by the system clock. It is zero if the binding lasts as long as the VM.
	Expires time.Time `json:"expires,omitzero"`
	// Used is the time of the last write, by the system clock.
	Used time.Time `json:"written"`
}

// Leases returns the bindings, sorted by address.
func (p *Pool) Leases() []Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	leases := make([]Lease, 0, len(p.entries))
	for a, e := range p.entries {
		b := e.binding
		if b.Holder == "" {
			continue
		}
		l := Lease{Addr: a, Holder: b.Holder, MAC: b.MAC, Hostname: b.Hostname, State: b.State(), Used: b.Used.Add(p.offset)}
		if !b.Expires.IsZero() {
			l.Expires = b.Expires.Add(p.offset)
		}
		if l.State == dhcplease.StateBound && p.ended(e) {
			l.State = dhcplease.StateReleased
		}
		leases = append(leases, l)
	}
	slices.SortFunc(leases, func(a, b Lease) int { return a.Addr.Compare(b.Addr) })
	return leases
}

// Bindings returns the last known content of the store, in any order.
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

// Changes returns the number of changes to bindings so far.
func (p *Pool) Changes() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changes
}
