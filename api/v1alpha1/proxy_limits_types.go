package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// Default limits of a proxy.
const (
	DefaultConnectionsPerSecond       int32 = 2000
	DefaultSourceMaxConnections       int32 = 2000
	DefaultSourceConnectionsPerSecond int32 = 500
)

// ProxyLimits limits what clients can use of a proxy. Each replica has these limits.
type ProxyLimits struct {
	// MaxConnections limits the open connections of all clients. 35 % are reserved for clients of port 6443, and 15 %
	// for clients of port 8091. Defaults to 50000, or less if the file descriptors or the heap do not suffice.
	// +optional
	// +kubebuilder:validation:Minimum=16
	// +kubebuilder:validation:Maximum=10000000
	MaxConnections *int32 `json:"maxConnections,omitempty"`

	// ConnectionsPerSecond limits the rate of new connections to each port. Five times as many may arrive at once; 0: no
	// limit. Defaults to 2000.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	ConnectionsPerSecond *int32 `json:"connectionsPerSecond,omitempty"`

	// Ports are lower or higher limits of single ports.
	// +optional
	// +listType=map
	// +listMapKey=port
	// +kubebuilder:validation:MaxItems=64
	Ports []PortLimits `json:"ports,omitempty"`

	// MaxHeap is the maximum size of Envoy's heap. At 95 % of it, Envoy accepts connections to ports 6443 and 8091 only. Defaults to 90 % of
	// the memory limit of its container, or 4Gi without one. It is never more than 90 % of the memory limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('64Mi')) >= 0",message="must be at least 64Mi; with less, Envoy would accept no connection"
	MaxHeap *resource.Quantity `json:"maxHeap,omitempty"`

	// PerSource are the limits of each client on the VLAN. They need instances, whose container holder has the capability
	// NET_ADMIN.
	// +optional
	PerSource *SourceLimits `json:"perSource,omitempty"`
}

// SourceLimits limits the connections of each source address on the VLAN, to all ports together.
type SourceLimits struct {
	// MaxConnections limits the open connections of a source; 0: no limit. Defaults to 2000.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000000
	MaxConnections *int32 `json:"maxConnections,omitempty"`

	// ConnectionsPerSecond limits the rate of new connections of a source. Five times as many may arrive at once; 0: no
	// limit. Defaults to 500.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	ConnectionsPerSecond *int32 `json:"connectionsPerSecond,omitempty"`

	// PrefixLength makes the IPv4 addresses in one network of this prefix length one source. Defaults to 32, each address.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	PrefixLength *int32 `json:"prefixLength,omitempty"`

	// IPv6PrefixLength makes the IPv6 addresses in one network of this prefix length one source. Defaults to 128, each
	// address.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	IPv6PrefixLength *int32 `json:"ipv6PrefixLength,omitempty"`

	// Networks are networks whose sources have other limits, such as the address behind which a router hides many
	// clients. Of several that contain a source, the most specific one applies.
	// +optional
	// +listType=map
	// +listMapKey=cidr
	// +kubebuilder:validation:MaxItems=32
	Networks []SourceNetwork `json:"networks,omitempty"`
}

// SourceNetwork has the limits of each source in a network.
type SourceNetwork struct {
	// CIDR is the network. Its host bits must be zero.
	// +required
	CIDR CIDR `json:"cidr"`

	// MaxConnections limits the open connections of a source; 0: no limit. Defaults to the limit of other sources.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000000
	MaxConnections *int32 `json:"maxConnections,omitempty"`

	// ConnectionsPerSecond limits the rate of new connections of a source; 0: no limit. Defaults to the limit of other
	// sources.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	ConnectionsPerSecond *int32 `json:"connectionsPerSecond,omitempty"`
}

// PortLimits are the limits of one port of a proxy.
type PortLimits struct {
	// Port is the port that clients connect to.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// MaxConnections limits the open connections to the port, within the limit of all ports. Defaults to 35 % of the limit of
	// all ports for port 6443, 15 % for port 8091, and no further limit for other ports.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	MaxConnections *int32 `json:"maxConnections,omitempty"`

	// ConnectionsPerSecond limits the rate of new connections to the port; 0: no limit. Defaults to the limit of each port.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	ConnectionsPerSecond *int32 `json:"connectionsPerSecond,omitempty"`
}
