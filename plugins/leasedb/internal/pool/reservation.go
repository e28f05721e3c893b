package pool

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// checkReservations tells the directory which reservations cannot be honoured, whether their machines ask or not.
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
	p.Directory.Refused(refused)
}

// refusal says why a machine cannot have an address that is reserved for it; empty where it can, or has it.
func (p *Pool) refusal(c vm.Client, a netip.Addr, now time.Time) string {
	if !a.Is4() {
		return "DHCPv6 is not served"
	}
	if !p.CIDR.Contains(a) {
		return fmt.Sprintf("it is not in the network %v", p.CIDR)
	}
	if p.owns(a) {
		return "it belongs to the network itself, its gateway or a server"
	}
	if owner, ok := p.Directory.ReservedFor(a); ok && owner != c.Interface {
		return fmt.Sprintf("it is reserved for %v, too, which comes first", owner)
	}
	e := p.entries[a]
	switch {
	case e == nil, e.binding.Holder == c.String():
		return ""
	case e.avoid.After(now) && e.user != "":
		return "it is in use by " + e.user
	case e.binding.Holder == store.Declined && !p.over(e), e.avoid.After(now):
		return "a client found it in use by another host"
	case e.binding.Holder != "" && !p.over(e):
		return "it is bound to " + e.binding.Holder
	default:
		return ""
	}
}
