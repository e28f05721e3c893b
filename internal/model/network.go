package model

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
)

// spoken is an address on the VLAN that has a use.
type spoken struct {
	address netip.Addr
	field   string // that says so
}

// checkNetwork reports addresses and ranges that do not fit the network or each other.
func (i *Infra) checkNetwork(spec *v1alpha1.InfraSpec, found *problems) {
	uses := spokenOf(spec)
	fields := map[netip.Addr]string{}
	for _, use := range uses {
		i.own = append(i.own, use.address)
		if use.field == "networkConfig.gateway" {
			i.gateway = use.address
		}
		if other, taken := fields[use.address]; taken {
			found.add(i.Ref, ReasonAddressConflict, "spec.%s and spec.%s: both are %s", other, use.field, use.address)
			continue
		}
		fields[use.address] = use.field
		if len(i.CIDRs) > 0 && !i.inNetwork(use.address) {
			found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %s is not in %v", use.field, use.address, i.CIDRs)
		}
	}
	if dhcp := spec.InfraComponents.DHCP; dhcp.IsEnabled() {
		i.checkRanges(dhcp, fields, found)
	}
}

func (i *Infra) inNetwork(address netip.Addr) bool {
	return slices.ContainsFunc(i.CIDRs, func(p netip.Prefix) bool { return p.Contains(address.Unmap()) })
}

// spokenOf are the addresses of the gateway and of the components, in the order of the
// spec. The proxy's address moves between its instances, and a single one has it.
func spokenOf(spec *v1alpha1.InfraSpec) []spoken {
	var uses []spoken
	add := func(field string, text v1alpha1.IP) {
		if text == "" {
			return
		}
		address, err := v1alpha1.ParseAddress(string(text))
		use := spoken{address, field}
		if err == nil && !slices.Contains(uses, use) {
			uses = append(uses, use)
		}
	}
	instances := func(field string, list []v1alpha1.Instance) {
		for _, instance := range list {
			add(field, instance.IP)
			for _, ip := range instance.AdditionalIPs {
				add(field, ip)
			}
		}
	}
	add("networkConfig.gateway", v1alpha1.IP(spec.NetworkConfig.Gateway))
	c := spec.InfraComponents
	if c.DHCP.IsEnabled() {
		instances("infraComponents.dhcp", c.DHCP.EffectiveInstances())
	}
	if c.DNS.IsEnabled() {
		instances("infraComponents.dns", c.DNS.EffectiveInstances())
	}
	if c.Proxy.IsEnabled() {
		for _, ip := range c.Proxy.ServerIPs() {
			add("infraComponents.proxy", ip)
		}
		instances("infraComponents.proxy", c.Proxy.EffectiveInstances())
	}
	return uses
}

// checkRanges reports what DHCP cannot give out.
func (i *Infra) checkRanges(dhcp *v1alpha1.InfraDHCP, fields map[netip.Addr]string, found *problems) {
	var excluded []v1alpha1.AddressRange
	for _, text := range dhcp.Exclude {
		r, err := v1alpha1.ParseAddressRange(text)
		if err != nil {
			found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp.exclude: %v", err)
			continue
		}
		excluded = append(excluded, r)
	}
	for _, text := range dhcp.EffectiveRanges() {
		r, err := v1alpha1.ParseAddressRange(string(text.Start) + "-" + string(text.End))
		if err != nil {
			found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp: the range from %q to %q: %v", text.Start, text.End, err)
			continue
		}
		if len(i.CIDRs) > 0 && !slices.ContainsFunc(i.CIDRs, func(p netip.Prefix) bool { return p.Contains(r.First) && p.Contains(r.Last) }) {
			found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp: the range %s is not in %v", r, i.CIDRs)
		}
		for _, address := range sortedAddresses(fields) {
			if r.Contains(address) && !slices.ContainsFunc(excluded, func(e v1alpha1.AddressRange) bool { return e.Contains(address) }) {
				found.add(i.Ref, ReasonAddressConflict, "spec.infraComponents.dhcp: the range %s holds %s, which is spec.%s: exclude it", r, address, fields[address])
			}
		}
		for _, other := range i.ranges {
			if overlap(r, other) {
				found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp: the ranges %s and %s overlap", other, r)
			}
		}
		i.ranges = append(i.ranges, r)
	}
	if len(i.ranges) == 0 {
		found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp: there is no range to give out: set rangeStart and rangeEnd, or ranges")
	}
}

func sortedAddresses(fields map[netip.Addr]string) []netip.Addr {
	list := make([]netip.Addr, 0, len(fields))
	for address := range fields {
		list = append(list, address)
	}
	return sortedAddrs(list)
}

func overlap(a, b v1alpha1.AddressRange) bool {
	return a.First.BitLen() == b.First.BitLen() && a.First.Compare(b.Last) <= 0 && b.First.Compare(a.Last) <= 0
}

// claim is what an Infra has of the VLAN's addresses.
type claim struct {
	v1alpha1.AddressRange

	infra *Infra
}

func (c claim) isRange() bool { return c.First != c.Last }

// meets says how another Infra's claim is in the way of this one.
func (c claim) meets(o claim) string {
	switch {
	case c.isRange() && o.isRange():
		return "the range " + c.String() + " overlaps the range " + o.String() + " of " + o.infra.String()
	case c.isRange():
		return "the range " + c.String() + " holds " + o.String() + ", an address of " + o.infra.String()
	case o.isRange():
		return c.String() + " lies in the range " + o.String() + " of " + o.infra.String()
	default:
		return c.String() + " is also an address of " + o.infra.String()
	}
}

// checkNeighbours reports what several Infras of one VLAN claim; for each claim one other
// is enough. The gateway is everybody's.
func (v *VLAN) checkNeighbours(found *problems) {
	if len(v.infras) < 2 {
		return
	}
	var claims []claim
	for _, i := range v.infras {
		for _, address := range i.own {
			if address != i.gateway {
				claims = append(claims, claim{v1alpha1.AddressRange{First: address, Last: address}, i})
			}
		}
		for _, r := range i.ranges {
			claims = append(claims, claim{r, i})
		}
	}
	slices.SortStableFunc(claims, func(a, b claim) int { return cmp.Or(a.First.Compare(b.First), a.Last.Compare(b.Last)) })
	for n, a := range claims {
		for _, b := range claims[n+1:] {
			if !overlap(a.AddressRange, b.AddressRange) {
				break // all that follow start later still
			}
			if a.infra != b.infra {
				found.add(a.infra.Ref, ReasonAddressConflict, "%s on the same VLAN", a.meets(b))
				found.add(b.infra.Ref, ReasonAddressConflict, "%s on the same VLAN", b.meets(a))
				break
			}
		}
	}
}
