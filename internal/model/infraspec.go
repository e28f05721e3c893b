package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/densityops/oooi/api/v1alpha1"
)

// parsedInfra is the result of parsing an Infra.
type parsedInfra struct {
	infra Infra
	found problems
}

// parseInfra parses an Infra. Invalid values are reported and ignored.
func parseInfra(in *v1alpha1.Infra) *parsedInfra {
	r := &parsedInfra{infra: Infra{
		Ref: Ref{Kind: "Infra", Namespace: in.Namespace, Name: in.Name}, UID: in.UID, Generation: in.Generation,
		NetworkAttachment: in.Spec.NetworkConfig.NetworkAttachment(in.Namespace).String(), created: in.CreationTimestamp.Time,
		egress: in.Spec.Egress, proxyFailed: meta.IsStatusConditionFalse(in.Status.Conditions, v1alpha1.ConditionProxyReady),
	}}
	i, found := &r.infra, &r.found
	i.addCIDR(in.Spec.NetworkConfig.CIDR, "networkConfig.cidr", found)
	for n, cidr := range in.Spec.NetworkConfig.AdditionalCIDRs {
		i.addCIDR(string(cidr), fmt.Sprintf("networkConfig.additionalCIDRs[%d]", n), found)
	}
	if dns := in.Spec.InfraComponents.DNS; dns.IsEnabled() {
		for _, instance := range dns.EffectiveInstances() {
			i.DNS = append(i.DNS, i.addresses("infraComponents.dns", append([]v1alpha1.IP{instance.IP}, instance.AdditionalIPs...), found)...)
		}
		i.readRecords(dns.Records, found)
		if i.vmNamesSpec = dns.VMNames; dns.VMNames.IsEnabled() && !in.Spec.InfraComponents.DHCP.IsEnabled() {
			found.add(i.Ref, ReasonInvalidRecord, "%s: DHCP is not enabled, so no VM has a lease; enable infraComponents.dhcp", vmNamesField)
		}
	}
	if dhcp := in.Spec.InfraComponents.DHCP; dhcp.IsEnabled() {
		for _, instance := range dhcp.EffectiveInstances() {
			if address, err := v1alpha1.ParseAddress(string(instance.IP)); err == nil { // setup refuses others
				i.DHCP = append(i.DHCP, address)
			}
		}
	}
	if proxy := in.Spec.InfraComponents.Proxy; proxy != nil {
		i.proxy, i.apiService = proxy, proxy.APIServerService
	}
	if proxy := in.Spec.InfraComponents.Proxy; proxy.IsEnabled() {
		i.Proxy = i.proxyOf(proxy, found)
	} else if !in.Spec.OnlyDHCP() {
		found.add(i.Ref, ReasonProxyDisabled, "spec.infraComponents.proxy is not enabled: control-plane names are forwarded, not answered")
	}
	if apps := in.Spec.AppsIngress; apps.IsEnabled() && apps.Source == v1alpha1.AppsIngressSourceStatic {
		i.staticApps = i.reachable("appsIngress.addresses", apps.Addresses, found)
	}
	i.addClaims(&in.Spec, found)
	return r
}

// resolve returns the Infra with the cluster IPs of its proxy Service, and reports problems with Services of
// the management cluster.
func (r *parsedInfra) resolve(services *serviceIndex, found *problems) *Infra {
	i := r.infra
	*found = append(*found, r.found...)
	if i.Proxy != nil && i.Proxy.Service != "" {
		proxy := *i.Proxy
		proxy.ClusterIPs = services.addresses(proxy.Service)
		if len(proxy.ClusterIPs) == 0 {
			found.add(i.Ref, ReasonProxyServiceMissing, "Service %s does not exist or lacks a cluster IP, so control-plane names do not resolve for pods", proxy.Service)
		}
		i.Proxy = &proxy
	}
	for _, c := range i.claims {
		if service := i.Key() + "-dns"; c.use == claimUpstream && slices.Contains(services.addresses(service), c.First) {
			found.add(i.Ref, ReasonAddressConflict,
				"spec.networkConfig.dnsServers: %s is the cluster IP of Service %s, oooi's DNS; name a resolver that does not forward to it, or omit dnsServers "+
					"to use the node's resolvers", c.First, service)
		}
	}
	return &i
}

func (i *Infra) addCIDR(text, field string, found *problems) {
	prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil || prefix.Addr().Is4In6() { // no client has an IPv4-mapped address
		found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %q is not a network such as 192.0.2.0/24", field, text)
		return
	}
	if minimum := minBits(prefix); prefix.Bits() < minimum {
		found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %s is too large for a VLAN: pods would count as clients on the VLAN; use a prefix length of %d "+
			"or more", field, prefix, minimum)
		return
	}
	i.CIDRs = append(i.CIDRs, prefix.Masked())
}

// minBits returns the shortest prefix length of a VLAN's network, which matches the largest private IPv4 network and
// the largest IPv6 network that sites usually get.
func minBits(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 8
	}
	return 20
}

// proxyOf parses the proxy of the spec.
func (i *Infra) proxyOf(in *v1alpha1.InfraProxy, found *problems) *Proxy {
	p := &Proxy{VLAN: i.addresses("infraComponents.proxy", in.ServerIPs(), found)}
	if len(p.VLAN) == 0 {
		found.add(i.Ref, ReasonInvalidAddress, "spec.infraComponents.proxy: serverIP is missing or invalid, so control-plane names do not resolve on the VLAN")
	}
	if in.InternalProxyService != "" {
		if address, err := v1alpha1.ParseAddress(in.InternalProxyService); err == nil {
			p.ClusterIPs = []netip.Addr{address}
			return p
		}
	}
	p.Service = proxyService(i.Ref, in.InternalProxyService)
	return p
}

// proxyService returns the Service of infraComponents.proxy.internalProxyService as "namespace/name". The
// field has the form "name", "name.namespace" or "name.namespace.svc..."; empty means the Service that setup
// creates.
func proxyService(infra Ref, name string) string {
	if name == "" {
		return infra.Namespace + "/" + infra.Name + "-proxy"
	}
	name, rest, _ := strings.Cut(name, ".")
	namespace, _, _ := strings.Cut(rest, ".")
	return cmp.Or(namespace, infra.Namespace) + "/" + name
}

// reachable is addresses without those that clients on other hosts cannot connect to.
func (i *Infra) reachable(field string, texts []v1alpha1.IP, found *problems) []netip.Addr {
	return slices.DeleteFunc(i.addresses(field, texts, found), func(address netip.Addr) bool {
		if isReachable(address) {
			return false
		}
		found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %q is not an address that a client can reach", field, address)
		return true
	})
}

// addresses parses a component's VLAN addresses. Invalid ones are reported and ignored.
func (i *Infra) addresses(field string, texts []v1alpha1.IP, found *problems) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		address, err := v1alpha1.ParseAddress(string(text))
		if err != nil || address.IsUnspecified() || address.IsMulticast() {
			found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %q is not an address that a client can reach", field, text)
			continue
		}
		list = append(list, address)
	}
	return sortedAddrs(list)
}
