package neighbours

import (
	"net/netip"
	"slices"
)

// PortResult is what is known about a port on the VLAN.
type PortResult struct {
	Address netip.AddrPort
	// Result is accepted, refused or timeout.
	Result string
	// Accepts reports whether the port accepts connections, and Silent whether it does not answer, although its host is there.
	Accepts, Silent bool
	// Failures is the number of connections in a row that were not accepted.
	Failures int
}

// Results returns the ports whose state is certain, sorted by address.
func (p *Ports) Results() []PortResult {
	p.mu.Lock()
	states := p.states // replaced, not changed
	p.mu.Unlock()
	var list []PortResult
	for a, s := range states {
		if s.known != portUnknown {
			list = append(list, PortResult{a, s.known, s.known == portAccepts, s.known == portSilent, s.failures})
		}
	}
	slices.SortFunc(list, func(a, b PortResult) int { return a.Address.Compare(b.Address) })
	return list
}
