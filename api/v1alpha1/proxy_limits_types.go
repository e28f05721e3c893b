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
	// MaxConnections limits the open connections of all clients. Only clients of port 6443 may use 35 % of it, and only
	// those of port 8091 15 %. Absent: 50000, or about half of the file descriptors if that is less.
	// +optional
	// +kubebuilder:validation:Minimum=16
	// +kubebuilder:validation:Maximum=10000000
	MaxConnections *int32 `json:"maxConnections,omitempty"`

	// ConnectionsPerSecond limits the rate of new connections to each port. Five times as many may arrive at once; 0: no
	// limit. Absent: 2000.
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

	// MaxHeap is the heap of Envoy at 95 % of which it accepts no more connections. Absent: 90 % of the memory limit of
	// its container, or 4Gi without one. It is never more than 90 % of the memory limit.
	// +optional
	MaxHeap *resource.Quantity `json:"maxHeap,omitempty"`
}

// PortLimits are the limits of one port of a proxy.
type PortLimits struct {
	// Port is the port that clients connect to.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// MaxConnections limits the open connections to the port, within the limit of all ports. Absent: 35 % of the limit of
	// all ports for port 6443, 15 % for port 8091, and no further limit for other ports.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	MaxConnections *int32 `json:"maxConnections,omitempty"`

	// ConnectionsPerSecond limits the rate of new connections to the port; 0: no limit. Absent: the limit of each port.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	ConnectionsPerSecond *int32 `json:"connectionsPerSecond,omitempty"`
}
