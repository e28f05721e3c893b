package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionReady is the condition that sums up an object: whether it does what
// its spec asks for, by probes and not by what a workload says of itself.
const ConditionReady = "Ready"

// Conditions of an Infra, beside Ready.
const (
	// ConditionHostedClusterBound says whether exactly one hosted cluster was
	// found for the Infra.
	ConditionHostedClusterBound = "HostedClusterBound"

	// ConditionNetworkValid says whether the addresses and ranges of the Infra
	// make sense, by themselves and beside those of other Infras on the VLAN.
	ConditionNetworkValid = "NetworkValid"

	// ConditionNamesServed says whether the control plane's names are answered.
	ConditionNamesServed = "NamesServed"

	// ConditionAppsIngressReady says whether the applications are reachable.
	ConditionAppsIngressReady = "AppsIngressReady"

	// ConditionAppsDomainMismatch is true when the apps domain of the spec is not
	// the hosted cluster's. Both are served.
	ConditionAppsDomainMismatch = "AppsDomainMismatch"
)

// InfraStatus is what was observed of an Infra.
type InfraStatus struct {
	// ObservedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready, HostedClusterBound, NetworkValid, NamesServed,
	// AppsIngressReady and AppsDomainMismatch.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ComponentStatus says which components work.
	// +optional
	ComponentStatus *ComponentStatus `json:"componentStatus,omitempty"`

	// AppsIngress is the state of the apps address.
	// +optional
	AppsIngress *AppsIngressStatus `json:"appsIngress,omitempty"`
}

// ComponentStatus says which components work. Each value comes from a probe of
// the component's own service, not from its workload.
type ComponentStatus struct {
	// DHCPReady says that every DHCP instance is ready to give out addresses.
	// +optional
	DHCPReady bool `json:"dhcpReady"`

	// DNSReady says that every DNS instance answered a query.
	// +optional
	DNSReady bool `json:"dnsReady"`

	// ProxyReady says that every proxy replica has the current configuration and
	// completed handshakes through its listeners.
	// +optional
	ProxyReady bool `json:"proxyReady"`
}

// AppsIngressPhase is the phase of the apps address.
//
// +kubebuilder:validation:Enum=Pending;Ready;Degraded
type AppsIngressPhase string

const (
	// AppsIngressPending means that there is no address yet.
	AppsIngressPending AppsIngressPhase = "Pending"

	// AppsIngressReady means that there is an address, and that it is current.
	AppsIngressReady AppsIngressPhase = "Ready"

	// AppsIngressDegraded means that something is wrong, which the reason names.
	// The last address that was good stays in use.
	AppsIngressDegraded AppsIngressPhase = "Degraded"
)

// AppsIngressReason says why the apps address is not Ready.
type AppsIngressReason string

// Every reason there is.
const (
	// AppsIngressKubeconfigMissing: there is no kubeconfig for the hosted cluster.
	AppsIngressKubeconfigMissing AppsIngressReason = "KubeconfigMissing"

	// AppsIngressKubeconfigRejected: the kubeconfig holds something that is not
	// accepted, such as a command to run.
	AppsIngressKubeconfigRejected AppsIngressReason = "KubeconfigRejected"

	// AppsIngressHostedClusterUnreachable: the hosted API server does not answer.
	AppsIngressHostedClusterUnreachable AppsIngressReason = "HostedClusterUnreachable"

	// AppsIngressHostedClusterForbidden: the hosted API server denies a request.
	AppsIngressHostedClusterForbidden AppsIngressReason = "HostedClusterForbidden"

	// AppsIngressMetalLBMissing: MetalLB is not installed.
	AppsIngressMetalLBMissing AppsIngressReason = "MetalLBMissing"

	// AppsIngressPoolMissing: the IPAddressPool does not exist.
	AppsIngressPoolMissing AppsIngressReason = "PoolMissing"

	// AppsIngressPoolExhausted: the IPAddressPool has no free address.
	AppsIngressPoolExhausted AppsIngressReason = "PoolExhausted"

	// AppsIngressAddressNotAssigned: the Service has no address past the deadline.
	AppsIngressAddressNotAssigned AppsIngressReason = "AddressNotAssigned"

	// AppsIngressAddressNotAllowed: the Service's address is outside
	// ipAddressPoolRange, or outside the VLAN where no range is given.
	AppsIngressAddressNotAllowed AppsIngressReason = "AddressNotAllowed"

	// AppsIngressAddressWithdrawn: the Service had an address and lost it.
	AppsIngressAddressWithdrawn AppsIngressReason = "AddressWithdrawn"

	// AppsIngressNotAnnounced: no node announces the address.
	AppsIngressNotAnnounced AppsIngressReason = "NotAnnounced"

	// AppsIngressServiceRejected: the hosted API server refuses the Service.
	AppsIngressServiceRejected AppsIngressReason = "ServiceRejected"

	// AppsIngressServiceForeign: a Service of that name is not ours.
	AppsIngressServiceForeign AppsIngressReason = "ServiceForeign"

	// AppsIngressControllerConflict: two controllers write the Service's status.
	AppsIngressControllerConflict AppsIngressReason = "ControllerConflict"

	// AppsIngressInstallFailed: MetalLB could not be installed.
	AppsIngressInstallFailed AppsIngressReason = "InstallFailed"
)

// AppsIngressStatus is the state of the apps address.
type AppsIngressStatus struct {
	// Phase is Pending, Ready or Degraded.
	// +optional
	Phase AppsIngressPhase `json:"phase,omitempty"`

	// ExternalIP is the first of externalIPs.
	// +optional
	ExternalIP string `json:"externalIP,omitempty"`

	// ExternalIPs are the addresses in use: the current ones, or the last good
	// ones while Degraded.
	// +optional
	// +listType=atomic
	ExternalIPs []string `json:"externalIPs,omitempty"`

	// ServiceName is the name of the Service that the addresses come from.
	// +optional
	ServiceName string `json:"serviceName,omitempty"`

	// ServiceNamespace is the namespace of that Service.
	// +optional
	ServiceNamespace string `json:"serviceNamespace,omitempty"`

	// LastSyncTime is when the Service was last read successfully.
	// +optional
	LastSyncTime *metav1.Time `json:"lastSyncTime,omitempty"`

	// Reason is one word for why the phase is not Ready: KubeconfigMissing,
	// KubeconfigRejected, HostedClusterUnreachable, HostedClusterForbidden,
	// MetalLBMissing, PoolMissing, PoolExhausted, AddressNotAssigned,
	// AddressNotAllowed, AddressWithdrawn, NotAnnounced, ServiceRejected,
	// ServiceForeign, ControllerConflict or InstallFailed.
	// +optional
	Reason AppsIngressReason `json:"reason,omitempty"`

	// Message is the reason in a sentence.
	// +optional
	Message string `json:"message,omitempty"`
}
