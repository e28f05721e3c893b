package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Instance is one replica of a component, with its own address on the VLAN.
type Instance struct {
	// IP is the replica's address on the VLAN.
	// +required
	IP IP `json:"ip"`

	// AdditionalIPs are the replica's addresses of the other address family.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	AdditionalIPs []IP `json:"additionalIPs,omitempty"`
}

// DefaultLeaseTime is the default of leaseTime.
const DefaultLeaseTime = "1h"

// InfraDHCP configures the DHCP server of a VLAN.
//
// +kubebuilder:validation:XValidation:rule="!has(self.instances) || size(self.instances) == 0 || !has(self.serverIP) || size(self.serverIP) == 0",message="set serverIP or instances, not both",fieldPath=".instances",reason=FieldValueForbidden
type InfraDHCP struct {
	// Enabled deploys the DHCP server. Default: true. Rolls DHCP.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// ServerIP is the address of a single replica, instead of instances. It may have a prefix length. Rolls
	// DHCP.
	// +optional
	ServerIP string `json:"serverIP,omitempty"`

	// Instances are the DHCP replicas, which share their leases. Rolls DHCP.
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

	// Ranges are additional ranges of the pool. Rolls DHCP.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Ranges []DHCPRange `json:"ranges,omitempty"`

	// Exclude are addresses in the ranges that are never leased, each an address, a network in CIDR notation
	// or "first-last". Rolls DHCP.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=91
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^[0-9a-fA-F.:]+(/[0-9]{1,3}|-[0-9a-fA-F.:]+)?$')`,message="must be an address, a network in CIDR notation, or first-last"
	Exclude []string `json:"exclude,omitempty"`

	// LeaseTime is the lease time that clients get, as a Go duration of whole seconds from 1m to 8760h. It only sets when
	// they renew: a VM keeps its address for its lifetime. Rolls DHCP.
	// +optional
	// +kubebuilder:default="1h"
	LeaseTime string `json:"leaseTime,omitempty"`

	// VMSelector selects the VirtualMachineInstances that get addresses. Defaults to the hosted cluster's VMs. Empty
	// ({}): all on this network. Rolls DHCP.
	// +optional
	VMSelector *metav1.LabelSelector `json:"vmSelector,omitempty"`

	// Hosts are clients that are not VMs of KubeVirt, such as bare-metal hosts. A host keeps its address as long as its entry
	// exists. Rolls DHCP.
	// +optional
	// +listType=map
	// +listMapKey=mac
	// +kubebuilder:validation:MaxItems=1024
	Hosts []DHCPHost `json:"hosts,omitempty"`

	// Relays are the IPv4 networks of relay agents outside of networkConfig.cidr that DHCP serves. They name the VLAN's subnet in
	// option 82 (link selection, RFC 3527). Relay agents inside of networkConfig.cidr need no entry. Defaults to all. Needs
	// networkConfig.gateway. Rolls DHCP.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Relays []CIDR `json:"relays,omitempty"`

	// DefaultRoute sends the gateway to clients. Set it to false for VMs with their default route on another interface:
	// DHCP then sends only routes to DNS and proxy servers in additionalCIDRs. Default: true. Rolls DHCP.
	// +optional
	DefaultRoute *bool `json:"defaultRoute,omitempty"`

	// DNS sends DNS servers to clients. Set it to false for VMs that get their resolvers on another interface.
	// Default: true. Rolls DHCP.
	// +optional
	DNS *bool `json:"dns,omitempty"`

	// Options are further DHCP options for every client. Rolls DHCP.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Options []DHCPOption `json:"options,omitempty"`

	// Image is the container image of the DHCP server. Defaults to the image of setup's release. Rolls DHCP.
	// +optional
	Image string `json:"image,omitempty"`

	// Resources are the compute resources of the DHCP container. Rolls DHCP.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// DHCPRange is an inclusive range of addresses.
type DHCPRange struct {
	// Start is the first address.
	// +required
	Start IP `json:"start"`

	// End is the last address.
	// +required
	End IP `json:"end"`
}

// DHCPHost is a DHCP client with a fixed MAC address.
type DHCPHost struct {
	// MAC is the host's MAC address, in lower case with colons.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$`
	MAC string `json:"mac"`

	// Hostname is the hostname that DHCP sends. None by default.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Hostname string `json:"hostname,omitempty"`

	// Address is reserved for the host. It must be in networkConfig.cidr, inside or outside of the ranges. Defaults to one of the
	// ranges.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(\.|$)){4}$`
	Address string `json:"address,omitempty"`
}

// DHCPOption is an option that the DHCP server adds to its replies.
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

	// Value is the option's value as text. Its syntax depends on the option; elements of a list are separated
	// by commas.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`
}

// InfraDNS configures the DNS server of a VLAN.
//
// +kubebuilder:validation:XValidation:rule="!has(self.instances) || size(self.instances) == 0 || !has(self.serverIP) || size(self.serverIP) == 0",message="set serverIP or instances, not both",fieldPath=".instances",reason=FieldValueForbidden
type InfraDNS struct {
	// Enabled deploys the DNS server. Default: true. Rolls DNS.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// ServerIP is the address of a single replica, instead of instances. It may have a prefix length. Rolls
	// DNS.
	// +optional
	ServerIP string `json:"serverIP,omitempty"`

	// Instances are the DNS replicas. DHCP sends all of their addresses to its clients. Rolls DNS.
	// +optional
	// +listType=map
	// +listMapKey=ip
	// +kubebuilder:validation:MaxItems=8
	Instances []Instance `json:"instances,omitempty"`

	// BaseDomain is the parent domain of the hosted cluster's domain. Applied live.
	// +optional
	BaseDomain string `json:"baseDomain,omitempty"`

	// ClusterName is the first label of the hosted cluster's domain. The domain "<clusterName>.<baseDomain>"
	// is served in addition to the HostedCluster's domain, and before the HostedCluster exists. Applied live.
	// +optional
	ClusterName string `json:"clusterName,omitempty"`

	// Records are further DNS records. They cannot replace control-plane names; condition RecordsServed names those that
	// are not served. Applied live.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="self.all(r, r.type != 'CNAME' || self.exists_one(o, o.name == r.name))",message="a name with a CNAME must not have other records"
	Records []DNSRecord `json:"records,omitempty"`

	// VMNames publishes the names of the VMs.
	// +optional
	VMNames *VMNames `json:"vmNames,omitempty"`

	// Forward is the policy for VMs' queries for names that are not served: Upstream forwards them to the upstream
	// resolvers, Deny returns NXDOMAIN. Pods' queries are always forwarded. Default: Upstream. Applied live by setup.
	// +optional
	Forward DNSForward `json:"forward,omitempty"`

	// Image is the container image of the DNS server. Defaults to the image of setup's release. Rolls DNS.
	// +optional
	Image string `json:"image,omitempty"`

	// Resources are the compute resources of the DNS container. Rolls DNS.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// DNSForward is what happens to queries of VMs for names that are not served.
//
// +kubebuilder:validation:Enum=Upstream;Deny
type DNSForward string

// Values of DNSForward.
const (
	DNSForwardUpstream DNSForward = "Upstream"
	DNSForwardDeny     DNSForward = "Deny"
)

// Default timeouts of a proxy.
const (
	DefaultProxyConnectTimeout Duration = "5s"
	DefaultProxyIdleTimeout    Duration = "24h"

	// DefaultProxyTerminationGracePeriod is the default of terminationGracePeriodSeconds of the proxy, and
	// ProxyHandover the part of it after which open connections end. In seconds.
	DefaultProxyTerminationGracePeriod int64 = 45
	ProxyHandover                      int64 = 15
)

// InfraProxy configures the SNI proxy of a VLAN.
//
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !has(self.limits.perSource) || (has(self.instances) && size(self.instances) > 0)",message="perSource needs instances; one suffices",fieldPath=".limits.perSource",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.instances) || size(self.instances) == 0 || (has(self.serverIP) && size(self.serverIP) > 0)",message="instances need a serverIP, the address that moves between them",fieldPath=".serverIP",reason=FieldValueRequired
type InfraProxy struct {
	// Enabled deploys the proxy. Default: true. Rolls the proxy.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// ServerIP is the address that control-plane names resolve to on the VLAN. It may have a prefix length.
	// Without instances it is the address of the only replica; with instances it is a floating address on one of the
	// replicas. Rolls the proxy.
	// +optional
	ServerIP string `json:"serverIP,omitempty"`

	// AdditionalServerIPs are additional addresses that control-plane names resolve to, of the other address
	// family. Rolls the proxy.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	AdditionalServerIPs []IP `json:"additionalServerIPs,omitempty"`

	// Instances are the proxy replicas, each with its own address in addition to serverIP. Rolls the proxy.
	// +optional
	// +listType=map
	// +listMapKey=ip
	// +kubebuilder:validation:MaxItems=8
	Instances []Instance `json:"instances,omitempty"`

	// InternalProxyService is what control-plane names resolve to for pods of the management cluster: an
	// address, or a Service as "name.namespace.svc", or as "name" in the Infra's namespace. Defaults to the proxy's own
	// Service. Applied live.
	// +optional
	InternalProxyService string `json:"internalProxyService,omitempty"`

	// ControlPlaneNamespace is the namespace of the hosted control plane. Defaults to the namespace of the HostedCluster's
	// control plane. Applied live.
	// +optional
	ControlPlaneNamespace string `json:"controlPlaneNamespace,omitempty"`

	// APIServerService is the name of the API server's Service in the hosted control plane. Empty:
	// kube-apiserver. Applied live.
	// +optional
	APIServerService string `json:"apiServerService,omitempty"`

	// ProxyImage is the container image of Envoy, 1.31 or later. Defaults to the image of setup's release. Rolls the
	// proxy.
	// +optional
	ProxyImage string `json:"proxyImage,omitempty"`

	// ManagerImage is ignored. The earlier operator ran its control plane from this image.
	// +optional
	ManagerImage string `json:"managerImage,omitempty"`

	// Image is the container image of xdsd, which runs beside Envoy. Defaults to the image of setup's release. Rolls the
	// proxy.
	// +optional
	Image string `json:"image,omitempty"`

	// TerminationGracePeriodSeconds is how long a pod of the proxy may take to end. Open connections may continue
	// for this time less 15 seconds, in which the floating address moves to another replica. Rolls the proxy.
	// +optional
	// +kubebuilder:default=45
	// +kubebuilder:validation:Minimum=15
	// +kubebuilder:validation:Maximum=600
	TerminationGracePeriodSeconds int64 `json:"terminationGracePeriodSeconds,omitempty"`

	// Resources are the compute resources of the Envoy container. Defaults to requests of 100m CPU and 96Mi memory. Rolls
	// the proxy.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// XDSDResources are the compute resources of each container with xdsd: the init container bootstrap, xdsd and,
	// with instances, holder. Defaults to requests of 10m to 50m CPU and 32Mi to 64Mi memory. Rolls the proxy.
	// +optional
	XDSDResources *corev1.ResourceRequirements `json:"xdsdResources,omitempty"`

	// WorkerThreads is the number of Envoy's worker threads. Defaults to the CPU limit in resources, rounded up, or 4
	// without one. Rolls the proxy.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	WorkerThreads *int32 `json:"workerThreads,omitempty"`

	// Limits limits what clients can use of the proxy. Rolls the proxy.
	// +optional
	Limits *ProxyLimits `json:"limits,omitempty"`

	// ConnectTimeout is the timeout for connecting to the control plane. Applied live.
	// +optional
	// +kubebuilder:default="5s"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than zero"
	ConnectTimeout Duration `json:"connectTimeout,omitempty"`

	// IdleTimeout is how long a connection may carry no data before it is closed; 0s: forever. Applied live.
	// +optional
	// +kubebuilder:default="24h"
	IdleTimeout Duration `json:"idleTimeout,omitempty"`

	// MaxConnections limits the open connections to each Service of the control plane. Defaults to 1048576, in
	// practice no limit. Applied live.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConnections *int32 `json:"maxConnections,omitempty"`

	// LogLevel is Envoy's log level. Applied live.
	// +optional
	// +kubebuilder:default=info
	LogLevel LogLevel `json:"logLevel,omitempty"`

	// AccessLog enables Envoy's access log, with a line for each connection and HTTP request. Applied live.
	// +optional
	AccessLog bool `json:"accessLog,omitempty"`
}

// InfraControl configures control, which setup deploys once per management cluster.
type InfraControl struct {
	// Resources are the compute resources of container control and, with setup's --virtual-ingress, of container ingress.
	// Defaults to the resources that another Infra sets, else to requests of 20m CPU and 64Mi memory. Infras must not set different
	// ones. Rolls control.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}
