package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
)

const (
	// maxSelectionAge is how long a selected server is reported. A VM that renews its lease sends nothing that another
	// server sees.
	maxSelectionAge = 24 * time.Hour
	// maxRefusalAge is how long the refusal of a client's address is reported: the client asks for another one at once.
	maxRefusalAge = time.Hour
	// maxReplyAge is how long any other reply is reported. Our DHCP asks for one every 15 seconds.
	maxReplyAge = 50 * time.Second
)

// A contact is what one of our DHCP servers knows about another server on the VLAN.
type contact struct {
	server netip.Addr
	at     time.Time
	did    string // what the server did, such as "refused the address of"
	// macs are the clients that the server has dealt with; none for replies that may be those to probes.
	macs []string
}

// contacts returns the contacts of DHCP servers that are neither ours nor those of another Infra on the VLAN.
func (r dhcpReport) contacts(now time.Time, known []netip.Addr) []contact {
	var list []contact
	add := func(c contact, maxAge time.Duration) {
		if !slices.Contains(known, c.server) && now.Sub(c.at) <= maxAge {
			list = append(list, c)
		}
	}
	for _, selected := range r.Selections {
		add(contact{selected.Server, selected.Last, "was selected by", selected.MACs}, maxSelectionAge)
	}
	for _, h := range r.Heard {
		if h.Type == "NAK" && len(h.MACs) > 0 {
			add(contact{h.Server, h.Last, "refused the address of", h.MACs}, maxRefusalAge)
		} else {
			add(contact{h.Server, h.Last, "replied with DHCP" + h.Type, nil}, maxReplyAge)
		}
	}
	return list
}

// checkOtherDHCP finds other DHCP servers on the VLAN. It fails for those that a VM has dealt with.
func checkOtherDHCP(s *Site) []Finding {
	own, others := s.DHCPServers()
	vms := s.vmInterfaces()
	found := map[netip.Addr]Finding{}
	for _, d := range states[dhcpReport](s, dhcpState, AtInfra) {
		for _, c := range d.value.contacts(s.facts.Taken, slices.Concat(own, others)) {
			f, known := found[c.server]
			if !known {
				f = warned(s.ref(), "find the server by its address and stop it, or block its packets in the switch; then restart the clients that have its addresses",
					"another DHCP server answers on the VLAN: %s", c.server)
			}
			if len(c.macs) == 0 {
				f = f.because(c.did + "; the last time at " + formatTime(c.at))
			}
			for _, mac := range c.macs {
				client := "MAC address " + mac
				if vm := vms[mac]; vm != "" {
					client += " of VM interface " + vm
					if f.Severity == Warn {
						f.Severity, f.Message = Fail, f.Message+", which "+c.did+" VM interface "+vm
					}
				}
				f = f.because(fmt.Sprintf("%s %s; the last time at %s", c.did, client, formatTime(c.at)))
			}
			found[c.server] = f
		}
	}
	var findings []Finding
	for _, server := range slices.SortedFunc(maps.Keys(found), netip.Addr.Compare) {
		f := found[server]
		slices.Sort(f.Evidence)
		f.Evidence = slices.Compact(f.Evidence) // replicas see the same messages
		if s.facts.unreadReason(infras, "") != "" {
			f.Severity, f = Warn, f.because("Infras of other namespaces cannot be read: the server may be that of another Infra on the VLAN")
		}
		findings = append(findings, f)
	}
	return findings
}

// DHCPServers returns the addresses of the Infra's DHCP servers, and of those of other Infras on the VLAN.
func (s *Site) DHCPServers() (own, others []netip.Addr) {
	for _, u := range s.facts.list(infras, "") {
		infra, err := decode[v1alpha1.Infra](u)
		if err != nil || !infra.Spec.InfraComponents.DHCP.IsEnabled() || !s.networks.Same(infra.Spec.NetworkConfig.NetworkAttachment(infra.Namespace).String(), s.network().Key()) {
			continue
		}
		for _, i := range infra.Spec.InfraComponents.DHCP.EffectiveInstances() {
			a, err := v1alpha1.ParseAddress(string(i.IP))
			switch {
			case err != nil:
			case infra.Namespace == s.Infra.Namespace && infra.Name == s.Infra.Name:
				own = append(own, a)
			default:
				others = append(others, a)
			}
		}
	}
	return own, others
}
