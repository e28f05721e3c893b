package pool

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

const (
	// recheckInterval is the time between two probes of an address in quarantine.
	recheckInterval = 10 * time.Second
	// maxRechecks limits the addresses in quarantine that are probed at once.
	maxRechecks = 64
	// goneFor is the time without an answer of a host that used an address after which its quarantine ends.
	goneFor = 30 * time.Second
)

// A usage is what probes have found out about an address in quarantine.
type usage struct {
	mac     string    // MAC address that answered last; empty if none has
	seen    time.Time // when it answered last
	checked time.Time // time of the last probe
}

// quarantine quarantines an address until a time. mac is the MAC address that answers for it, empty if none is known.
func (e *entry) quarantine(until time.Time, mac string, now time.Time) {
	e.avoidUntil, e.user = until, ""
	e.usage = &usage{mac: mac, checked: now}
	if mac != "" {
		e.usage.seen = now
	}
}

// endAvoidance makes an address available, unless its binding is a quarantine.
func (e *entry) endAvoidance() { e.avoidUntil, e.user, e.usage = zero, "", nil }

// inQuarantine reports whether an address was declined or found in use. Others that are avoided have unusable objects.
func (p *Pool) inQuarantine(e *entry, now time.Time) bool {
	return e.avoidUntil.After(now) && e.usage != nil || e.binding.Holder == store.Declined && !p.ended(e)
}

// RecheckQuarantined probes the addresses in quarantine that were not probed for a while, and ends the quarantine of those
// whose host has not answered for 30 seconds. The quarantine of an address for which no host has answered lasts until its
// end: a client may see a host that a probe does not find. It logs errors. Run calls it periodically.
func (p *Pool) RecheckQuarantined(ctx context.Context) {
	addrs := p.recheckCandidates()
	if len(addrs) == 0 {
		return
	}
	found, err := p.Probe(ctx, addrs)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.logFailedProbe(ctx, "cannot probe addresses in quarantine", err)
		return
	}
	now := p.Clock.Now()
	for _, a := range addrs {
		e := p.entries[a]
		if e == nil || e.usage == nil || !p.inQuarantine(e, now) {
			continue // ended in the meantime
		}
		f, ok := found[a]
		switch {
		case f.Use == neighbours.Used:
			e.usage.mac, e.usage.seen = f.MAC.String(), now
		case ok && f.Use == neighbours.Free && e.usage.mac != "" && now.Sub(e.usage.seen) >= goneFor:
			p.endQuarantine(ctx, a, e)
		}
	}
}

// recheckCandidates returns the addresses in quarantine whose last probe was the longest ago.
func (p *Pool) recheckCandidates() []netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Clock.Now()
	var list []netip.Addr
	for a, e := range p.entries {
		if !p.inQuarantine(e, now) || e.writing {
			continue
		}
		if e.usage == nil { // stored by another replica, or before this process started
			e.usage = &usage{}
		}
		if now.Sub(e.usage.checked) >= recheckInterval {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b netip.Addr) int { return p.entries[a].usage.checked.Compare(p.entries[b].usage.checked) })
	list = list[:min(len(list), maxRechecks)]
	for _, a := range list {
		p.entries[a].usage.checked = now
	}
	return list
}

// endQuarantine makes an address available whose host is gone. A stored quarantine is deleted; if that fails, the next
// probe tries it again.
func (p *Pool) endQuarantine(ctx context.Context, a netip.Addr, e *entry) {
	mac := e.usage.mac
	if e.binding.Holder == store.Declined {
		if !p.ready() || e.writing {
			return
		}
		p.delete(ctx, e)
		if e.binding.Holder == store.Declined {
			return
		}
	}
	e.endAvoidance()
	p.removeIfEmpty(a)
	p.Log.Info("the host that used an address in quarantine is gone; the address can be leased", "address", a, "mac", mac)
}

// A Quarantine is an address in quarantine as shown to users.
type Quarantine struct {
	Addr netip.Addr `json:"address"`
	// MAC is the MAC address that answered last for the address, and Seen when; empty if no host has answered a probe.
	MAC  string    `json:"mac,omitempty"`
	Seen time.Time `json:"seen,omitzero"`
	// Declined is set if a client declined the address; otherwise a probe found it in use. Until is when the quarantine
	// ends, or earlier if the host is gone.
	Declined bool      `json:"declined"`
	Until    time.Time `json:"until"`
}

// Quarantined returns the addresses in quarantine, sorted by address; not nil.
func (p *Pool) Quarantined() []Quarantine {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, list := p.Clock.Now(), []Quarantine{}
	for a, e := range p.entries {
		if !p.inQuarantine(e, now) {
			continue
		}
		q := Quarantine{Addr: a, Declined: e.user == "", Until: e.avoidUntil.Add(p.offset)}
		if b := e.binding; b.Holder == store.Declined && b.Expires.After(e.avoidUntil) {
			q.Until = b.Expires.Add(p.offset)
		}
		if u := e.usage; u != nil && u.mac != "" {
			q.MAC, q.Seen = u.mac, u.seen.Add(p.offset)
		}
		list = append(list, q)
	}
	slices.SortFunc(list, func(a, b Quarantine) int { return a.Addr.Compare(b.Addr) })
	return list
}

// Lost is a binding of an existing VM whose stored object was deleted or edited by another client than this program.
type Lost struct {
	Addr   netip.Addr `json:"address"`
	Holder string     `json:"holder"`
	MAC    string     `json:"mac,omitempty"`
	// NewHolder is the client that the stored object names now; empty if the object was deleted.
	NewHolder string `json:"newHolder,omitempty"`
	// At is when the deletion or edit was observed. The VM's next renewal, which writes the binding again unless the address
	// has another client, is at Renewal at the latest.
	At      time.Time `json:"at"`
	Renewal time.Time `json:"renewal"`
}

// recordLoss records that the stored object of a binding is gone, and keeps the address for its holder until the next
// renewal, or that it names newHolder, if that is not empty. The binding must not have been dropped or replaced yet.
func (p *Pool) recordLoss(e *entry, newHolder string) {
	b := e.binding
	if !p.loaded || p.Directory == nil || b.Released || !b.Expires.IsZero() || p.current(b.Holder) != e {
		return
	}
	if i, err := dhcplease.ParseInterface(b.Holder); err == nil && (testclient.IsVM(i.VM) || newHolder != "" && !p.Directory.Exists(i)) {
		return // the test deletes its lease when it ends, and an edit may restore the holder
	}
	now := p.Clock.Now().Add(p.offset)
	p.lost[b.Holder] = Lost{Addr: b.Addr, Holder: b.Holder, MAC: b.MAC, NewHolder: newHolder, At: now, Renewal: now.Add(p.Lease / 2)}
	if newHolder != "" {
		p.Log.Warn("the stored lease of a VM was edited and names another client; the VM gets another address at its next request",
			"address", b.Addr, "holder", b.Holder, "newHolder", newHolder)
		return
	}
	if b.MAC != "" {
		e.avoidUntil, e.user, e.usage = p.Clock.Now().Add(p.Lease/2), b.MAC, nil
	}
	p.Log.Warn("the stored lease of a VM was deleted; it is written again when the VM renews it", "address", b.Addr, "holder",
		b.Holder, "renewal", (p.Lease / 2).String())
}

// Lost returns the lost bindings of VMs without another binding, sorted by address; not nil.
func (p *Pool) Lost() []Lost {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := []Lost{}
	for _, l := range p.lost {
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b Lost) int { return a.Addr.Compare(b.Addr) })
	return list
}

// forgetLosses removes the lost bindings of VMs that no longer exist.
func (p *Pool) forgetLosses() {
	if p.Directory == nil || !p.Directory.Synced() {
		return
	}
	for name := range p.lost {
		if i, err := dhcplease.ParseInterface(name); err != nil || !p.Directory.Exists(i) {
			p.endLoss(name)
		}
	}
}

// endLoss removes the lost binding of a holder, if there is one, and no longer keeps the address.
func (p *Pool) endLoss(holder string) {
	l, ok := p.lost[holder]
	if !ok {
		return
	}
	delete(p.lost, holder)
	if e := p.entries[l.Addr]; e != nil && e.user != "" && e.user == l.MAC {
		e.endAvoidance()
		p.removeIfEmpty(l.Addr)
	}
}
