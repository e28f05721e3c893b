package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
)

// gatewayField is the field of the VLAN's gateway.
const gatewayField = "networkConfig.gateway"

// addClaims adds the addresses and ranges in the spec to the Infra's claims, and reports those that are not in the network or
// conflict with each other.
func (i *Infra) addClaims(spec *v1alpha1.InfraSpec, found *problems) {
	c := spec.InfraComponents
	i.claimAddresses(gatewayField, claimRouter, []v1alpha1.IP{v1alpha1.IP(spec.NetworkConfig.Gateway)}, found)
	if c.DHCP.IsEnabled() {
		i.claimInstances("infraComponents.dhcp", c.DHCP.EffectiveInstances(), found)
	}
	if c.DNS.IsEnabled() {
		i.claimInstances("infraComponents.dns", c.DNS.EffectiveInstances(), found)
	}
	if c.Proxy.IsEnabled() {
		const field = "infraComponents.proxy"
		i.claimAddresses(field, claimDaemon, c.Proxy.ServerIPs(), found)
		if len(c.Proxy.Instances) > 0 { // which must not have the floating address
			i.claimInstances(field+".instances", c.Proxy.Instances, found)
		} else {
			i.claimInstances(field, c.Proxy.EffectiveInstances(), found)
		}
	}
	i.addUpstreams(spec.NetworkConfig.DNSServers, found)
	if spec.AppsIngress.IsEnabled() {
		i.claimApps(spec.AppsIngress, found)
	}
	if c.DHCP.IsEnabled() {
		i.claimRanges(c.DHCP, spec.NetworkConfig.CIDR, found)
		i.checkRelays(c.DHCP, found)
		i.claimHosts(c.DHCP, spec.NetworkConfig.CIDR, found)
	}
}

// claimed returns the claim of the gateway or of a component to an address, or nil.
func (i *Infra) claimed(address netip.Addr) *claim {
	for n := range i.claims {
		if c := &i.claims[n]; (c.use == claimDaemon || c.use == claimRouter) && c.First == address {
			return c
		}
	}
	return nil
}

func (i *Infra) claim(r v1alpha1.AddressRange, use claimKind, field string) {
	i.claims = append(i.claims, claim{AddressRange: r, owner: i.Ref, use: use, field: field})
}

func (i *Infra) claimInstances(field string, list []v1alpha1.Instance, found *problems) {
	for _, instance := range list {
		i.claimAddresses(field, claimDaemon, append([]v1alpha1.IP{instance.IP}, instance.AdditionalIPs...), found)
	}
}

// claimAddresses claims addresses of the gateway or of a component. Invalid ones are reported where the component is read.
func (i *Infra) claimAddresses(field string, use claimKind, texts []v1alpha1.IP, found *problems) {
	for _, text := range texts {
		address, err := v1alpha1.ParseAddress(string(text))
		if err != nil {
			continue
		}
		if other := i.claimed(address); other != nil {
			if other.field != field {
				found.add(i.Ref, ReasonAddressConflict, "spec.%s and spec.%s: both are %s", other.field, field, address)
			}
			continue
		}
		i.claim(v1alpha1.AddressRange{First: address, Last: address}, use, field)
		if len(i.CIDRs) > 0 && !i.inNetwork(address) {
			found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %s is not in the VLAN's subnets %v", field, address, i.CIDRs)
		}
		if what := reservedAddress(address, i.CIDRs); what != "" {
			found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %s is the %s; use another address", field, address, what)
		}
	}
}

func (i *Infra) inNetwork(address netip.Addr) bool {
	return slices.ContainsFunc(i.CIDRs, func(p netip.Prefix) bool { return p.Contains(address.Unmap()) })
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

// addUpstreams sets the upstream resolvers, claims their addresses, and reports those that CoreDNS cannot forward to:
// hostnames, which CoreDNS's forward plugin does not accept, and the addresses of oooi's components.
func (i *Infra) addUpstreams(servers []string, found *problems) {
	const field = "networkConfig.dnsServers"
	for _, text := range servers {
		resolver, err := parseResolver(text)
		if err != nil {
			found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %q is not an IP address; use an address such as 203.0.113.53 or 203.0.113.53:5353", field, text)
			continue
		}
		i.resolvers = append(i.resolvers, resolver)
		address := resolver.Address.Addr()
		other := i.claimed(address)
		if other == nil {
			i.claim(v1alpha1.AddressRange{First: address, Last: address}, claimUpstream, field)
		} else if other.use == claimDaemon {
			found.add(i.Ref, ReasonAddressConflict,
				"spec.%s: %s is spec.%s; name a resolver that is not part of this Infra, or omit dnsServers to use the node's resolvers",
				field, address, other.field)
		}
	}
}

// A Resolver is an upstream resolver.
type Resolver struct {
	Address netip.AddrPort `json:"address"`
	// Protocol is "dns", "tls" (RFC 7858), or another one of CoreDNS's forward plugin.
	Protocol string `json:"protocol"`
	// ServerName is the name in the certificate of a resolver with protocol tls; empty for its address.
	ServerName string `json:"serverName,omitempty"`
}

// resolverPorts are the default ports of protocols.
var resolverPorts = map[string]uint16{"dns": 53, "tls": 853, "https": 443}

// parseResolver parses an upstream resolver in the syntax of CoreDNS's forward plugin: an address, optionally with a port, with a
// protocol before it, and the name in its certificate after "%".
func parseResolver(text string) (Resolver, error) {
	protocol, host, found := strings.Cut(text, "://")
	if !found {
		protocol, host = "dns", text
	}
	host, name, _ := strings.Cut(host, "%")
	r := Resolver{Protocol: protocol}
	if protocol == "tls" {
		r.ServerName = name
	}
	if server, err := netip.ParseAddrPort(host); err == nil {
		r.Address = netip.AddrPortFrom(server.Addr().Unmap(), server.Port())
		return r, nil
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return Resolver{}, fmt.Errorf("parsing the address of the resolver %q: %w", text, err)
	}
	r.Address = netip.AddrPortFrom(address.Unmap(), resolverPorts[protocol])
	return r, nil
}

// metalLBField is the field of the addresses that MetalLB may assign to apps.
const metalLBField = "appsIngress.metallb.ipAddressPoolRange"

// claimApps claims the addresses of apps: static ones and MetalLB's range.
func (i *Infra) claimApps(apps *v1alpha1.AppsIngress, found *problems) {
	for _, ip := range apps.Addresses {
		address, err := v1alpha1.ParseAddress(string(ip))
		if err != nil {
			continue // reported if the addresses are in use
		}
		if other := i.claimed(address); other != nil {
			found.add(i.Ref, ReasonAddressConflict, "spec.appsIngress.addresses: %s is spec.%s; use another address", address, other.field)
		}
		i.claim(v1alpha1.AddressRange{First: address, Last: address}, claimApps, "appsIngress.addresses")
	}
	if apps.MetalLB == nil {
		return
	}
	elements, err := apps.MetalLB.IPAddressPoolRange.Elements()
	if err != nil {
		found.add(i.Ref, ReasonInvalidAddress, "spec.%s %v", metalLBField, err)
	}
	for _, element := range elements {
		r, err := v1alpha1.ParseAddressRange(element)
		if err != nil {
			found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %v", metalLBField, err)
			continue
		}
		i.claim(r, claimApps, metalLBField)
	}
}

// claimRanges claims the ranges of DHCP, and reports ranges and exclusions that are invalid, and addresses that cannot be leased.
// DHCP serves only the subnet cidr: clients in another one cannot reach networkConfig.gateway, their router.
func (i *Infra) claimRanges(dhcp *v1alpha1.InfraDHCP, cidr string, found *problems) {
	subnet, _ := netip.ParsePrefix(cidr) // an invalid one is reported with its field
	served := func(r v1alpha1.AddressRange) bool {
		return !subnet.IsValid() || subnet.Contains(r.First) && subnet.Contains(r.Last)
	}
	notServed := func(reason Reason, field string, address any) {
		found.add(i.Ref, reason, "spec.infraComponents.dhcp%s: %s is not in spec.networkConfig.cidr %s, the only subnet that DHCP serves: clients in "+
			"additionalCIDRs could not reach the gateway", field, address, subnet.Masked())
	}
	for _, address := range i.DHCP {
		if i.inNetwork(address) && !served(v1alpha1.AddressRange{First: address, Last: address}) {
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
	ranges := 0
	for _, text := range dhcp.EffectiveRanges() {
		r, err := v1alpha1.ParseAddressRange(string(text.Start) + "-" + string(text.End))
		if err != nil {
			found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp: %v", err)
			continue
		}
		if !served(r) {
			notServed(ReasonInvalidRange, "", fmt.Sprintf("the range %s", r))
		}
		i.checkRange(r, excluded, found)
		i.claim(r, claimClients, "infraComponents.dhcp")
		ranges++
	}
	if ranges == 0 {
		found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp: DHCP ranges are missing; set rangeStart and rangeEnd, or ranges")
	}
}

// checkRange reports conflicts of a range of DHCP with the claims so far, and reserved addresses at its ends.
func (i *Infra) checkRange(r v1alpha1.AddressRange, excluded []v1alpha1.AddressRange, found *problems) {
	for _, other := range i.claims {
		if !r.Overlaps(other.AddressRange) {
			continue
		}
		if other.use == claimClients {
			found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp: the ranges %s and %s overlap", other.AddressRange, r)
		} else if common := intersection(r, other.AddressRange); len(common.Without(excluded...)) > 0 {
			found.add(i.Ref, ReasonAddressConflict, "spec.infraComponents.dhcp: the range %s contains %s, which is spec.%s; exclude it", r, common, other.field)
		}
	}
	for _, end := range []netip.Addr{r.First, r.Last} {
		what := reservedAddress(end, i.CIDRs)
		if what != "" && !slices.ContainsFunc(excluded, func(e v1alpha1.AddressRange) bool { return e.Contains(end) }) {
			found.add(i.Ref, ReasonInvalidRange, "spec.infraComponents.dhcp: the range %s contains %s, the %s; exclude it", r, end, what)
		}
	}
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
