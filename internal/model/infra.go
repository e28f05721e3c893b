package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Infra is what an Infra object says about one VLAN and its services.
type Infra struct {
	Ref
	// VLAN is the network attachment definition of the VMs, "namespace/name". Infras
	// with the same one are on the same VLAN.
	VLAN string `json:"vlan"`
	// CIDRs are the subnets of the VLAN's clients.
	CIDRs []netip.Prefix `json:"cidrs"`
	// DNS are the VLAN addresses of our DNS servers.
	DNS []netip.Addr `json:"dns,omitempty"`
	// Proxy is where the VLAN reaches the control plane; nil when the proxy is disabled.
	Proxy *Proxy `json:"proxy,omitempty"`
	// Cluster is the hosted cluster that the Infra serves; nil while neither a
	// HostedCluster nor a typed domain is there.
	Cluster *Cluster `json:"-"`
	// Serves is the reference of Cluster.
	Serves *Ref `json:"serves,omitempty"`

	apps       *v1alpha1.AppsIngress
	proxy      *v1alpha1.InfraProxy
	status     *v1alpha1.AppsIngressStatus
	apiService string       // the API server's Service, where it is named
	own        []netip.Addr // addresses that are spoken for on the VLAN
	gateway    netip.Addr
	ranges     []v1alpha1.AddressRange // what DHCP gives out
	upstreams  []netip.Addr            // that DNS forwards to
	// applications are the addresses that applications may have.
	applications []reserved
}

// Gateway is the VLAN's router; invalid where it cannot be read.
func (i *Infra) Gateway() netip.Addr { return i.gateway }

// WantsApps reports whether applications are asked for.
func (i *Infra) WantsApps() bool { return i.apps.IsEnabled() }

// Taken is what of the VLAN is spoken for: the gateway, our own addresses, upstream resolvers, addresses of
// applications, what DHCP gives out.
func (i *Infra) Taken() []v1alpha1.AddressRange {
	taken := slices.Clone(i.ranges)
	for _, r := range i.applications {
		taken = append(taken, r.AddressRange)
	}
	for _, a := range slices.Concat(i.own, i.upstreams, []netip.Addr{i.gateway}) {
		if a.IsValid() {
			taken = append(taken, v1alpha1.AddressRange{First: a, Last: a})
		}
	}
	return taken
}

// Proxy is one Infra's proxy, as each side sees it.
type Proxy struct {
	// VLAN are the addresses on the VLAN.
	VLAN []netip.Addr `json:"vlan"`
	// Service is the proxy's Service, "namespace/name"; empty where an address stands for it.
	Service string `json:"service,omitempty"`
	// ClusterIPs are the Service's addresses, empty until it exists.
	ClusterIPs []netip.Addr `json:"clusterIPs"`
}

// infraReading is what an Infra says by itself.
type infraReading struct {
	infra Infra
	found problems
}

// readInfra reads an Infra. What cannot be used is reported and left out.
func readInfra(in *v1alpha1.Infra) *infraReading {
	r := &infraReading{infra: Infra{
		Ref:  Ref{Kind: "Infra", Namespace: in.Namespace, Name: in.Name},
		VLAN: in.Spec.NetworkConfig.NetworkAttachment(in.Namespace).String(),
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
	}
	if proxy := in.Spec.InfraComponents.Proxy; proxy != nil {
		i.proxy, i.apiService = proxy, proxy.APIServerService
	}
	if proxy := in.Spec.InfraComponents.Proxy; proxy.IsEnabled() {
		i.Proxy = i.proxyOf(proxy, found)
	} else {
		found.add(i.Ref, ReasonProxyDisabled, "spec.infraComponents.proxy is not enabled: control-plane names are passed on, not answered")
	}
	i.checkNetwork(&in.Spec, found)
	return r
}

// resolved returns the Infra with what the management cluster says about it.
func (r *infraReading) resolved(services map[string][]netip.Addr, found *problems) *Infra {
	i := r.infra
	*found = append(*found, r.found...)
	if i.Proxy != nil && i.Proxy.Service != "" {
		proxy := *i.Proxy
		proxy.ClusterIPs = services[proxy.Service]
		if len(proxy.ClusterIPs) == 0 {
			found.add(i.Ref, ReasonProxyServiceMissing, "Service %s has no cluster IP: control-plane names have no address for pods", proxy.Service)
		}
		i.Proxy = &proxy
	}
	for _, address := range i.upstreams {
		if service := i.Key() + "-dns"; slices.Contains(services[service], address) {
			found.add(i.Ref, ReasonAddressConflict, "spec.networkConfig.dnsServers: %s is Service %s, our own DNS: name a resolver that does not forward to it, or leave dnsServers out to use those of the node", address, service)
		}
	}
	return &i
}

func (i *Infra) addCIDR(text, field string, found *problems) {
	prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil || prefix.Addr().Is4In6() { // no client is in the latter
		found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %q is not a network such as 192.0.2.0/24", field, text)
		return
	}
	if least := minBits(prefix); prefix.Bits() < least {
		found.add(i.Ref, ReasonInvalidAddress, "spec.%s: %s is no VLAN's network: pods would count as clients on the VLAN; its length has to be %d or more", field, prefix, least)
		return
	}
	i.CIDRs = append(i.CIDRs, prefix.Masked())
}

// minBits is the shortest prefix of a VLAN's network: that of the largest private network, and
// of the largest IPv6 network that a site gets.
func minBits(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 8
	}
	return 20
}

func (i *Infra) proxyOf(in *v1alpha1.InfraProxy, found *problems) *Proxy {
	p := &Proxy{VLAN: i.addresses("infraComponents.proxy", in.ServerIPs(), found)}
	if len(p.VLAN) == 0 {
		found.add(i.Ref, ReasonInvalidAddress, "spec.infraComponents.proxy: no usable serverIP, so names have no address on the VLAN")
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

// proxyService resolves infraComponents.proxy.internalProxyService, written as
// "name", "name.namespace" or "name.namespace.svc...", to "namespace/name". Unset
// it is the Service that setup makes.
func proxyService(infra Ref, name string) string {
	if name == "" {
		return infra.Namespace + "/" + infra.Name + "-proxy"
	}
	name, rest, _ := strings.Cut(name, ".")
	namespace, _, _ := strings.Cut(rest, ".")
	return cmp.Or(namespace, infra.Namespace) + "/" + name
}

// addresses parses a component's VLAN addresses.
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

func sortedAddrs(list []netip.Addr) []netip.Addr {
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}
