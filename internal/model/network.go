package model

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
)

// gatewayField is the field of the VLAN's gateway.
const gatewayField = "networkConfig.gateway"

// assignedAddress is an address of the gateway or of a component on the VLAN.
type assignedAddress struct {
	address netip.Addr
	field   string // of the spec
}

// checkNetwork reports addresses and ranges that are not in the network or conflict with each other.
func (i *Infra) checkNetwork(spec *v1alpha1.InfraSpec, found *problems) {
	uses := assignedAddresses(spec)
	fields := map[netip.Addr]string{}
	for _, use := range uses {
		i.assigned = append(i.assigned, use.address)
		if use.field == gatewayField {
			i.gateway = use.address
		}
		if other, taken := fields[use.address]; taken {
			found.add(i.Ref, ReasonAddressConflict, "spec.%s and spec.%s: both are %s", other, use.field, use.address)
			continue
		}
		fields[use.address] = use.field
		if len(i.CIDRs) > 0 && !i.inNetwork(use.address) {
			found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %s is not in the VLAN's subnets %v", use.field, use.address, i.CIDRs)
		}
		if what := reservedAddress(use.address, i.CIDRs); what != "" {
			found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %s is the %s: use another address", use.field, use.address, what)
		}
	}
	i.checkUpstreams(spec.NetworkConfig.DNSServers, fields, found)
	i.readAppsRanges(spec.AppsIngress, fields, found)
	if dhcp := spec.InfraComponents.DHCP; dhcp.IsEnabled() {
		i.checkRanges(dhcp, spec.NetworkConfig.CIDR, fields, found)
		i.checkRelays(dhcp, found)
		i.checkHosts(dhcp, spec.NetworkConfig.CIDR, fields, found)
	}
}

// reservedAddress describes an address that cannot be assigned to a host in the subnets, such as "network
// address of 192.0.2.0/24". It returns "" for other addresses.
func reservedAddress(address netip.Addr, subnets []netip.Prefix) string {
	for _, subnet := range subnets {
		if !subnet.Contains(address) || subnet.Bits() >= address.BitLen()-1 {
			continue // both addresses of a point-to-point link are usable (RFC 3021, RFC 6164)
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

// checkUpstreams reports upstream resolvers that CoreDNS cannot forward to: hostnames, which its forward
// plugin does not accept, and our own addresses.
func (i *Infra) checkUpstreams(servers []string, fields map[netip.Addr]string, found *problems) {
	const field = "networkConfig.dnsServers"
	for _, text := range servers {
		address, err := upstreamAddress(text)
		if err != nil {
			found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %q is not an IP address: use an address such as 203.0.113.53 or 203.0.113.53:5353", field, text)
			continue
		}
		i.upstreams = append(i.upstreams, address)
		if component, ours := fields[address]; ours && component != gatewayField {
			found.add(i.Ref, ReasonAddressConflict,
				"spec.%s: %s is spec.%s: name a resolver that is not part of this Infra, or leave dnsServers out to use those of the node", field, address, component)
		}
	}
}

// upstreamAddress returns the address of an upstream resolver in the syntax of CoreDNS's forward plugin: an
// address, optionally with a port, and with a protocol before it.
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

// readAppsRanges reads the apps addresses in the spec: static ones and MetalLB's range. Invalid ones are
// reported elsewhere, by the look-up of the apps address.
func (i *Infra) readAppsRanges(apps *v1alpha1.AppsIngress, fields map[netip.Addr]string, found *problems) {
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
		i.appsRanges = append(i.appsRanges, reservedRange{v1alpha1.AddressRange{First: address, Last: address}, "appsIngress.addresses"})
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
			i.appsRanges = append(i.appsRanges, reservedRange{r, "appsIngress.metallb.ipAddressPoolRange"})
		}
	}
}

// reservedRange is a range of addresses that DHCP must not lease.
type reservedRange struct {
	v1alpha1.AddressRange

	field string // of the spec
}

func (i *Infra) inNetwork(address netip.Addr) bool {
	return slices.ContainsFunc(i.CIDRs, func(p netip.Prefix) bool { return p.Contains(address.Unmap()) })
}

// assignedAddresses returns the addresses of the gateway and of the components, including the proxy's
// floating address, in the order of the spec.
func assignedAddresses(spec *v1alpha1.InfraSpec) []assignedAddress {
	var uses []assignedAddress
	add := func(field string, text v1alpha1.IP) {
		if text == "" {
			return
		}
		address, err := v1alpha1.ParseAddress(string(text))
		use := assignedAddress{address, field}
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
		field := "infraComponents.proxy"
		if len(c.Proxy.Instances) > 0 { // which must not have the floating address
			field += ".instances"
		}
		instances(field, c.Proxy.EffectiveInstances())
	}
	return uses
}

// checkRanges reads the ranges and exclusions of DHCP, and reports addresses that cannot be leased. DHCP serves only the
// subnet cidr: clients in another one cannot reach networkConfig.gateway, their router.
func (i *Infra) checkRanges(dhcp *v1alpha1.InfraDHCP, cidr string, fields map[netip.Addr]string, found *problems) {
	subnet, _ := netip.ParsePrefix(cidr) // an invalid one is reported with its field
	served := func(r v1alpha1.AddressRange) bool {
		return !subnet.IsValid() || subnet.Contains(r.First) && subnet.Contains(r.Last)
	}
	notServed := func(reason Reason, field string, address any) {
		found.add(i.Ref, reason, "spec.infraComponents.dhcp%s: %s is not in spec.networkConfig.cidr %s, the only subnet that DHCP serves: clients in "+
			"additionalCIDRs could not reach the gateway", field, address, subnet.Masked())
	}
	for _, instance := range dhcp.EffectiveInstances() {
		address, err := v1alpha1.ParseAddress(string(instance.IP))
		if err == nil && i.inNetwork(address) && !served(v1alpha1.AddressRange{First: address, Last: address}) {
			notServed(ReasonInvalidAddress, "", address)
		}
	}
	var excluded []v1alpha1.AddressRange
	for _, text := range dhcp.Exclude {
		r, err := v1alpha1.ParseAddressRange(text)
		if err != nil {
			found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp.exclude: %v", err)
			continue
		}
		if !served(r) {
			notServed(ReasonInvalidRange, ".exclude", r)
		}
		excluded = append(excluded, r)
	}
	for _, text := range dhcp.EffectiveRanges() {
		r, err := v1alpha1.ParseAddressRange(string(text.Start) + "-" + string(text.End))
		if err != nil {
			found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp: %v", err)
			continue
		}
		if !served(r) {
			notServed(ReasonInvalidRange, "", fmt.Sprintf("the range %s", r))
		}
		for _, other := range i.reservedRanges(fields) {
			if !r.Overlaps(other.AddressRange) {
				continue
			}
			if common := intersection(r, other.AddressRange); len(common.Without(excluded...)) > 0 {
				found.add(i.Ref, ReasonAddressConflict, "spec.infraComponents.dhcp: the range %s contains %s, which is spec.%s: exclude it", r, common, other.field)
			}
		}
		for _, end := range []netip.Addr{r.First, r.Last} {
			what := reservedAddress(end, i.CIDRs)
			if what != "" && !slices.ContainsFunc(excluded, func(e v1alpha1.AddressRange) bool { return e.Contains(end) }) {
				found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp: the range %s contains %s, the %s: exclude it", r, end, what)
			}
		}
		for _, other := range i.ranges {
			if r.Overlaps(other) {
				found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp: the ranges %s and %s overlap", other, r)
			}
		}
		i.ranges = append(i.ranges, r)
	}
	if len(i.ranges) == 0 {
		found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp: no range to lease from: set rangeStart and rangeEnd, or ranges")
	}
}

// reservedRanges returns the addresses that DHCP must not lease: those of the gateway, components, upstream
// resolvers and apps.
func (i *Infra) reservedRanges(fields map[netip.Addr]string) []reservedRange {
	var list []reservedRange
	add := func(address netip.Addr, field string) {
		list = append(list, reservedRange{v1alpha1.AddressRange{First: address, Last: address}, field})
	}
	for _, address := range sortedAddrs(slices.Collect(maps.Keys(fields))) {
		add(address, fields[address])
	}
	for _, address := range i.upstreams {
		if _, known := fields[address]; !known {
			add(address, "networkConfig.dnsServers")
		}
	}
	return append(list, i.appsRanges...)
}

// intersection returns the addresses that two overlapping ranges share.
func intersection(a, b v1alpha1.AddressRange) v1alpha1.AddressRange {
	if a.First.Less(b.First) {
		a.First = b.First
	}
	if b.Last.Less(a.Last) {
		a.Last = b.Last
	}
	return a
}
