package v1alpha1

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// DefaultEgressPort is the port of egress without ports.
const DefaultEgressPort int32 = 443

// Egress lets VMs connect to names outside of the cluster through the proxy, which passes TLS through. DNS on the VLAN answers
// the names with the addresses of the proxy.
//
// +kubebuilder:validation:XValidation:rule="!self.hosts.exists(h, h == '*') || (has(self.allowAll) && self.allowAll)",message="'*' allows every name: it also needs allowAll: true",fieldPath=".hosts",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.parentProxy) || !has(self.ports) || !(80 in self.ports)",message="port 80 cannot be used with parentProxy",fieldPath=".ports",reason=FieldValueForbidden
type Egress struct {
	// Hosts are the names that VMs may connect to: a name, "*." and a domain for all names below it, or "*" for all
	// names. Names of the hosted cluster take precedence. Applied live; "*" by setup, because it replaces the upstream resolvers.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	Hosts []EgressHost `json:"hosts"`

	// AllowAll confirms that "*" in hosts allows every name. Applied live.
	// +optional
	AllowAll bool `json:"allowAll,omitempty"`

	// Ports are the ports on which the proxy accepts these names, which are also those that it connects to: port 80 for HTTP
	// requests, by their Host, and others for TLS, by SNI. Default: 443. Applied live.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	Ports []int32 `json:"ports,omitempty"`

	// ParentProxy is a proxy through which names are reached, which then resolves them. Absent: the proxy resolves names by the
	// VLAN's upstream resolvers, and connects to them itself.
	// +optional
	ParentProxy *ParentProxy `json:"parentProxy,omitempty"`

	// AllowAddresses are networks that names may resolve to although they are not public, such as that of a registry at
	// the site. Applied live.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	AllowAddresses []CIDR `json:"allowAddresses,omitempty"`

	// DenyAddresses are networks that no name may resolve to. They take precedence over allowAddresses. Applied live.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	DenyAddresses []CIDR `json:"denyAddresses,omitempty"`
}

// ParentProxy is an HTTP proxy that connects to names by CONNECT (RFC 9110, section 9.3.6).
type ParentProxy struct {
	// URL is "http://host:port". Applied live.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^http://([a-zA-Z0-9.-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}/?$`
	URL string `json:"url"`

	// SecretRef is a Secret with the key "authorization", the value of the header Proxy-Authorization, in the namespace of the Infra
	// or ProxyServer. Rolls the proxy. After a change of the Secret, restart the proxy's pods.
	// +optional
	SecretRef *corev1.LocalObjectReference `json:"secretRef,omitempty"`
}

// EgressHost is a name that VMs may connect to.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule=`self == '*' || self.matches(r'^(\*\.)?([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')`,message="must be a name such as quay.io or *.quay.io, in lower case"
type EgressHost string

// AllowsAll reports whether every name is allowed. It returns false for nil.
func (e *Egress) AllowsAll() bool { return e != nil && e.AllowAll && slices.Contains(e.Hosts, "*") }

// EffectivePorts returns the ports with the default.
func (e *Egress) EffectivePorts() []int32 {
	if len(e.Ports) == 0 {
		return []int32{DefaultEgressPort}
	}
	return slices.Clone(e.Ports)
}

// ParsedCIDRs returns the valid networks of a list, masked.
func ParsedCIDRs(list []CIDR) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range list {
		if p, err := netip.ParsePrefix(strings.TrimSpace(string(text))); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}
