package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionReady is the condition that summarizes an object: whether it works as specified, as determined by
// probes and not by the status of a workload.
const ConditionReady = "Ready"

// Conditions of an Infra, in addition to Ready.
const (
	// ConditionHostedClusterBound reports whether exactly one hosted cluster was found for the Infra.
	ConditionHostedClusterBound = "HostedClusterBound"

	// ConditionNetworkValid reports whether the addresses and ranges of the Infra are valid and do not
	// conflict with those of other Infras on the VLAN.
	ConditionNetworkValid = "NetworkValid"

	// ConditionNamesServed reports whether the control-plane names are served.
	ConditionNamesServed = "NamesServed"

	// ConditionAppsIngressReady reports whether the apps address is ready.
	ConditionAppsIngressReady = "AppsIngressReady"

	// ConditionAppsDomainMismatch is true if the apps domain in the spec differs from the hosted cluster's.
	// Both are served.
	ConditionAppsDomainMismatch = "AppsDomainMismatch"
)

// InfraStatus is the observed state of an Infra.
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

	// ComponentStatus reports which components are ready.
	// +optional
	ComponentStatus *ComponentStatus `json:"componentStatus,omitempty"`

	// AppsIngress is the state of the apps address.
	// +optional
	AppsIngress *AppsIngressStatus `json:"appsIngress,omitempty"`
}

// ComponentStatus reports which components are ready. Each value comes from a probe of the component, not
// from the status of its workload.
type ComponentStatus struct {
	// DHCPReady is true if every DHCP replica is ready to lease addresses.
	// +optional
	DHCPReady bool `json:"dhcpReady"`

	// DNSReady is true if every DNS replica answered a query.
	// +optional
	DNSReady bool `json:"dnsReady"`

	// ProxyReady is true if every proxy replica has the current configuration and completes handshakes
	// through its listeners.
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

	// AppsIngressReady means that there is an address and it is current.
	AppsIngressReady AppsIngressPhase = "Ready"

	// AppsIngressDegraded means that there is a fault, given by the reason. The last valid address stays in
	// use.
	AppsIngressDegraded AppsIngressPhase = "Degraded"
)

// AppsIngressReason is the reason why the apps address is not Ready.
type AppsIngressReason string

// All reasons.
const (
	// AppsIngressKubeconfigMissing: there is no kubeconfig for the hosted cluster.
	AppsIngressKubeconfigMissing AppsIngressReason = "KubeconfigMissing"

	// AppsIngressKubeconfigRejected: the kubeconfig contains a setting that is not allowed, such as a
	// command, or its credentials are rejected.
	AppsIngressKubeconfigRejected AppsIngressReason = "KubeconfigRejected"

	// AppsIngressHostedClusterUnreachable: the hosted API server does not answer.
	AppsIngressHostedClusterUnreachable AppsIngressReason = "HostedClusterUnreachable"

	// AppsIngressHostedClusterForbidden: the hosted API server forbids a request.
	AppsIngressHostedClusterForbidden AppsIngressReason = "HostedClusterForbidden"

	// AppsIngressMetalLBMissing: MetalLB is not installed.
	AppsIngressMetalLBMissing AppsIngressReason = "MetalLBMissing"

	// AppsIngressPoolMissing: the IPAddressPool does not exist.
	AppsIngressPoolMissing AppsIngressReason = "PoolMissing"

	// AppsIngressPoolExhausted: the IPAddressPool has no free address.
	AppsIngressPoolExhausted AppsIngressReason = "PoolExhausted"

	// AppsIngressAddressNotAssigned: the Service has no address after the deadline.
	AppsIngressAddressNotAssigned AppsIngressReason = "AddressNotAssigned"

	// AppsIngressAddressNotAllowed: the Service's address is outside of ipAddressPoolRange, or of the VLAN if
	// no range is set.
	AppsIngressAddressNotAllowed AppsIngressReason = "AddressNotAllowed"

	// AppsIngressAddressWithdrawn: the Service had an address and lost it.
	AppsIngressAddressWithdrawn AppsIngressReason = "AddressWithdrawn"

	// AppsIngressNotAnnounced: no node announces the address.
	AppsIngressNotAnnounced AppsIngressReason = "NotAnnounced"

	// AppsIngressServiceRejected: the hosted API server rejects the Service.
	AppsIngressServiceRejected AppsIngressReason = "ServiceRejected"

	// AppsIngressServiceForeign: a Service of that name exists and belongs to another owner.
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

	// ExternalIPs are the addresses in use: the current ones, or the last valid ones while Degraded.
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

	// Reason is why the phase is not Ready, in one word: KubeconfigMissing, KubeconfigRejected,
	// HostedClusterUnreachable, HostedClusterForbidden, MetalLBMissing, PoolMissing, PoolExhausted,
	// AddressNotAssigned, AddressNotAllowed, AddressWithdrawn, NotAnnounced, ServiceRejected, ServiceForeign,
	// ControllerConflict or InstallFailed.
	// +optional
	Reason AppsIngressReason `json:"reason,omitempty"`

	// Message explains the reason.
	// +optional
	Message string `json:"message,omitempty"`
}
