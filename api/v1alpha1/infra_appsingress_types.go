package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// AppsIngressSource is the source of the apps address.
//
// +kubebuilder:validation:Enum=HostedService;MirroredService;Static
type AppsIngressSource string

const (
	// AppsIngressSourceHostedService reads the address from a LoadBalancer Service that oooi creates in the
	// hosted cluster.
	AppsIngressSourceHostedService AppsIngressSource = "HostedService"

	// AppsIngressSourceMirroredService reads the address from the Service that the KubeVirt cloud controller
	// creates in the management cluster for a LoadBalancer Service of the hosted cluster.
	AppsIngressSourceMirroredService AppsIngressSource = "MirroredService"

	// AppsIngressSourceStatic uses the addresses in the Infra.
	AppsIngressSourceStatic AppsIngressSource = "Static"
)

// MirroredServiceNote is the requirement of AppsIngressSourceMirroredService, which oooi cannot check.
const MirroredServiceNote = "the endpoints of a mirrored Service are the first addresses of the VMs, which nodes of the management cluster must reach; " +
	"with attachDefaultNetwork: false in the NodePools they are VLAN addresses, and source HostedService or Static is required"

// AppsIngressDial is the way to connect to the hosted cluster's API server.
//
// +kubebuilder:validation:Enum=Service;URL
type AppsIngressDial string

const (
	// AppsIngressDialService connects to the API server's Service in the management cluster. It does not need
	// DNS.
	AppsIngressDialService AppsIngressDial = "Service"

	// AppsIngressDialURL connects to the host in the kubeconfig.
	AppsIngressDialURL AppsIngressDial = "URL"
)

// DefaultAddressDeadline is the default of addressDeadline.
const DefaultAddressDeadline Duration = "5m"

// AppsIngress publishes the apps of the hosted cluster (*.apps) on the VLAN.
//
// +kubebuilder:validation:XValidation:rule="!has(self.source) || self.source != 'Static' || (has(self.addresses) && size(self.addresses) > 0)",message="source Static needs addresses",fieldPath=".addresses",reason=FieldValueRequired
type AppsIngress struct {
	// Enabled serves and routes apps names.
	// +optional
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`

	// BaseDomain adds the apps domain "apps.<cluster>.<baseDomain>", or baseDomain itself if it begins with
	// "apps.". <cluster> is infraComponents.dns.clusterName or, if empty, the name of the HostedCluster. The apps
	// domain of the HostedCluster is served as well. Applied live.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?([.][a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?)*[.]?)?$')`,message="must be a domain name such as example.com"
	BaseDomain string `json:"baseDomain,omitempty"`

	// HostedClusterRef refers to the hosted cluster whose apps are served. Required if enabled, unless
	// spec.hostedClusterRef is set. Applied live.
	// +optional
	HostedClusterRef *HostedClusterReference `json:"hostedClusterRef,omitempty"`

	// Source is the source of the apps address. Applied live.
	// +optional
	// +kubebuilder:default=HostedService
	Source AppsIngressSource `json:"source,omitempty"`

	// Addresses are the apps addresses with source Static; otherwise they are ignored. Applied live.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule=`self.all(a, !a.matches(r'^(0|127|22[4-9]|23[0-9]|24[0-9]|25[0-5])[.]|^169[.]254[.]|^[fF][eE][89abAB][0-9a-fA-F]:|^[fF][fF][0-9a-fA-F]{2}:|^::1?$'))`,message="must be addresses that other hosts can reach: not loopback, link-local, multicast, reserved or unspecified"
	Addresses []IP `json:"addresses,omitempty"`

	// KubeconfigSecretRef refers to a Secret with a kubeconfig for the hosted cluster, in the Infra's
	// namespace. Defaults to the kubeconfig that the HostedCluster publishes.
	// +optional
	KubeconfigSecretRef *SecretKeyReference `json:"kubeconfigSecretRef,omitempty"`

	// Dial is the way to connect to the hosted cluster's API server.
	// +optional
	// +kubebuilder:default=Service
	Dial AppsIngressDial `json:"dial,omitempty"`

	// AddressDeadline is how long the Service may lack an address before the phase changes from Pending to Degraded.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than zero"
	AddressDeadline Duration `json:"addressDeadline,omitempty"`

	// MetalLB configures how MetalLB assigns the address in the hosted cluster.
	// +optional
	MetalLB *AppsIngressMetalLB `json:"metallb,omitempty"`

	// Service configures the LoadBalancer Service in the hosted cluster.
	// +optional
	Service *AppsIngressService `json:"service,omitempty"`

	// Ports are the ports of that Service and of the proxy's listeners.
	// +optional
	Ports *AppsIngressPorts `json:"ports,omitempty"`

	// ProxyProtocol is the version of the PROXY protocol header that the proxy sends to the apps address, on both
	// ports. The router must require it: other clients cannot connect to the apps address directly, so apps names
	// resolve to the proxy's addresses on the VLAN. Applied live, to new connections.
	// +optional
	// +kubebuilder:default=None
	ProxyProtocol ProxyProtocol `json:"proxyProtocol,omitempty"`
}

// AppsIngressMetalLB configures how MetalLB assigns the apps address.
type AppsIngressMetalLB struct {
	// AddressPoolName is the IPAddressPool that assigns the address. By default, MetalLB selects a pool with
	// autoAssign; if install creates a pool, its name is oooi.
	// +optional
	AddressPoolName string `json:"addressPoolName,omitempty"`

	// IPAddressPoolRange are the addresses that are accepted from the hosted cluster: a comma-separated
	// string, or an array of such strings, of addresses, networks in CIDR notation and ranges "first-last".
	// Defaults to the VLAN's addresses. Applied live.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	IPAddressPoolRange *AddressRanges `json:"ipAddressPoolRange,omitempty"`

	// L2AdvertisementName is the L2Advertisement that announces the pool. If it does not exist, or does not select the
	// pool, status.appsIngress reports it.
	// +optional
	L2AdvertisementName string `json:"l2AdvertisementName,omitempty"`

	// LoadBalancerClass is the class of the Service. It is required on KubeVirt: without a class, both the
	// cloud controller and MetalLB write the status of the Service. MetalLB must run with the same class.
	// +optional
	// +kubebuilder:validation:MinLength=1
	LoadBalancerClass string `json:"loadBalancerClass,omitempty"`

	// Install installs MetalLB in the hosted cluster. Default: false.
	// +optional
	Install *bool `json:"install,omitempty"`

	// AutoInstall is an alias of install, which takes precedence.
	// +optional
	AutoInstall *bool `json:"autoInstall,omitempty"`

	// OLM configures the subscription to the MetalLB operator.
	// +optional
	OLM *MetalLBOLM `json:"olm,omitempty"`
}

// Defaults of the subscription to the MetalLB operator: Red Hat's catalog on OpenShift.
const (
	DefaultMetalLBSource          = "redhat-operators"
	DefaultMetalLBSourceNamespace = "openshift-marketplace"
	DefaultMetalLBChannel         = "stable"
)

// MetalLBOLM is the Operator Lifecycle Manager subscription that installs MetalLB.
type MetalLBOLM struct {
	// Source is the catalog source.
	// +optional
	// +kubebuilder:default=redhat-operators
	Source string `json:"source,omitempty"`

	// SourceNamespace is the namespace of the catalog source.
	// +optional
	// +kubebuilder:default=openshift-marketplace
	SourceNamespace string `json:"sourceNamespace,omitempty"`

	// Channel is the channel of the subscription.
	// +optional
	// +kubebuilder:default=stable
	Channel string `json:"channel,omitempty"`

	// StartingCSV is the version to install first. Defaults to the newest of the channel.
	// +optional
	StartingCSV string `json:"startingCSV,omitempty"`
}

// DefaultAppsServiceNamespace is the default namespace of the apps Service. The default router's pods run there, and
// a Service selects only pods in its namespace.
const DefaultAppsServiceNamespace = "openshift-ingress"

// AppsIngressService configures the apps Service, a LoadBalancer Service in the hosted cluster.
type AppsIngressService struct {
	// Name of the Service. Defaults to "<cluster>-apps".
	// +optional
	Name string `json:"name,omitempty"`

	// Namespace of the Service. It must be the namespace of the router's pods; the default router runs in
	// openshift-ingress.
	// +optional
	// +kubebuilder:default=openshift-ingress
	Namespace string `json:"namespace,omitempty"`

	// Selector selects the pods behind the Service. Defaults to the default router's pods.
	// +optional
	Selector map[string]string `json:"selector,omitempty"`

	// IPFamilyPolicy is the ipFamilyPolicy of the Service. Defaults to the hosted cluster's default.
	// +optional
	// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
	IPFamilyPolicy *corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`

	// ExternalTrafficPolicy is the externalTrafficPolicy of the Service. Defaults to the hosted cluster's default.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`

	// Annotations are added to the Service.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// Labels are added to the Service.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// Default ports of the apps Service.
const (
	DefaultAppsHTTPPort  int32 = 80
	DefaultAppsHTTPSPort int32 = 443
)

// AppsIngressPorts are the ports of the apps Service and of the proxy's listeners for apps.
type AppsIngressPorts struct {
	// HTTP is the port for plain HTTP.
	// +optional
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	HTTP int32 `json:"http,omitempty"`

	// HTTPS is the port for TLS, which the proxy does not terminate.
	// +optional
	// +kubebuilder:default=443
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	HTTPS int32 `json:"https,omitempty"`
}
