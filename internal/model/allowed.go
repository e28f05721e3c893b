package model

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
)

// newAddressFilter returns a filter for a cluster. It accepts the networks in the options, else the address
// range of MetalLB in the Infra, else the networks of the cluster's Infras.
func (f *appsFinder) newAddressFilter(c *draft, infra *Infra) *addressFilter {
	a := &addressFilter{assigned: f.assignedOnVLANs(c), networks: f.networksOf(c)}
	for _, prefix := range f.options.Allow {
		a.add(prefix)
	}
	if len(a.ranges) > 0 {
		return a
	}
	if infra != nil && infra.apps.MetalLB != nil && infra.apps.MetalLB.IPAddressPoolRange != nil {
		for _, c := range infra.claims {
			if c.field == metalLBField {
				a.ranges = append(a.ranges, c.AddressRange)
			}
		}
		return a
	}
	for _, i := range c.infras {
		for _, prefix := range i.CIDRs {
			a.add(prefix)
		}
	}
	return a
}

func (a *addressFilter) add(prefix netip.Prefix) {
	if r, err := v1alpha1.ParseAddressRange(prefix.String()); err == nil {
		a.ranges = append(a.ranges, r)
	}
}

// rejectReason returns why an address is rejected, as the end of a sentence about it; "" if it is accepted.
func (a *addressFilter) rejectReason(address netip.Addr) string {
	address = address.Unmap()
	switch {
	case !isReachable(address):
		return "is not an address that clients can reach"
	case !slices.ContainsFunc(a.ranges, func(r v1alpha1.AddressRange) bool { return r.Contains(address) }):
		return "is not in the allowed ranges " + a.String()
	case a.assigned[address]:
		return "belongs to the VLAN's gateway or to a DHCP, DNS or proxy server on the VLAN"
	}
	if what := reservedAddress(address, a.networks); what != "" {
		return "is the " + what
	}
	return ""
}

// networksOf returns the networks of a cluster's VLANs, including those that are listed only in Infras of
// other clusters.
func (f *appsFinder) networksOf(c *draft) []netip.Prefix {
	var list []netip.Prefix
	for _, i := range f.infras {
		if slices.ContainsFunc(c.infras, func(clusterInfra *Infra) bool { return clusterInfra.VLAN == i.VLAN }) {
			list = append(list, i.CIDRs...)
		}
	}
	return list
}

// accepted returns the accepted addresses of a list.
func (a *addressFilter) accepted(list []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(address netip.Addr) bool { return a.rejectReason(address) != "" })
}

// String returns the accepted ranges, for a message.
func (a *addressFilter) String() string {
	words := make([]string, len(a.ranges))
	for i, r := range a.ranges {
		words[i] = r.String()
	}
	if len(words) == 0 {
		return "(none; set 'allow CIDR' in the Corefile, or metallb.ipAddressPoolRange or cidr in the Infra)"
	}
	return strings.Join(words, ", ")
}

// assignedOnVLANs returns the addresses of gateways and components on a cluster's VLANs.
func (f *appsFinder) assignedOnVLANs(c *draft) map[netip.Addr]bool {
	if len(c.infras) == 1 {
		return f.assigned[c.infras[0].VLAN]
	}
	all := map[netip.Addr]bool{}
	for _, i := range c.infras {
		maps.Copy(all, f.assigned[i.VLAN])
	}
	return all
}

// assignedByVLAN returns the addresses of gateways and components, by VLAN.
func assignedByVLAN(infras []*Infra) map[string]map[netip.Addr]bool {
	all := map[string]map[netip.Addr]bool{}
	for _, i := range infras {
		if all[i.VLAN] == nil {
			all[i.VLAN] = map[netip.Addr]bool{}
		}
		for _, address := range i.Assigned() {
			all[i.VLAN][address] = true
		}
	}
	return all
}
