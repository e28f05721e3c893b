package doctor

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// A VM counts as one that receives no offers if it has ignored minOffers offers within minOfferTime or more, and the last one
// at most maxOfferAge ago. Clients wait for longer between two requests, the more they have sent.
const (
	minOffers    = 3
	minOfferTime = 3 * time.Second
	maxOfferAge  = 90 * time.Second
)

// checkUnrequestedOffers finds VMs that request none of the offers that they get, of any server.
func checkUnrequestedOffers(s *Site) []Finding {
	clients := s.vmInterfaces()
	evidence := map[string]string{} // by VM interface
	for _, d := range states[dhcpReport](s, dhcpState, AtInfra) {
		for _, o := range d.value.Offered {
			vm := clients[o.MAC]
			if vm == "" || o.Offers < minOffers || o.Last.Sub(o.First) < minOfferTime || s.facts.Taken.Sub(o.Last) > maxOfferAge {
				continue
			}
			evidence[vm] = fmt.Sprintf("Pod %s sent %d offers to MAC address %s of VM interface %s from %s to %s", d.pod.Name, o.Offers, o.MAC, vm, formatTime(o.First), formatTime(o.Last))
		}
	}
	if len(evidence) == 0 {
		return nil
	}
	vms := slices.Sorted(maps.Keys(evidence))
	var lines []string
	for _, vm := range vms {
		lines = append(lines, evidence[vm])
	}
	subject := "VM interface " + vms[0]
	if others := len(vms) - 1; others > 0 {
		subject += fmt.Sprintf(" and %d others", others)
	}
	own, _ := s.DHCPServers()
	return []Finding{failed(s.ref(), fmt.Sprintf("find what drops packets from UDP port 67 of %s on the way to VMs: DHCP snooping of the switch, which must trust the ports of the nodes of our DHCP pods, or a filter of the switch or the node", joinAddresses(own)),
		"DHCP offers an address to %s again and again, and receives no request: its packets do not reach the VM", subject).because(lines...)}
}
