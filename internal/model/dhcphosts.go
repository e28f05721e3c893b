package model

import (
	"net/netip"

	"github.com/densityops/oooi/api/v1alpha1"
)

// checkRelays reports relay agents that DHCP cannot serve.
func (i *Infra) checkRelays(dhcp *v1alpha1.InfraDHCP, found *problems) {
	if len(dhcp.Relays) > 0 && !i.Gateway().IsValid() {
		found.add(i.Ref, ReasonInvalidAddress, "spec.infraComponents.dhcp.relays: DHCP replies through the router of the VLAN; set spec.%s", gatewayField)
	}
	for _, text := range dhcp.Relays {
		if relays, err := netip.ParsePrefix(string(text)); err != nil || !relays.Addr().Is4() {
			found.add(i.Ref, ReasonInvalidAddress, "spec.infraComponents.dhcp.relays: %s is not an IPv4 network", text)
		}
	}
}

// claimHosts claims the addresses of DHCP hosts, and reports those that DHCP cannot reserve.
func (i *Infra) claimHosts(dhcp *v1alpha1.InfraDHCP, cidr string, found *problems) {
	subnet, _ := netip.ParsePrefix(cidr) // an invalid one is reported with its field
	owners := map[netip.Addr]string{}
	for _, host := range dhcp.Hosts {
		if host.Address == "" {
			continue
		}
		report := func(reason Reason, format string, args ...any) {
			found.add(i.Ref, reason, "spec.infraComponents.dhcp.hosts: address of %s: "+format, append([]any{host.MAC}, args...)...)
		}
		address, err := v1alpha1.ParseAddress(host.Address)
		if err != nil {
			report(ReasonInvalidAddress, "%v", err)
			continue
		}
		leased := false // in a range of DHCP
		var taken *claim
		for n := range i.claims {
			if c := &i.claims[n]; !c.Contains(address) {
				continue
			} else if c.use == claimClients {
				leased = true
			} else {
				taken = c
			}
		}
		what := reservedAddress(address, i.CIDRs)
		switch {
		case subnet.IsValid() && !subnet.Contains(address):
			report(ReasonInvalidAddress, "%s is not in spec.networkConfig.cidr %s, the only subnet that DHCP serves", address, subnet.Masked())
		case what != "":
			report(ReasonInvalidAddress, "%s is the %s; use another address", address, what)
		case owners[address] != "":
			report(ReasonAddressConflict, "%s is also reserved for %s; use another address", address, owners[address])
		case taken != nil:
			report(ReasonAddressConflict, "%s is spec.%s; use another address", address, taken.field)
		default:
			owners[address] = host.MAC
			if !leased {
				i.claim(v1alpha1.AddressRange{First: address, Last: address}, claimClients, "infraComponents.dhcp.hosts")
			}
		}
	}
}
