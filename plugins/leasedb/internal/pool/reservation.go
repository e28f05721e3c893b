package pool

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// checkReservations reports the reservations that cannot be honoured to the directory.
func (p *Pool) checkReservations(now time.Time) {
	if p.Directory == nil || !p.ready() {
		return
	}
	refused := map[vm.Interface]string{}
	for _, c := range p.Directory.Reservations() {
		for _, a := range c.Reserved {
			if why := p.refusal(c, a, now); why != "" {
				refused[c.Interface] = fmt.Sprintf("the reservation of %v is not honoured: %s", a, why)
			}
		}
	}
	p.Directory.ReportRefused(refused)
}

// refusal returns the reason why a VM cannot have an address that is reserved for it, or "".
func (p *Pool) refusal(c vm.Client, a netip.Addr, now time.Time) string {
	if !a.Is4() {
		return "DHCPv6 is not served"
	}
	if !p.CIDR.Contains(a) {
		return fmt.Sprintf("the address is outside of the network %v", p.CIDR)
	}
	if p.isProtected(a) {
		return "the address belongs to the network, its gateway or a server"
	}
	if owner, ok := p.Directory.ReservedFor(a); ok && owner != c.Interface {
		return fmt.Sprintf("the address is also reserved for %v, which takes precedence", owner)
	}
	e := p.entries[a]
	switch {
	case e == nil, e.binding.Holder == c.String():
		return ""
	case e.avoidUntil.After(now) && e.user != "":
		return "the address is in use by " + e.user
	case e.binding.Holder == store.Declined && !p.ended(e), e.avoidUntil.After(now):
		return "a client found the address in use by another host"
	case e.binding.Holder != "" && !p.ended(e):
		return "the address is bound to " + e.binding.Holder
	default:
		return ""
	}
}
