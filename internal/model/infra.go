package model

import (
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Infra has the parsed values of an Infra object: a VLAN, oooi's components on it, and the hosted cluster that they
// serve.
type Infra struct {
	Ref
	// UID and Generation are copied from the Infra's metadata.
	UID        types.UID `json:"-"`
	Generation int64     `json:"-"`
	// NetworkAttachment is the NetworkAttachmentDefinition of the VMs, "namespace/name".
	NetworkAttachment string `json:"-"`
	// VLAN is the name of the VLAN: the NetworkAttachmentDefinition of the first Infra on the network. Infras are on the
	// same VLAN if their NetworkAttachmentDefinitions are of the same network.
	VLAN string `json:"vlan"`
	// CIDRs are the valid subnets of the VLAN in the spec.
	CIDRs []netip.Prefix `json:"cidrs"`
	// DNS are the VLAN addresses of the DNS replicas; empty if DNS is disabled.
	DNS []netip.Addr `json:"dns,omitempty"`
	// DHCP are the VLAN addresses of the DHCP replicas; empty if DHCP is disabled.
	DHCP []netip.Addr `json:"-"`
	// Proxy is the proxy of the VLAN; nil if it is disabled.
	Proxy *Proxy `json:"proxy,omitempty"`
	// Cluster is the hosted cluster that the Infra serves; nil if no HostedCluster matches and the spec lacks a
	// cluster domain.
	Cluster *Cluster `json:"-"`
	// Serves is the reference of Cluster; nil without a cluster.
	Serves *Ref `json:"serves,omitempty"`
	// NotChosen is another HostedCluster that a reference without a namespace could also mean, if it exists;
	// otherwise "".
	NotChosen string `json:"-"`

	created time.Time
	records []staticRecord // sorted by name and type
	// vmNamesSpec is the field of the spec; nil if DNS is disabled.
	vmNamesSpec *v1alpha1.VMNames

	apps       *v1alpha1.AppsIngress
	proxy      *v1alpha1.InfraProxy
	egress     *v1alpha1.Egress
	resolvers  []Resolver // of networkConfig.dnsServers
	status     *v1alpha1.AppsIngressStatus
	apiService string       // name of the API server's Service, "" for the default
	staticApps []netip.Addr // apps addresses in the spec
	claims     []claim      // to addresses of the VLAN, in the order of the spec
	// proxyFailed reports whether the proxy is not ready according to the status.
	proxyFailed bool
}

// Gateway returns the address of the VLAN's gateway, or the zero Addr if the spec lacks a valid one.
func (i *Infra) Gateway() netip.Addr {
	for _, c := range i.claims {
		if c.use == claimRouter {
			return c.First
		}
	}
	return netip.Addr{}
}

// Assigned returns the VLAN addresses of the gateway and of oooi's components, including the proxy's floating
// address.
func (i *Infra) Assigned() []netip.Addr {
	var list []netip.Addr
	for _, c := range i.claims {
		if c.use == claimDaemon || c.use == claimRouter {
			list = append(list, c.First)
		}
	}
	return list
}

// Taken returns the ranges of VLAN addresses that the Infra uses or reserves: the addresses of the gateway, oooi's
// components, upstream resolvers and apps, and the DHCP ranges. They are unsorted and may overlap.
func (i *Infra) Taken() []v1alpha1.AddressRange {
	taken := make([]v1alpha1.AddressRange, len(i.claims))
	for n, c := range i.claims {
		taken[n] = c.AddressRange
	}
	return taken
}

// appsThroughProxy reports whether VMs reach apps only through the proxy, because the router requires the header of the
// PROXY protocol.
func (i *Infra) appsThroughProxy() bool {
	return i.Proxy != nil && i.apps.IsEnabled() && proxyProtocol(i.apps.ProxyProtocol) != ""
}

// Proxy has the addresses of an Infra's proxy, on the VLAN and in the management cluster.
type Proxy struct {
	// VLAN are the addresses on the VLAN, sorted; empty if the spec lacks a valid one.
	VLAN []netip.Addr `json:"vlan"`
	// Service is the proxy's Service, "namespace/name"; empty if internalProxyService is an address.
	Service string `json:"service,omitempty"`
	// ClusterIPs are the cluster IPs of Service, empty until it exists, or the address in internalProxyService.
	ClusterIPs []netip.Addr `json:"clusterIPs"`
}

// proxyProtocol returns V1, V2, or empty for any other value. The API server rejects unknown values, but an object may
// be read from a file.
func proxyProtocol(p v1alpha1.ProxyProtocol) v1alpha1.ProxyProtocol {
	if p == v1alpha1.ProxyProtocolV1 || p == v1alpha1.ProxyProtocolV2 {
		return p
	}
	return ""
}
