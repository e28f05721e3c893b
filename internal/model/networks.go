package model

// sharedNetwork describes the network of two Infras, as the end of a phrase.
func sharedNetwork(a, b *Infra) string {
	if a.NetworkAttachment == b.NetworkAttachment {
		return " (NetworkAttachmentDefinition " + a.NetworkAttachment + ")"
	}
	return " (NetworkAttachmentDefinitions " + a.NetworkAttachment + " and " + b.NetworkAttachment + ")"
}

// checkSubnets reports Infras of a VLAN without a common subnet. Probably the spec of one names the wrong VLAN, whose
// clients would see the names of the other Infra's cluster.
func (v *VLAN) checkSubnets(found *problems) {
	report := func(a, b *Infra, family string) {
		found.add(a.Ref, ReasonVLANMismatch, "%s has the same network%s but different %s subnets, so both count as one VLAN, whose clients see the names of "+
			"both; correct networkAttachmentDefinition, or list the subnets of both in additionalCIDRs",
			b.Ref, sharedNetwork(a, b), family)
	}
	reported := false
	first := v.infras[0]
	for _, i := range v.infras[1:] {
		family := i.disjointFamily(first)
		if family == "" {
			continue
		}
		report(i, first, family)
		if !reported { // report the first Infra once
			report(first, i, family)
		}
		reported = true
	}
}

// disjointFamily returns the address family in which both Infras have subnets, but none in common; empty if there is no such family.
func (i *Infra) disjointFamily(o *Infra) string {
	for _, family := range []string{"IPv4", "IPv6"} {
		both, common := false, false
		for _, a := range i.CIDRs {
			for _, b := range o.CIDRs {
				if a.Addr().Is4() == b.Addr().Is4() && a.Addr().Is4() == (family == "IPv4") {
					both, common = true, common || a.Overlaps(b)
				}
			}
		}
		if both && !common {
			return family
		}
	}
	return ""
}
