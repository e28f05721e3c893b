package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Ports of a ProxyServer where none are given.
const (
	DefaultProxyPort int32 = 443
	DefaultXDSPort   int32 = 18000
)

// ProxyServerSpec is what one SNI proxy listens on and where it connects to.
//
// +kubebuilder:validation:XValidation:rule="has(self.infraRef) || (has(self.backends) && size(self.backends) > 0)",message="needs backends, or an infraRef to derive them from",fieldPath=".backends",reason=FieldValueRequired
type ProxyServerSpec struct {
	// InfraRef names the Infra that routes are derived from, in this namespace.
	// Its values win over those of this object. Applied live.
	// +optional
	InfraRef *InfraReference `json:"infraRef,omitempty"`

	// NetworkConfig is the proxy's place on the VLAN.
	// +required
	NetworkConfig ProxyNetworkConfig `json:"networkConfig"`

	// Backends are routes beside those of the Infra. A hostname on a port belongs
	// to one backend. Applied live.
	// +optional
	// +listType=map
	// +listMapKey=hostname
	// +listMapKey=port
	// +kubebuilder:validation:MaxItems=16384
	Backends []ProxyBackend `json:"backends,omitempty"`

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

	// Port is ignored. The proxy listens on the ports of its routes.
	// +optional
	// +kubebuilder:default=443
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// XDSPort is ignored. In the operator that oooi replaces, Envoy fetched its
	// configuration from this port.
	// +optional
	// +kubebuilder:default=18000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	XDSPort int32 `json:"xdsPort,omitempty"`

	// LogLevel is how much Envoy writes to its log. Applied live.
	// +optional
	// +kubebuilder:default=info
	LogLevel LogLevel `json:"logLevel,omitempty"`
}

// ProxyNetworkConfig is a proxy's place on a VLAN.
type ProxyNetworkConfig struct {
	// ServerIP is the proxy's address on the VLAN; it may carry a prefix length.
	// Rolls the proxy.
	// +required
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,3}(\.[0-9]{1,3}){3}(/[0-9]{1,2})?|[0-9a-fA-F]{0,4}(:[0-9a-fA-F]{0,4}){2,7}(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?)$')`,message="must be an IPv4 or IPv6 address, with or without a prefix length"
	ServerIP string `json:"serverIP"`

	// NetworkAttachmentName names the NetworkAttachmentDefinition to attach, as
	// "name" or "namespace/name". Rolls the proxy.
	// +optional
	NetworkAttachmentName string `json:"networkAttachmentName,omitempty"`

	// NetworkAttachmentNamespace is the namespace of the
	// NetworkAttachmentDefinition, unless its name carries one. Empty: the
	// ProxyServer's own. Rolls the proxy.
	// +optional
	NetworkAttachmentNamespace string `json:"networkAttachmentNamespace,omitempty"`

	// Gateway is the VLAN's router, for connections that leave from the VLAN
	// address. Rolls the proxy.
	// +optional
	Gateway string `json:"gateway,omitempty"`

	// DNS are the resolvers of the proxy's pod. Empty: the cluster's. Rolls the
	// proxy.
	// +optional
	DNS []string `json:"dns,omitempty"`
}

// Protocol says how connections are told apart on a port.
//
// +kubebuilder:validation:Enum=TCP;TLS;HTTPS;UDP
type Protocol string

const (
	// ProtocolTCP routes TLS by its server name. It also carries the port's
	// connections without TLS, where the backend is the port's only TCP one and
	// no API server is on that port.
	ProtocolTCP Protocol = "TCP"

	// ProtocolTLS routes TLS by its server name, and nothing else.
	ProtocolTLS Protocol = "TLS"

	// ProtocolHTTPS is ProtocolTLS by another name.
	ProtocolHTTPS Protocol = "HTTPS"

	// ProtocolUDP is accepted because old objects may hold it. It was never
	// proxied and is not now: such a backend is reported and left out.
	ProtocolUDP Protocol = "UDP"
)

// DefaultConnectTimeoutSeconds is the connect timeout of a backend that names
// none.
const DefaultConnectTimeoutSeconds int32 = 30

// ProxyBackend routes the connections for some hostnames on one port to one
// Service.
//
// +kubebuilder:validation:XValidation:rule="has(self.targetService) != has(self.targetSelector)",message="set exactly one of targetService and targetSelector"
type ProxyBackend struct {
	// Name identifies the backend in status, logs and metrics.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Hostname is the TLS server name that clients ask for. A wildcard may stand
	// for its first label ("*.apps.example.com") and matches at any depth.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^(\*(\.[^*]*)?|[^*]*)$`
	Hostname string `json:"hostname"`

	// AlternateHostnames are further server names for the same Service.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:Pattern=`^(\*(\.[^*]*)?|[^*]*)$`
	AlternateHostnames []string `json:"alternateHostnames,omitempty"`

	// Port is the port that clients connect to.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// TargetService is the name of the Service to connect to.
	// +optional
	// +kubebuilder:validation:MinLength=1
	TargetService string `json:"targetService,omitempty"`

	// TargetSelector finds the Service to connect to by its labels, for Services
	// whose name cannot be known.
	// +optional
	TargetSelector *ServiceSelector `json:"targetSelector,omitempty"`

	// TargetPort is the port of the Service, by number or by name.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^([a-z0-9]+-)*[a-z0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*$`
	// +kubebuilder:validation:XValidation:rule="!(type(self) in [int]) || (self >= 1 && self <= 65535)",message="must be a port number from 1 to 65535, or the name of a port"
	TargetPort intstr.IntOrString `json:"targetPort"`

	// TargetNamespace is the namespace of the Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	TargetNamespace string `json:"targetNamespace"`

	// Protocol says how connections are told apart on the port.
	// +optional
	// +kubebuilder:default=TCP
	Protocol Protocol `json:"protocol,omitempty"`

	// TimeoutSeconds is how long a connection to the Service may take to be
	// established, in seconds.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// IdleTimeout is how long a connection may carry no byte before it is closed;
	// 0s: for ever. Absent: 24h.
	// +optional
	IdleTimeout Duration `json:"idleTimeout,omitempty"`

	// MaxConnections limits the open connections to the Service. Absent: no limit
	// that a cluster would meet.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConnections *int32 `json:"maxConnections,omitempty"`

	// HealthCheck has Envoy probe the Service's endpoints with TCP connections.
	// Absent: readiness of the endpoints is all that counts.
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
}

// OnMultiple says what to do when a selector finds more than one Service.
//
// +kubebuilder:validation:Enum=Fail;Newest;Oldest
type OnMultiple string

const (
	// OnMultipleFail takes none of them, keeps the last good one and reports it.
	OnMultipleFail OnMultiple = "Fail"

	// OnMultipleNewest takes the one that was created last.
	OnMultipleNewest OnMultiple = "Newest"

	// OnMultipleOldest takes the one that was created first.
	OnMultipleOldest OnMultiple = "Oldest"
)

// ServiceSelector finds one Service by its labels.
type ServiceSelector struct {
	// MatchLabels are labels that the Service has.
	// +required
	// +kubebuilder:validation:MinProperties=1
	MatchLabels map[string]string `json:"matchLabels"`

	// OnMultiple says what to do when more than one Service has them.
	// +optional
	// +kubebuilder:default=Fail
	OnMultiple OnMultiple `json:"onMultiple,omitempty"`
}

// The health check of a backend that asks for one and says nothing else.
const (
	DefaultHealthCheckInterval Duration = "10s"
	DefaultHealthCheckTimeout  Duration = "3s"
	DefaultUnhealthyAfter      int32    = 3
	DefaultHealthyAfter        int32    = 2
)

// HealthCheck has the endpoints of a Service probed.
type HealthCheck struct {
	// Interval is the time between two probes of an endpoint.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than zero"
	Interval Duration `json:"interval,omitempty"`

	// Timeout is how long a probe may take.
	// +optional
	// +kubebuilder:default="3s"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than zero"
	Timeout Duration `json:"timeout,omitempty"`

	// UnhealthyAfter is how many failed probes in a row take an endpoint out.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	UnhealthyAfter int32 `json:"unhealthyAfter,omitempty"`

	// HealthyAfter is how many good probes in a row bring it back.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	HealthyAfter int32 `json:"healthyAfter,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=proxysrv,categories=oooi
// +kubebuilder:printcolumn:name="Infra",type=string,JSONPath=`.spec.infraRef.name`,description="Infra that routes are derived from"
// +kubebuilder:printcolumn:name="ServerIP",type=string,JSONPath=`.spec.networkConfig.serverIP`,description="Address of the proxy on the VLAN"
// +kubebuilder:printcolumn:name="Port",type=integer,JSONPath=`.spec.port`,description="Port for TLS"
// +kubebuilder:printcolumn:name="Backends",type=integer,JSONPath=`.status.backendCount`,description="Backends that are routed"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether every replica has the current configuration and completes handshakes"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready or not"
// +kubebuilder:printcolumn:name="Service-IP",type=string,priority=1,JSONPath=`.status.serviceIP`,description="Cluster address of the proxy's Service"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// ProxyServer describes one Envoy on a VLAN, which passes TLS connections on by
// their server name.
type ProxyServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	// +optional
	Spec ProxyServerSpec `json:"spec,omitzero"`

	// Status is what was observed.
	// +optional
	Status ProxyServerStatus `json:"status,omitzero"`
}

// +kubebuilder:object:root=true

// ProxyServerList is a list of ProxyServer objects.
type ProxyServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects of the list.
	Items []ProxyServer `json:"items"`
}
