package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Default ports of a ProxyServer.
const (
	DefaultProxyPort int32 = 443
	DefaultXDSPort   int32 = 18000
)

// ProxyServerSpec describes one SNI proxy: its place on the VLAN and its routes.
//
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !has(self.limits.perSource) || has(self.infraRef)",message="perSource needs an Infra whose proxy has instances",fieldPath=".limits.perSource",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.nodePlacement) || !has(self.infraRef)",message="set spec.nodePlacement of the Infra, which places all of its pods",fieldPath=".nodePlacement",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="has(self.infraRef) || (has(self.backends) && size(self.backends) > 0)",message="needs backends, or an infraRef to derive them from",fieldPath=".backends",reason=FieldValueRequired
type ProxyServerSpec struct {
	// InfraRef refers to the Infra that routes are derived from, in this namespace. Its settings take precedence over
	// this object's. Applied live.
	// +optional
	InfraRef *InfraReference `json:"infraRef,omitempty"`

	// NetworkConfig is the network configuration of the proxy.
	// +required
	NetworkConfig ProxyNetworkConfig `json:"networkConfig"`

	// Backends are routes in addition to the Infra's. A hostname on a port belongs to one backend. Applied live.
	// +optional
	// +listType=map
	// +listMapKey=hostname
	// +listMapKey=port
	// +kubebuilder:validation:MaxItems=16384
	Backends []ProxyBackend `json:"backends,omitempty"`

	// Egress are the names outside of the cluster that clients can connect to, in addition to the Infra's egress.
	// None by default.
	// +optional
	Egress *Egress `json:"egress,omitempty"`

	// NodePlacement selects the nodes of a proxy without an Infra. All of these nodes must have the VLAN. Absent: any
	// node. Rolls the proxy.
	// +optional
	// +structType=atomic
	NodePlacement *NodePlacement `json:"nodePlacement,omitempty"`

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

	// Resources are the compute resources of the Envoy container. Defaults to requests of 100m CPU and 96Mi memory. Rolls
	// the proxy.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// XDSDResources are the compute resources of each container with xdsd: the init container bootstrap, and xdsd.
	// Defaults to requests of 10m to 50m CPU and 32Mi to 64Mi memory. Rolls the proxy.
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

	// Port is ignored. The proxy listens on the ports of its routes.
	// +optional
	// +kubebuilder:default=443
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// XDSPort is ignored. Envoy fetched its configuration from this port in the earlier operator.
	// +optional
	// +kubebuilder:default=18000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	XDSPort int32 `json:"xdsPort,omitempty"`

	// LogLevel is Envoy's log level. Applied live.
	// +optional
	// +kubebuilder:default=info
	LogLevel LogLevel `json:"logLevel,omitempty"`

	// AccessLog enables Envoy's access log, with a line for each connection and HTTP request. Applied live.
	// +optional
	AccessLog bool `json:"accessLog,omitempty"`
}

// ProxyNetworkConfig is the network configuration of a proxy on a VLAN.
type ProxyNetworkConfig struct {
	// ServerIP is the proxy's address on the VLAN. It may have a prefix length. Rolls the proxy.
	// +required
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,3}(\.[0-9]{1,3}){3}(/[0-9]{1,2})?|[0-9a-fA-F]{0,4}(:[0-9a-fA-F]{0,4}){2,7}(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?)$')`,message="must be an IPv4 or IPv6 address, with or without a prefix length"
	ServerIP string `json:"serverIP"`

	// NetworkAttachmentName is the NetworkAttachmentDefinition to attach, as "name" or "namespace/name".
	// Rolls the proxy.
	// +optional
	NetworkAttachmentName string `json:"networkAttachmentName,omitempty"`

	// NetworkAttachmentNamespace is the namespace of the NetworkAttachmentDefinition, unless its name
	// includes one. Defaults to the ProxyServer's own. Rolls the proxy.
	// +optional
	NetworkAttachmentNamespace string `json:"networkAttachmentNamespace,omitempty"`

	// Gateway is the VLAN's router, used for connections from the VLAN address. Rolls the proxy.
	// +optional
	Gateway string `json:"gateway,omitempty"`

	// DNS are the resolvers of the proxy's pod. Defaults to the cluster's resolvers. Rolls the proxy.
	// +optional
	DNS []string `json:"dns,omitempty"`
}

// Protocol is how a backend's connections are selected on a port.
//
// +kubebuilder:validation:Enum=TCP;TLS;HTTPS;HTTP;UDP
type Protocol string

const (
	// ProtocolTCP routes TLS by SNI. It also routes connections without TLS, if the backend is the only TCP
	// backend of the port and the port does not serve an API server.
	ProtocolTCP Protocol = "TCP"

	// ProtocolTLS routes TLS by SNI, and no other connections.
	ProtocolTLS Protocol = "TLS"

	// ProtocolHTTPS is an alias of ProtocolTLS.
	ProtocolHTTPS Protocol = "HTTPS"

	// ProtocolHTTP routes requests without TLS by their Host header, and by the rules in http.
	ProtocolHTTP Protocol = "HTTP"

	// ProtocolUDP forwards all datagrams of the UDP port. Another protocol may use the same port number. The hostname
	// selects nothing: it names the port in metrics and in kubectl oooi routes.
	ProtocolUDP Protocol = "UDP"
)

// Defaults of the sessions of a backend with the protocol UDP.
const (
	DefaultUDPIdleTimeout Duration = "30s"
	DefaultUDPSessions    int32    = 4096
)

// DefaultConnectTimeoutSeconds is the default connect timeout of a backend.
const DefaultConnectTimeoutSeconds int32 = 30

// ProxyBackend routes connections for some hostnames on one port to one Service.
//
// +kubebuilder:validation:XValidation:rule="has(self.targetService) != has(self.targetSelector) || has(self.http) && !has(self.targetService)",message="set exactly one of targetService and targetSelector"
// +kubebuilder:validation:XValidation:rule="has(self.targetPort) || !has(self.targetService) && !has(self.targetSelector)",message="is required with targetService and targetSelector",fieldPath=".targetPort",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="!has(self.http) || has(self.protocol) && self.protocol == 'HTTP'",message="needs protocol HTTP",fieldPath=".http",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.retry) || !has(self.protocol) || !(self.protocol in ['HTTP', 'UDP'])",message="needs protocol TCP, TLS or HTTPS; with HTTP, set retry of http.rules",fieldPath=".retry",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.maxPendingConnections) || !has(self.protocol) || !(self.protocol in ['HTTP', 'UDP'])",message="needs protocol TCP, TLS or HTTPS",fieldPath=".maxPendingConnections",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.outlierDetection) || !has(self.protocol) || self.protocol != 'UDP'",message="needs a protocol other than UDP",fieldPath=".outlierDetection",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.http) || has(self.targetService) || has(self.targetSelector) || self.http.rules.all(r, has(r.backendRefs) && size(r.backendRefs) > 0 || has(r.filters) && size(r.filters) > 0)",message="each rule needs backendRefs or a redirect, or the backend a targetService or targetSelector",fieldPath=".http.rules"
type ProxyBackend struct {
	// Name identifies the backend in status, logs and metrics.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Hostname is the TLS server name (SNI) that clients send, or with protocol HTTP the Host header. Its first label may
	// be a wildcard ("*.apps.example.com"), which matches any number of labels. With protocol HTTP, "*" matches all others.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^(\*(\.[^*]*)?|[^*]*)$`
	Hostname string `json:"hostname"`

	// AlternateHostnames are additional server names for the same Service.
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

	// TargetSelector selects the Service to connect to by its labels, if its name is not known in advance.
	// +optional
	TargetSelector *ServiceSelector `json:"targetSelector,omitempty"`

	// TargetPort is the port of the Service, by number or by name. Required with targetService and targetSelector.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^([a-z0-9]+-)*[a-z0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*$`
	// +kubebuilder:validation:XValidation:rule="!(type(self) in [int]) || (self >= 1 && self <= 65535)",message="must be a port number from 1 to 65535, or the name of a port"
	TargetPort intstr.IntOrString `json:"targetPort,omitzero"`

	// TargetNamespace is the namespace of the Service, and of the Services in http.
	// +required
	// +kubebuilder:validation:MinLength=1
	TargetNamespace string `json:"targetNamespace"`

	// Protocol is how connections are selected on the port.
	// +optional
	// +kubebuilder:default=TCP
	Protocol Protocol `json:"protocol,omitempty"`

	// HTTP are the routes of requests, with protocol HTTP. Without routes, all requests go to the Service.
	// +optional
	HTTP *HTTPRoutes `json:"http,omitempty"`

	// TimeoutSeconds is the timeout for connecting to the Service, in seconds.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// IdleTimeout is how long a connection may carry no data before it is closed; 0s: forever. Defaults to 24h. For UDP, how
	// long the client's address stays bound to an endpoint without a datagram; absent or 0s: 30s.
	// +optional
	IdleTimeout Duration `json:"idleTimeout,omitempty"`

	// MaxConnections limits the open connections to the Service. Defaults to 1048576, in practice no limit. For UDP, it
	// limits the sessions, one for each address and port of a client; defaults to 4096.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConnections *int32 `json:"maxConnections,omitempty"`

	// MaxPendingConnections limits the connections that are being opened to the Service. Further connections of clients are
	// closed, so that endpoints that do not answer cannot use up maxConnections. Defaults to maxConnections. Not with HTTP and UDP.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxPendingConnections *int32 `json:"maxPendingConnections,omitempty"`

	// Retry retries failed attempts to connect to the Service. By default, with the defaults of its fields. Not with HTTP, whose rules have their
	// own retry, and UDP.
	// +optional
	Retry *ConnectRetry `json:"retry,omitempty"`

	// OutlierDetection ejects endpoints to which connections fail. By default, with the defaults of its fields. Not with UDP.
	// +optional
	OutlierDetection *OutlierDetection `json:"outlierDetection,omitempty"`

	// HealthCheck makes Envoy probe the Service's endpoints with TCP connections. Without it, only the readiness
	// in EndpointSlices is used. Ignored for UDP.
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`

	// ProxyProtocol is the version of the PROXY protocol header that the proxy sends to the Service. Applied live,
	// to new connections. Ignored for UDP.
	// +optional
	// +kubebuilder:default=None
	ProxyProtocol ProxyProtocol `json:"proxyProtocol,omitempty"`
}

// OnMultiple is the policy if a selector matches several Services.
//
// +kubebuilder:validation:Enum=Fail;Newest;Oldest
type OnMultiple string

const (
	// OnMultipleFail selects no Service and reports the ambiguity. The last selected Service stays in use while it
	// matches.
	OnMultipleFail OnMultiple = "Fail"

	// OnMultipleNewest selects the Service that was created last.
	OnMultipleNewest OnMultiple = "Newest"

	// OnMultipleOldest selects the Service that was created first.
	OnMultipleOldest OnMultiple = "Oldest"
)

// ServiceSelector selects one Service by its labels.
type ServiceSelector struct {
	// MatchLabels are the labels that the Service must have.
	// +required
	// +kubebuilder:validation:MinProperties=1
	MatchLabels map[string]string `json:"matchLabels"`

	// OnMultiple is the policy if several Services match.
	// +optional
	// +kubebuilder:default=Fail
	OnMultiple OnMultiple `json:"onMultiple,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=proxysrv,categories=oooi
// +kubebuilder:metadata:labels=app.kubernetes.io/managed-by=oooi
// +kubebuilder:metadata:annotations={"argocd.argoproj.io/sync-options=Prune=false,Delete=false","helm.sh/resource-policy=keep","kustomize.toolkit.fluxcd.io/prune=disabled"}
// +kubebuilder:printcolumn:name="Infra",type=string,JSONPath=`.spec.infraRef.name`,description="Infra that routes are derived from"
// +kubebuilder:printcolumn:name="ServerIP",type=string,JSONPath=`.spec.networkConfig.serverIP`,description="Address of the proxy on the VLAN"
// +kubebuilder:printcolumn:name="Backends",type=integer,JSONPath=`.status.backendCount`,description="Backends that are routed"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether every replica has the current configuration and completes handshakes"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready or not"
// +kubebuilder:printcolumn:name="Service-IP",type=string,priority=1,JSONPath=`.status.serviceIP`,description="Cluster address of the proxy's Service"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// ProxyServer describes one proxy on a VLAN: Envoy, which forwards TLS connections by SNI.
type ProxyServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state.
	// +optional
	Spec ProxyServerSpec `json:"spec,omitzero"`

	// Status is the observed state.
	// +optional
	Status ProxyServerStatus `json:"status,omitzero"`
}

// +kubebuilder:object:root=true

// ProxyServerList is a list of ProxyServer objects.
type ProxyServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the ProxyServers.
	Items []ProxyServer `json:"items"`
}
