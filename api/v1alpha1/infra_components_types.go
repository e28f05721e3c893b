package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Instance is one replica of a component and the address that it alone holds
// on the VLAN.
type Instance struct {
	// IP is the instance's address on the VLAN.
	// +required
	IP IP `json:"ip"`

	// AdditionalIPs are the instance's addresses in the other address family.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	AdditionalIPs []IP `json:"additionalIPs,omitempty"`
}

// DefaultLeaseTime is the lease time where none is given.
const DefaultLeaseTime = "1h"

// InfraDHCP configures the DHCP server of a VLAN.
//
// +kubebuilder:validation:XValidation:rule="!has(self.instances) || size(self.instances) == 0 || !has(self.serverIP) || size(self.serverIP) == 0",message="set serverIP or instances, not both",fieldPath=".instances",reason=FieldValueForbidden
type InfraDHCP struct {
	// Enabled says whether the DHCP server runs. Default: true. Rolls DHCP.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// ServerIP is short for a single instance with this address, which may carry
	// a prefix length. Rolls DHCP.
	// +optional
	ServerIP string `json:"serverIP,omitempty"`

	// Instances are the DHCP servers, which share one set of leases. Rolls DHCP.
	// +optional
	// +listType=map
	// +listMapKey=ip
	// +kubebuilder:validation:MaxItems=8
	Instances []Instance `json:"instances,omitempty"`

	// RangeStart is the first address of the pool. Rolls DHCP.
	// +optional
	RangeStart string `json:"rangeStart,omitempty"`

	// RangeEnd is the last address of the pool. Rolls DHCP.
	// +optional
	RangeEnd string `json:"rangeEnd,omitempty"`

	// Ranges are further parts of the pool. Rolls DHCP.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Ranges []DHCPRange `json:"ranges,omitempty"`

	// Exclude are addresses inside the ranges that are never given out, each an
	// address, a network in CIDR notation or "first-last". Rolls DHCP.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=91
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^[0-9a-fA-F.:]+(/[0-9]{1,3}|-[0-9a-fA-F.:]+)?$')`,message="must be an address, a network in CIDR notation, or first-last"
	Exclude []string `json:"exclude,omitempty"`

	// LeaseTime is how long a client may go without asking again, as a Go
	// duration. It is the client's timer only: a virtual machine keeps its
	// address for as long as it exists. Rolls DHCP.
	// +optional
	// +kubebuilder:default="1h"
	LeaseTime string `json:"leaseTime,omitempty"`

	// VMSelector selects the VirtualMachineInstances that get addresses. Absent:
	// those of the hosted cluster. Empty ({}): all that are on this network. Rolls
	// DHCP.
	// +optional
	VMSelector *metav1.LabelSelector `json:"vmSelector,omitempty"`

	// Options are further DHCP options for every client. Rolls DHCP.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Options []DHCPOption `json:"options,omitempty"`

	// Image is the container image of the DHCP server. Empty: that of the release
	// that setup belongs to. Rolls DHCP.
	// +optional
	Image string `json:"image,omitempty"`

	// Resources are the compute resources of the DHCP container. Rolls DHCP.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// DHCPRange is a run of addresses, both ends included.
type DHCPRange struct {
	// Start is the first address.
	// +required
	Start IP `json:"start"`

	// End is the last address.
	// +required
	End IP `json:"end"`
}

// DHCPOption is one option that the DHCP server adds to its replies.
//
// +kubebuilder:validation:XValidation:rule="has(self.code) != has(self.name)",message="set exactly one of code and name"
type DHCPOption struct {
	// Code is the option's number.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=254
	Code *int32 `json:"code,omitempty"`

	// Name is the option's name, such as ntp-servers.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// Value is the option's value as text. The option's type decides how it is
	// read; a list has commas between its elements.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`
}

// InfraDNS configures the DNS server of a VLAN.
//
// +kubebuilder:validation:XValidation:rule="!has(self.instances) || size(self.instances) == 0 || !has(self.serverIP) || size(self.serverIP) == 0",message="set serverIP or instances, not both",fieldPath=".instances",reason=FieldValueForbidden
type InfraDNS struct {
	// Enabled says whether the DNS server runs. Default: true. Rolls DNS.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// ServerIP is short for a single instance with this address, which may carry
	// a prefix length. Rolls DNS.
	// +optional
	ServerIP string `json:"serverIP,omitempty"`

	// Instances are the DNS servers, all of which DHCP gives to its clients.
	// Rolls DNS.
	// +optional
	// +listType=map
	// +listMapKey=ip
	// +kubebuilder:validation:MaxItems=8
	Instances []Instance `json:"instances,omitempty"`

	// BaseDomain is the domain that the hosted cluster's own domain is part of.
	// Applied live.
	// +optional
	BaseDomain string `json:"baseDomain,omitempty"`

	// ClusterName is the first part of the hosted cluster's domain. Together with
	// baseDomain it is served beside what the HostedCluster itself says, and
	// before there is a HostedCluster. Applied live.
	// +optional
	ClusterName string `json:"clusterName,omitempty"`

	// Image is the container image of the DNS server. Empty: that of the release
	// that setup belongs to. Rolls DNS.
	// +optional
	Image string `json:"image,omitempty"`

	// Resources are the compute resources of the DNS container. Rolls DNS.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// The timeouts of a proxy that names none.
const (
	DefaultProxyConnectTimeout Duration = "5s"
	DefaultProxyIdleTimeout    Duration = "24h"
)

// InfraProxy configures the SNI proxy of a VLAN.
//
// +kubebuilder:validation:XValidation:rule="!has(self.instances) || size(self.instances) == 0 || (has(self.serverIP) && size(self.serverIP) > 0)",message="instances need a serverIP, the address that moves between them",fieldPath=".serverIP",reason=FieldValueRequired
type InfraProxy struct {
	// Enabled says whether the proxy runs. Default: true. Rolls the proxy.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// ServerIP is the address that control plane names resolve to on the VLAN; it
	// may carry a prefix length. Without instances the one proxy holds it, with
	// instances it moves between them. Rolls the proxy.
	// +optional
	ServerIP string `json:"serverIP,omitempty"`

	// AdditionalServerIPs are the addresses in the other address family that
	// control plane names resolve to. Rolls the proxy.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	AdditionalServerIPs []IP `json:"additionalServerIPs,omitempty"`

	// Instances are the replicas of the proxy, each with an address of its own
	// beside serverIP. Rolls the proxy.
	// +optional
	// +listType=map
	// +listMapKey=ip
	// +kubebuilder:validation:MaxItems=8
	Instances []Instance `json:"instances,omitempty"`

	// InternalProxyService is where pods of the management cluster are sent for
	// control plane names: an address, or a Service as "name.namespace.svc".
	// Empty: the proxy's own Service. Applied live.
	// +optional
	InternalProxyService string `json:"internalProxyService,omitempty"`

	// ControlPlaneNamespace is the namespace of the hosted control plane. Empty:
	// that of the HostedCluster. Applied live.
	// +optional
	ControlPlaneNamespace string `json:"controlPlaneNamespace,omitempty"`

	// APIServerService is the name of the API server's Service in the hosted
	// control plane. Empty: kube-apiserver. Applied live.
	// +optional
	APIServerService string `json:"apiServerService,omitempty"`

	// ProxyImage is the container image of Envoy, 1.31 or later. Empty: that of
	// the release that setup belongs to. Rolls the proxy.
	// +optional
	ProxyImage string `json:"proxyImage,omitempty"`

	// ManagerImage is ignored. The operator that oooi replaces ran its control
	// plane from it.
	// +optional
	ManagerImage string `json:"managerImage,omitempty"`

	// Image is the container image of xdsd, which runs beside Envoy. Empty: that
	// of the release that setup belongs to. Rolls the proxy.
	// +optional
	Image string `json:"image,omitempty"`

	// Resources are the compute resources of the Envoy container. Rolls the proxy.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// ConnectTimeout is how long a connection to the control plane may take to be
	// established. Applied live.
	// +optional
	// +kubebuilder:default="5s"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than zero"
	ConnectTimeout Duration `json:"connectTimeout,omitempty"`

	// IdleTimeout is how long a connection may carry no byte before it is closed;
	// 0s: for ever. Applied live.
	// +optional
	// +kubebuilder:default="24h"
	IdleTimeout Duration `json:"idleTimeout,omitempty"`

	// MaxConnections limits the open connections to each Service of the control
	// plane. Absent: no limit that a cluster would meet. Applied live.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConnections *int32 `json:"maxConnections,omitempty"`

	// LogLevel is how much Envoy writes to its log. Applied live.
	// +optional
	// +kubebuilder:default=info
	LogLevel LogLevel `json:"logLevel,omitempty"`

	// AccessLog makes Envoy write a line for each connection. Applied live.
	// +optional
	AccessLog bool `json:"accessLog,omitempty"`
}
