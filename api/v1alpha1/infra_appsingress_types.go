package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// AppsIngressSource says where the address of the hosted cluster's applications
// comes from.
//
// +kubebuilder:validation:Enum=HostedService;MirroredService;Static
type AppsIngressSource string

const (
	// AppsIngressSourceHostedService reads it from a LoadBalancer Service that
	// oooi keeps in the hosted cluster.
	AppsIngressSourceHostedService AppsIngressSource = "HostedService"

	// AppsIngressSourceMirroredService reads it from the Service that KubeVirt's
	// cloud controller mirrors into the management cluster.
	AppsIngressSourceMirroredService AppsIngressSource = "MirroredService"

	// AppsIngressSourceStatic takes it from the Infra itself.
	AppsIngressSourceStatic AppsIngressSource = "Static"
)

// AppsIngressDial says how the hosted cluster's API server is reached.
//
// +kubebuilder:validation:Enum=Service;URL
type AppsIngressDial string

const (
	// AppsIngressDialService connects to the API server's Service in the
	// management cluster, which needs no DNS of ours.
	AppsIngressDialService AppsIngressDial = "Service"

	// AppsIngressDialURL connects to the host that the kubeconfig names.
	AppsIngressDialURL AppsIngressDial = "URL"
)

// DefaultAddressDeadline is the address deadline where none is given.
const DefaultAddressDeadline Duration = "5m"

// AppsIngress says how the applications of the hosted cluster become reachable
// on the VLAN.
//
// +kubebuilder:validation:XValidation:rule="!has(self.source) || self.source != 'Static' || (has(self.addresses) && size(self.addresses) > 0)",message="source Static needs addresses",fieldPath=".addresses",reason=FieldValueRequired
type AppsIngress struct {
	// Enabled says whether application names are served and routed.
	// +optional
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`

	// BaseDomain makes the apps domain "apps.<cluster>.<baseDomain>", or is the
	// apps domain itself where it starts with "apps.". The apps domain that the
	// HostedCluster has is served as well. Applied live.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?([.][a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?)*[.]?)?$')`,message="must be a domain name such as example.com"
	BaseDomain string `json:"baseDomain,omitempty"`

	// HostedClusterRef names the hosted cluster whose applications are meant.
	// Required when enabled, unless spec.hostedClusterRef is set. Applied live.
	// +optional
	HostedClusterRef *HostedClusterReference `json:"hostedClusterRef,omitempty"`

	// Source says where the address comes from. Applied live.
	// +optional
	// +kubebuilder:default=HostedService
	Source AppsIngressSource `json:"source,omitempty"`

	// Addresses are published as they are with source Static, and ignored
	// otherwise. Applied live.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	Addresses []IP `json:"addresses,omitempty"`

	// KubeconfigSecretRef names a kubeconfig for the hosted cluster, in the
	// Infra's namespace. Absent: the one that the HostedCluster publishes.
	// +optional
	KubeconfigSecretRef *SecretKeyReference `json:"kubeconfigSecretRef,omitempty"`

	// Dial says how the hosted cluster's API server is reached.
	// +optional
	// +kubebuilder:default=Service
	Dial AppsIngressDial `json:"dial,omitempty"`

	// AddressDeadline is how long the Service may be without an address before
	// the phase turns from Pending to Degraded.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than zero"
	AddressDeadline Duration `json:"addressDeadline,omitempty"`

	// MetalLB says how the address is assigned in the hosted cluster.
	// +optional
	MetalLB *AppsIngressMetalLB `json:"metallb,omitempty"`

	// Service describes the LoadBalancer Service in the hosted cluster.
	// +optional
	Service *AppsIngressService `json:"service,omitempty"`

	// Ports are the ports of that Service, and of the proxy's listeners.
	// +optional
	Ports *AppsIngressPorts `json:"ports,omitempty"`
}

// AppsIngressMetalLB says how MetalLB assigns the address of the applications.
type AppsIngressMetalLB struct {
	// AddressPoolName is the IPAddressPool to take the address from. Empty:
	// MetalLB chooses among the pools with autoAssign.
	// +optional
	AddressPoolName string `json:"addressPoolName,omitempty"`

	// IPAddressPoolRange are the addresses that are believed when the hosted
	// cluster reports them: a string with commas between networks in CIDR
	// notation and ranges "first-last", or an array of such strings. Absent: those
	// of the VLAN. Applied live.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	IPAddressPoolRange *AddressRanges `json:"ipAddressPoolRange,omitempty"`

	// L2AdvertisementName is the L2Advertisement that announces the pool.
	// +optional
	L2AdvertisementName string `json:"l2AdvertisementName,omitempty"`

	// LoadBalancerClass is the class of the Service. On KubeVirt it keeps the
	// cloud controller from writing the same status as MetalLB, which then runs
	// with the same class.
	// +optional
	// +kubebuilder:validation:MinLength=1
	LoadBalancerClass string `json:"loadBalancerClass,omitempty"`

	// Install has MetalLB installed in the hosted cluster. Default: false.
	// +optional
	Install *bool `json:"install,omitempty"`

	// AutoInstall is another name of install, which wins where both are set.
	// +optional
	AutoInstall *bool `json:"autoInstall,omitempty"`

	// OLM says where the MetalLB operator is installed from.
	// +optional
	OLM *MetalLBOLM `json:"olm,omitempty"`
}

// The subscription to the MetalLB operator where nothing else is said: that of
// an OpenShift cluster with Red Hat's catalog.
const (
	DefaultMetalLBSource          = "redhat-operators"
	DefaultMetalLBSourceNamespace = "openshift-marketplace"
	DefaultMetalLBChannel         = "stable"
)

// MetalLBOLM is the Operator Lifecycle Manager subscription that MetalLB is
// installed by.
type MetalLBOLM struct {
	// Source is the catalog source.
	// +optional
	// +kubebuilder:default=redhat-operators
	Source string `json:"source,omitempty"`

	// SourceNamespace is the namespace of the catalog source.
	// +optional
	// +kubebuilder:default=openshift-marketplace
	SourceNamespace string `json:"sourceNamespace,omitempty"`

	// Channel is the subscription's channel.
	// +optional
	// +kubebuilder:default=stable
	Channel string `json:"channel,omitempty"`

	// StartingCSV is the version to start with. Empty: the channel's newest.
	// +optional
	StartingCSV string `json:"startingCSV,omitempty"`
}

// DefaultAppsServiceNamespace is the namespace of the applications' Service
// where none is given. A Service selects pods of its own namespace only, and
// the default router's pods run in this one.
const DefaultAppsServiceNamespace = "openshift-ingress"

// AppsIngressService describes the applications' LoadBalancer Service.
type AppsIngressService struct {
	// Name of the Service. Empty: "<cluster>-apps".
	// +optional
	Name string `json:"name,omitempty"`

	// Namespace of the Service. A selector reaches no other namespace, and the
	// default router runs in openshift-ingress.
	// +optional
	// +kubebuilder:default=openshift-ingress
	Namespace string `json:"namespace,omitempty"`

	// Selector selects the pods behind the Service. Empty: those of the default
	// router.
	// +optional
	Selector map[string]string `json:"selector,omitempty"`

	// IPFamilyPolicy is the Service's. Absent: the hosted cluster's default.
	// +optional
	// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
	IPFamilyPolicy *corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`

	// ExternalTrafficPolicy is the Service's. Empty: the hosted cluster's default.
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

// The ports of the applications where none are given.
const (
	DefaultAppsHTTPPort  int32 = 80
	DefaultAppsHTTPSPort int32 = 443
)

// AppsIngressPorts are the ports that the applications are reached on, both on
// their Service and on the proxy's listeners.
type AppsIngressPorts struct {
	// HTTP is the port for plain HTTP.
	// +optional
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	HTTP int32 `json:"http,omitempty"`

	// HTTPS is the port for TLS, which is passed through.
	// +optional
	// +kubebuilder:default=443
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	HTTPS int32 `json:"https,omitempty"`
}
