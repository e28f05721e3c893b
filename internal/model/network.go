package model

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
)

// gatewayField is the field of the VLAN's router.
const gatewayField = "networkConfig.gateway"

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
		if use.field == gatewayField {
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
		if what := reservedAddress(use.address, i.CIDRs); what != "" {
			found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %s is the %s: use another address", use.field, use.address, what)
		}
	}
	i.checkUpstreams(spec.NetworkConfig.DNSServers, fields, found)
	i.readApps(spec.AppsIngress, fields, found)
	if dhcp := spec.InfraComponents.DHCP; dhcp.IsEnabled() {
		i.checkRanges(dhcp, fields, found)
	}
}

// reservedAddress says which address of a subnet no host can have: "network address of 192.0.2.0/24"; empty
// for one that a host can have.
func reservedAddress(address netip.Addr, subnets []netip.Prefix) string {
	for _, subnet := range subnets {
		if !subnet.Contains(address) || subnet.Bits() >= address.BitLen()-1 {
			continue // of a point-to-point link both addresses are usable (RFC 3021, RFC 6164)
		}
		r, err := v1alpha1.ParseAddressRange(subnet.String())
		switch {
		case err != nil:
		case address == r.First && address.Is4():
			return "network address of " + subnet.String()
		case address == r.First:
			return "subnet-router anycast address of " + subnet.String() // RFC 4291 section 2.6.1
		case address == r.Last && address.Is4():
			return "broadcast address of " + subnet.String()
		}
	}
	return ""
}

// checkUpstreams reports upstream resolvers that CoreDNS cannot forward to: hostnames, which it does not
// accept, and our own addresses.
func (i *Infra) checkUpstreams(servers []string, fields map[netip.Addr]string, found *problems) {
	const field = "networkConfig.dnsServers"
	for _, text := range servers {
		address, err := upstreamAddress(text)
		if err != nil {
			found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %q is not an IP address: forwarding takes addresses, such as 203.0.113.53 or 203.0.113.53:5353", field, text)
			continue
		}
		i.upstreams = append(i.upstreams, address)
		if component, ours := fields[address]; ours && component != gatewayField {
			found.add(i.Ref, ReasonAddressConflict, "spec.%s: %s is spec.%s: name a resolver that is not part of this Infra, or leave dnsServers out to use those of the node", field, address, component)
		}
	}
}

// upstreamAddress returns the address of an upstream resolver as CoreDNS's forward takes it: an address,
// perhaps with a port and a protocol in front.
func upstreamAddress(text string) (netip.Addr, error) {
	_, host, found := strings.Cut(text, "://")
	if !found {
		host = text
	}
	if server, err := netip.ParseAddrPort(host); err == nil {
		return server.Addr().Unmap(), nil
	}
	host, _, _ = strings.Cut(host, "%") // the TLS server name of tls://ADDRESS%NAME
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("parsing the address of the resolver %q: %w", text, err)
	}
	return address.Unmap(), nil
}

// readApps reads the addresses that load balancers or the Infra's author give to applications. What cannot
// be read is reported where the addresses are used.
func (i *Infra) readApps(apps *v1alpha1.AppsIngress, fields map[netip.Addr]string, found *problems) {
	if !apps.IsEnabled() {
		return
	}
	for _, ip := range apps.Addresses {
		address, err := v1alpha1.ParseAddress(string(ip))
		if err != nil {
			continue
		}
		if field, taken := fields[address]; taken {
			found.add(i.Ref, ReasonAddressConflict, "spec.appsIngress.addresses: %s is spec.%s: use another address", address, field)
		}
		i.applications = append(i.applications, reserved{v1alpha1.AddressRange{First: address, Last: address}, "appsIngress.addresses"})
	}
	if apps.MetalLB == nil {
		return
	}
	elements, err := apps.MetalLB.IPAddressPoolRange.Elements()
	if err != nil {
		return
	}
	for _, element := range elements {
		if r, err := v1alpha1.ParseAddressRange(element); err == nil {
			i.applications = append(i.applications, reserved{r, "appsIngress.metallb.ipAddressPoolRange"})
		}
	}
}

// reserved are addresses that DHCP must not lease.
type reserved struct {
	v1alpha1.AddressRange

	field string // that says so
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
	add(gatewayField, v1alpha1.IP(spec.NetworkConfig.Gateway))
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
		for _, other := range i.reserved(fields) {
			if overlap(r, other.AddressRange) && !covered(intersection(r, other.AddressRange), excluded) {
				found.add(i.Ref, ReasonAddressConflict, "spec.infraComponents.dhcp: the range %s holds %s, which is spec.%s: exclude it", r, intersection(r, other.AddressRange), other.field)
			}
		}
		for _, end := range []netip.Addr{r.First, r.Last} {
			what := reservedAddress(end, i.CIDRs)
			if what != "" && !covered(v1alpha1.AddressRange{First: end, Last: end}, excluded) {
				found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp: the range %s holds %s, the %s: exclude it", r, end, what)
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

// reserved are what DHCP must not lease: the addresses of the gateway and the components, of upstream
// resolvers, and of applications.
func (i *Infra) reserved(fields map[netip.Addr]string) []reserved {
	var list []reserved
	add := func(address netip.Addr, field string) {
		list = append(list, reserved{v1alpha1.AddressRange{First: address, Last: address}, field})
	}
	for _, address := range sortedAddrs(slices.Collect(maps.Keys(fields))) {
		add(address, fields[address])
	}
	for _, address := range i.upstreams {
		if _, known := fields[address]; !known {
			add(address, "networkConfig.dnsServers")
		}
	}
	return append(list, i.applications...)
}

// covered reports whether every address of r is in one of the ranges.
func covered(r v1alpha1.AddressRange, ranges []v1alpha1.AddressRange) bool {
	for next := r.First; ; {
		at := slices.IndexFunc(ranges, func(e v1alpha1.AddressRange) bool { return e.Contains(next) })
		switch {
		case at < 0:
			return false
		case r.Last.Compare(ranges[at].Last) <= 0:
			return true
		}
		next = ranges[at].Last.Next()
	}
}

// intersection returns what two ranges that overlap have in common.
func intersection(a, b v1alpha1.AddressRange) v1alpha1.AddressRange {
	if a.First.Less(b.First) {
		a.First = b.First
	}
	if b.Last.Less(a.Last) {
		a.Last = b.Last
	}
	return a
}

func overlap(a, b v1alpha1.AddressRange) bool {
	return a.First.BitLen() == b.First.BitLen() && a.First.Compare(b.Last) <= 0 && b.First.Compare(a.Last) <= 0
}

// claim is what an Infra, or a ProxyServer of its own, has of the VLAN's addresses.
type claim struct {
	v1alpha1.AddressRange

	owner Ref
	use   claimedFor
}

// claimedFor is what a claim is made for.
type claimedFor int

const (
	claimedForDaemon  claimedFor = iota // an address of one of our pods
	claimedForRouter                    // the gateway, which several may name
	claimedForClients                   // a range of DHCP
	claimedForApps                      // addresses of applications
)

// conflicts reports whether the claims of two owners cannot both stand. Addresses of applications are those
// that are accepted, and may be a whole subnet: only DHCP must keep off them.
func (c claim) conflicts(o claim) bool {
	switch {
	case c.owner == o.owner || c.use == claimedForRouter && o.use == claimedForRouter:
		return false
	case c.use == claimedForApps || o.use == claimedForApps:
		return c.use == claimedForClients || o.use == claimedForClients
	default:
		return true
	}
}

// checkSubnets reports Infras that have no subnet in common: either is on another VLAN than it
// says, and its clients see the other's clusters.
func (v *VLAN) checkSubnets(found *problems) {
	report := func(a, b *Infra, family string) {
		found.add(a.Ref, ReasonVLANMismatch, "%s names the same network %s with other %s subnets, so both count as one VLAN and share its names: correct networkAttachmentDefinition, or list the subnets of both in additionalCIDRs",
			b.Ref, v.Name, family)
	}
	told := false
	first := v.infras[0]
	for _, i := range v.infras[1:] {
		family := i.apartFrom(first)
		if family == "" {
			continue
		}
		report(i, first, family)
		if !told { // one is enough
			report(first, i, family)
		}
		told = true
	}
}

// apartFrom returns the address family in which two Infras have subnets and none in common;
// empty for neither.
func (i *Infra) apartFrom(o *Infra) string {
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

// meets says how another owner's claim is in the way of this one.
func (c claim) meets(o claim) string {
	var article, name string
	switch o.use {
	case claimedForDaemon:
		article, name = "an", "address"
	case claimedForRouter:
		article, name = "the", "gateway"
	case claimedForClients:
		article, name = "the", "range "+o.String()
	case claimedForApps:
		article, name = "the", "apps addresses "+o.String()
	}
	switch single := o.use == claimedForDaemon || o.use == claimedForRouter; {
	case c.use == claimedForDaemon && single:
		return fmt.Sprintf("%s is also %s %s of %s", c, article, name, o.owner)
	case c.use == claimedForRouter:
		return fmt.Sprintf("the gateway %s is also %s %s of %s", c, article, name, o.owner)
	case c.use == claimedForDaemon:
		return fmt.Sprintf("%s lies in the %s of %s", c, name, o.owner)
	case single:
		return fmt.Sprintf("the range %s holds %s, %s %s of %s", c, o, article, name, o.owner)
	case c.use == claimedForApps:
		return fmt.Sprintf("the apps addresses %s overlap the %s of %s", c, name, o.owner)
	default:
		return fmt.Sprintf("the range %s overlaps the %s of %s", c, name, o.owner)
	}
}

// claims are what the Infra has of its VLAN.
func (i *Infra) claims() []claim {
	var list []claim
	add := func(r v1alpha1.AddressRange, use claimedFor) { list = append(list, claim{r, i.Ref, use}) }
	for _, address := range i.own {
		use := claimedForDaemon
		if address == i.gateway {
			use = claimedForRouter
		}
		add(v1alpha1.AddressRange{First: address, Last: address}, use)
	}
	for _, r := range i.ranges {
		add(r, claimedForClients)
	}
	for _, r := range i.applications {
		add(r.AddressRange, claimedForApps)
	}
	return list
}

// checkClaims reports what several Infras and ProxyServers claim of one VLAN; for each claim one other is
// enough.
func checkClaims(claims []claim, found *problems) {
	slices.SortStableFunc(claims, func(a, b claim) int { return cmp.Or(a.First.Compare(b.First), a.Last.Compare(b.Last)) })
	for n, a := range claims {
		for _, b := range claims[n+1:] {
			if !overlap(a.AddressRange, b.AddressRange) {
				break // all that follow start later still
			}
			if a.conflicts(b) {
				found.add(a.owner, ReasonAddressConflict, "%s on the same VLAN", a.meets(b))
				found.add(b.owner, ReasonAddressConflict, "%s on the same VLAN", b.meets(a))
				break
			}
		}
	}
}
