package model

import (
	"net/netip"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
)

// checkRelays reports relay agents that DHCP cannot serve.
func (i *Infra) checkRelays(dhcp *v1alpha1.InfraDHCP, found *problems) {
	if len(dhcp.Relays) > 0 && !i.gateway.IsValid() {
		found.add(i.Ref, ReasonInvalidAddress, "spec.infraComponents.dhcp.relays: DHCP replies through the router of the VLAN: set spec.%s", gatewayField)
	}
	for _, text := range dhcp.Relays {
		if relays, err := netip.ParsePrefix(string(text)); err != nil || !relays.Addr().Is4() {
			found.add(i.Ref, ReasonInvalidAddress, "spec.infraComponents.dhcp.relays: %s is not an IPv4 network", text)
		}
	}
}

// checkHosts reports addresses of DHCP hosts that DHCP cannot reserve, and adds the others to the addresses that it leases.
func (i *Infra) checkHosts(dhcp *v1alpha1.InfraDHCP, cidr string, fields map[netip.Addr]string, found *problems) {
	subnet, _ := netip.ParsePrefix(cidr) // an invalid one is reported with its field
	reserved, owners := i.reservedRanges(fields), map[netip.Addr]string{}
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
		own := v1alpha1.AddressRange{First: address, Last: address}
		taken := slices.IndexFunc(reserved, func(r reservedRange) bool { return r.Contains(address) })
		what := reservedAddress(address, i.CIDRs)
		switch {
		case subnet.IsValid() && !subnet.Contains(address):
			report(ReasonInvalidAddress, "%s is not in spec.networkConfig.cidr %s, the only subnet that DHCP serves", address, subnet.Masked())
		case what != "":
			report(ReasonInvalidAddress, "%s is the %s: use another address", address, what)
		case taken >= 0:
			report(ReasonAddressConflict, "%s is spec.%s: use another address", address, reserved[taken].field)
		case owners[address] != "":
			report(ReasonAddressConflict, "%s is also that of %s: use another address", address, owners[address])
		default:
			owners[address] = host.MAC
			if !slices.ContainsFunc(i.ranges, func(r v1alpha1.AddressRange) bool { return r.Contains(address) }) {
				i.ranges = append(i.ranges, own)
			}
		}
	}
}
