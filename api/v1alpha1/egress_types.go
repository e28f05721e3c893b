package v1alpha1

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Ports of egress.
const (
	// DefaultEgressPort is the TCP port of hosts without ports.
	DefaultEgressPort int32 = 443
	// NTPPort is the UDP port of NTP.
	NTPPort int32 = 123
)

// Egress lets VMs connect to names outside of the cluster through the proxy, which passes TLS through, and to NTP
// servers. DNS on the VLAN resolves the names in hosts to the proxy's addresses. Lists are atomic: applying one
// replaces it, so that no name stays allowed that the applied file does not have.
//
// +kubebuilder:validation:XValidation:rule="has(self.hosts) || has(self.ntp)",message="needs hosts, ntp, or both"
// +kubebuilder:validation:XValidation:rule="!has(self.hosts) || !self.hosts.exists(h, h == '*') || (has(self.allowAll) && self.allowAll)",message="'*' allows every name: it also needs allowAll: true",fieldPath=".hosts",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.parentProxy) || !has(self.ports) || !(80 in self.ports)",message="port 80 cannot be used with parentProxy",fieldPath=".ports",reason=FieldValueForbidden
type Egress struct {
	// Hosts are the names that VMs may connect to: a name, "*." and a domain for all names below it, or "*" for all
	// names. Names of the hosted cluster take precedence. Applied live; "*" by setup, because it replaces the upstream resolvers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	Hosts []EgressHost `json:"hosts,omitempty"`

	// NTP are the servers to which the proxy forwards NTP requests (UDP 123), as names or addresses. All requests
	// from one client go to the same server while that server responds. Their addresses must be public or in
	// allowAddresses, and not in denyAddresses. DHCP sends the proxy's IPv4 addresses as option 42, unless
	// dhcp.options has that option. Applied live; the first server by setup, because it changes DHCP, the Service and
	// the NetworkPolicy.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	NTP []NTPServer `json:"ntp,omitempty"`

	// AllowAll confirms that "*" in hosts allows every name. Applied live.
	// +optional
	AllowAll bool `json:"allowAll,omitempty"`

	// Ports are the ports on which the proxy accepts the names in hosts, and to which it connects: port 80 routes
	// HTTP requests by Host, other ports route TLS by SNI. Port 80 cannot be used with parentProxy. Default: 443.
	// Applied live by the proxy; by setup to the Service and the NetworkPolicy.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	Ports []int32 `json:"ports,omitempty"`

	// ParentProxy is a proxy through which names are reached, which then resolves them. Without it, the proxy resolves names by the
	// VLAN's upstream resolvers, and connects to them itself.
	// +optional
	ParentProxy *ParentProxy `json:"parentProxy,omitempty"`

	// AllowAddresses are private networks that all names may resolve to, such as the network of a registry at the site. Applied live
	// by the proxy; by setup to the NetworkPolicy.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	AllowAddresses []CIDR `json:"allowAddresses,omitempty"`

	// DenyAddresses are networks that no name may resolve to. They take precedence over allowAddresses. Applied live by the
	// proxy; by setup to the NetworkPolicy.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	DenyAddresses []CIDR `json:"denyAddresses,omitempty"`
}

// ParentProxy is an HTTP proxy that connects to names by CONNECT (RFC 9110, section 9.3.6).
type ParentProxy struct {
	// URL is "http://host:port". The upstream resolvers of the VLAN resolve a name, to any address. Applied live.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^http://([a-zA-Z0-9.-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}/?$`
	URL string `json:"url"`

	// SecretRef is a Secret with the key "authorization", the value of the header Proxy-Authorization, in the namespace of the Infra
	// or ProxyServer. Rolls the proxy. After a change to the Secret, restart the proxy's pods.
	// +optional
	SecretRef *corev1.LocalObjectReference `json:"secretRef,omitempty"`
}

// EgressHost is a name that VMs may connect to.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule=`self == '*' || self.matches(r'^(\*\.)?([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z]([-a-z0-9]{0,61}[a-z0-9])?$')`,message="must be a name such as quay.io or *.quay.io, in lower case"
type EgressHost string

// NTPServer is the name or the address of an NTP server. The last label of a name begins with a letter, so that no name is read as
// an address.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z]([-a-z0-9]{0,61}[a-z0-9])?|(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}|[0-9a-f]{0,4}(:[0-9a-f]{0,4}){2,7})$')`,message="must be a name such as time.example.com, in lower case, or an address"
type NTPServer string

// AllowsAll reports whether every name is allowed. It returns false for nil.
func (e *Egress) AllowsAll() bool { return e != nil && e.AllowAll && slices.Contains(e.Hosts, "*") }

// EffectivePorts returns the TCP ports with the default; none without hosts.
func (e *Egress) EffectivePorts() []int32 {
	if len(e.Hosts) == 0 {
		return nil
	}
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
