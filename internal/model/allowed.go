package model

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
)

// allowed are the addresses that are believed when a hosted cluster reports them:
// its owner could otherwise point names, and the proxy, anywhere.
type allowed struct {
	ranges []v1alpha1.AddressRange
	// spoken are the addresses that are spoken for: the proxy would be its own upstream.
	spoken map[netip.Addr]bool
	// networks are those of the cluster's VLANs.
	networks []netip.Prefix
}

// allowed are the ranges that the Corefile gives, else those of the Infra's MetalLB
// pool, else the VLAN.
func (f *appsFinder) allowed(c *draft, infra *Infra) *allowed {
	a := &allowed{spoken: f.spokenFor(c), networks: f.networksOf(c)}
	for _, prefix := range f.options.Allow {
		a.add(prefix)
	}
	if len(a.ranges) > 0 {
		return a
	}
	if infra != nil && infra.apps.MetalLB != nil && infra.apps.MetalLB.IPAddressPoolRange != nil {
		elements, err := infra.apps.MetalLB.IPAddressPoolRange.Elements()
		if err != nil {
			f.found.add(infra.Ref, ReasonInvalidAddress, "spec.appsIngress.metallb.ipAddressPoolRange %v", err)
		}
		for _, element := range elements {
			r, err := v1alpha1.ParseAddressRange(element)
			if err != nil {
				f.found.add(infra.Ref, ReasonInvalidAddress, "spec.appsIngress.metallb.ipAddressPoolRange: %v", err)
				continue
			}
			a.ranges = append(a.ranges, r)
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

func (a *allowed) add(prefix netip.Prefix) {
	if r, err := v1alpha1.ParseAddressRange(prefix.String()); err == nil {
		a.ranges = append(a.ranges, r)
	}
}

// refusal says why an address may not be used, "" for one that may.
func (a *allowed) refusal(address netip.Addr) string {
	address = address.Unmap()
	switch {
	case !address.IsValid() || address.Zone() != "" || address.IsUnspecified() || address.IsLoopback() ||
		address.IsMulticast() || address.IsLinkLocalUnicast() || address == broadcast:
		return "is no address that a client can reach"
	case !slices.ContainsFunc(a.ranges, func(r v1alpha1.AddressRange) bool { return r.Contains(address) }):
		return "is not in the allowed ranges " + a.String()
	case a.spoken[address]:
		return "belongs to the VLAN's gateway or to a service of ours"
	}
	if what := reservedAddress(address, a.networks); what != "" {
		return "is the " + what
	}
	return ""
}

// networksOf are the networks of a cluster's VLANs, whichever Infra says so.
func (f *appsFinder) networksOf(c *draft) []netip.Prefix {
	var list []netip.Prefix
	for _, i := range f.infras {
		if slices.ContainsFunc(c.infras, func(own *Infra) bool { return own.VLAN == i.VLAN }) {
			list = append(list, i.CIDRs...)
		}
	}
	return list
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

func (a *allowed) filter(list []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(address netip.Addr) bool { return a.refusal(address) != "" })
}

// String returns the ranges for a message.
func (a *allowed) String() string {
	words := make([]string, len(a.ranges))
	for i, r := range a.ranges {
		words[i] = r.String()
	}
	if len(words) == 0 {
		return "(there are none: give 'allow CIDR' in the Corefile, or a metallb.ipAddressPoolRange or a cidr in the Infra)"
	}
	return strings.Join(words, ", ")
}

// spokenFor are the addresses on a cluster's VLANs that are not for applications.
func (f *appsFinder) spokenFor(c *draft) map[netip.Addr]bool {
	if len(c.infras) == 1 {
		return f.spoken[c.infras[0].VLAN]
	}
	all := map[netip.Addr]bool{}
	for _, i := range c.infras {
		maps.Copy(all, f.spoken[i.VLAN])
	}
	return all
}

// spokenByVLAN gathers what the Infras of each VLAN have addresses for.
func spokenByVLAN(infras []*Infra) map[string]map[netip.Addr]bool {
	all := map[string]map[netip.Addr]bool{}
	for _, i := range infras {
		if all[i.VLAN] == nil {
			all[i.VLAN] = map[netip.Addr]bool{}
		}
		for _, address := range i.own {
			all[i.VLAN][address] = true
		}
	}
	return all
}
