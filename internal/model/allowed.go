package model

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
)

// allowed are the addresses that are believed when a hosted cluster reports them:
// its owner could otherwise point names, and the proxy, anywhere.
type allowed struct{ ranges []v1alpha1.AddressRange }

// allowed are the ranges that the Corefile gives, else those of the Infra's MetalLB
// pool, else the VLAN.
func (f *appsFinder) allowed(c *Cluster, infra *Infra) *allowed {
	a := &allowed{}
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
	for _, i := range c.Infras {
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

// contains reports whether an address may be used.
func (a *allowed) contains(address netip.Addr) bool {
	address = address.Unmap()
	if !address.IsValid() || address.IsUnspecified() || address.IsMulticast() || address.IsLinkLocalUnicast() || address.Zone() != "" {
		return false
	}
	return slices.ContainsFunc(a.ranges, func(r v1alpha1.AddressRange) bool { return r.Contains(address) })
}

func (a *allowed) filter(list []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(address netip.Addr) bool { return !a.contains(address) })
}

// String returns the ranges for a message.
func (a *allowed) String() string {
	words := make([]string, len(a.ranges))
	for i, r := range a.ranges {
		words[i] = r.String()
	}
	if len(words) == 0 {
		return "(there are none: add 'allow CIDR')"
	}
	return strings.Join(words, ", ")
}
