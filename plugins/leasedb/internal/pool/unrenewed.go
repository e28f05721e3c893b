package pool

import (
	"net/netip"
	"slices"
	"time"
)

// Unrenewed is a binding of an existing VM that the VM has not requested from this process for longer than the lease time.
// Another replica may have answered it.
type Unrenewed struct {
	Addr   netip.Addr `json:"address"`
	Holder string     `json:"holder"`
	// Since is the time of the last request, or when this process started.
	Since time.Time `json:"since"`
}

// Unrenewed returns the bindings of VMs that do not renew them, sorted by address; not nil.
func (p *Pool) Unrenewed() []Unrenewed {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, list := p.Clock.Now(), []Unrenewed{}
	for a, e := range p.entries {
		b := e.binding
		if b.Holder == "" || !b.Expires.IsZero() || !e.deletedAt.IsZero() || !e.missingSince.IsZero() || p.ended(e) || p.current(b.Holder) != e {
			continue
		}
		since := e.requestedAt
		if since.Before(p.started) {
			since = p.started
		}
		if now.Sub(since) > p.Lease {
			list = append(list, Unrenewed{Addr: a, Holder: b.Holder, Since: since.Add(p.offset)})
		}
	}
	slices.SortFunc(list, func(a, b Unrenewed) int { return a.Addr.Compare(b.Addr) })
	return list
}
