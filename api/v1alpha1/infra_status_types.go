package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionReady is the condition that summarizes whether an object works as specified. For an Infra and a ProxyServer,
// it is the result of probes, not of the status of a workload.
const ConditionReady = "Ready"

// Conditions of an Infra, in addition to Ready.
const (
	// ConditionHostedClusterBound reports whether exactly one hosted cluster was found for the Infra, and the Infra
	// may serve it.
	ConditionHostedClusterBound = "HostedClusterBound"

	// ConditionNetworkValid reports whether the addresses and ranges of the Infra are valid and do not conflict with
	// other Infras on the VLAN.
	ConditionNetworkValid = "NetworkValid"

	// ConditionNamesServed reports whether the control-plane names are known, valid and resolve to the proxy, and
	// whether every DNS replica responds if DNS is enabled.
	ConditionNamesServed = "NamesServed"

	// ConditionRecordsServed reports whether all records of the Infra are served, and all VM and backend names that are not
	// control-plane names.
	ConditionRecordsServed = "RecordsServed"

	// ConditionAppsIngressReady reports whether status.appsIngress.phase is Ready. It is false if appsIngress is not
	// enabled.
	ConditionAppsIngressReady = "AppsIngressReady"

	// ConditionAppsDomainMismatch is true if the apps domain in the spec differs from the hosted cluster's.
	// Both are served.
	ConditionAppsDomainMismatch = "AppsDomainMismatch"

	// ConditionDHCPReady, ConditionDNSReady and ConditionProxyReady report whether a component works. They are true with
	// reason Disabled if the component is not enabled.
	ConditionDHCPReady  = "DHCPReady"
	ConditionDNSReady   = "DNSReady"
	ConditionProxyReady = "ProxyReady"

	// ConditionVLANReady reports whether the pods' interfaces on the VLAN work, and no other host uses their addresses.
	ConditionVLANReady = "VLANReady"

	// ConditionUpstreamReady reports whether the upstream resolvers of DNS answer.
	ConditionUpstreamReady = "UpstreamReady"

	// ConditionBackendsReady reports whether the endpoints of the proxy's backends accept connections.
	ConditionBackendsReady = "BackendsReady"
)

// InfraStatus is the observed state of an Infra.
type InfraStatus struct {
	// ObservedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready, HostedClusterBound, NetworkValid, NamesServed, RecordsServed, AppsIngressReady,
	// AppsDomainMismatch, DHCPReady, DNSReady, ProxyReady, VLANReady, UpstreamReady and BackendsReady.
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
// from the status of its workload, and is false if the component is not enabled.
type ComponentStatus struct {
	// DHCPReady is true if every DHCP replica is ready to lease addresses.
	// +optional
	DHCPReady bool `json:"dhcpReady"`

	// DNSReady is true if every DNS replica answered a query for a control-plane name as expected.
	// +optional
	DNSReady bool `json:"dnsReady"`

	// ProxyReady is true if the Infra's ProxyServer is Ready: every replica has the current configuration, and the
	// probes through all of its listeners succeed.
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

	// AppsIngressDegraded means that there is a fault, given by the reason, which includes that there is no address
	// after addressDeadline. The last valid addresses, if any, stay in use.
	AppsIngressDegraded AppsIngressPhase = "Degraded"
)

// AppsIngressReason is the reason why the phase of the apps address is Pending or Degraded.
type AppsIngressReason string

// All values of AppsIngressReason.
const (
	// AppsIngressKubeconfigMissing: the Infra lacks a hosted cluster, or the cluster's kubeconfig does not exist.
	AppsIngressKubeconfigMissing AppsIngressReason = "KubeconfigMissing"

	// AppsIngressKubeconfigRejected: the kubeconfig contains a setting that is not allowed, such as a
	// command, its credentials are rejected, or its CA did not sign the API server's certificate.
	AppsIngressKubeconfigRejected AppsIngressReason = "KubeconfigRejected"

	// AppsIngressHostedClusterUnreachable: the hosted API server does not respond, or returns a server error.
	AppsIngressHostedClusterUnreachable AppsIngressReason = "HostedClusterUnreachable"

	// AppsIngressHostedClusterForbidden: the hosted API server forbids a request.
	AppsIngressHostedClusterForbidden AppsIngressReason = "HostedClusterForbidden"

	// AppsIngressMetalLBMissing: MetalLB is not installed.
	AppsIngressMetalLBMissing AppsIngressReason = "MetalLBMissing"

	// AppsIngressPoolMissing: the IPAddressPool does not exist.
	AppsIngressPoolMissing AppsIngressReason = "PoolMissing"

	// AppsIngressPoolExhausted: all addresses of the IPAddressPool are in use.
	AppsIngressPoolExhausted AppsIngressReason = "PoolExhausted"

	// AppsIngressAddressNotAssigned: the Service does not exist or is waiting for an address, or the hosted cluster's
	// apps domain is unknown.
	AppsIngressAddressNotAssigned AppsIngressReason = "AddressNotAssigned"

	// AppsIngressAddressNotAllowed: an address of the Service is not accepted, for example because it is outside of
	// ipAddressPoolRange, or of the VLAN if no range is set.
	AppsIngressAddressNotAllowed AppsIngressReason = "AddressNotAllowed"

	// AppsIngressAddressWithdrawn: the Service had an address and lost it.
	AppsIngressAddressWithdrawn AppsIngressReason = "AddressWithdrawn"

	// AppsIngressAdvertisementMissing: the L2Advertisement that the Infra names does not exist, or does not select the
	// pool, and no node is known to announce the address.
	AppsIngressAdvertisementMissing AppsIngressReason = "AdvertisementMissing"

	// AppsIngressNotAnnounced: no node announces the address, or the Service selects no pod.
	AppsIngressNotAnnounced AppsIngressReason = "NotAnnounced"

	// AppsIngressServiceRejected: the hosted API server rejects the Service, for example because its namespace does
	// not exist.
	AppsIngressServiceRejected AppsIngressReason = "ServiceRejected"

	// AppsIngressServiceForeign: the Service, or the ServiceAccount that reads it, exists and has another owner.
	AppsIngressServiceForeign AppsIngressReason = "ServiceForeign"

	// AppsIngressControllerConflict: two controllers would write the Service's status, because its load balancer
	// class is not set.
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

	// ServiceName is the name of the Service that the addresses come from. Absent unless the source is
	// HostedService.
	// +optional
	ServiceName string `json:"serviceName,omitempty"`

	// ServiceNamespace is the namespace of that Service.
	// +optional
	ServiceNamespace string `json:"serviceNamespace,omitempty"`

	// LastSyncTime is when the source of the addresses was last read successfully. It is updated with the other
	// fields, at the latest after 5 minutes.
	// +optional
	LastSyncTime *metav1.Time `json:"lastSyncTime,omitempty"`

	// Reason is why the phase is not Ready; absent if it is: KubeconfigMissing, KubeconfigRejected,
	// HostedClusterUnreachable, HostedClusterForbidden, MetalLBMissing, PoolMissing, PoolExhausted,
	// AddressNotAssigned, AddressNotAllowed, AddressWithdrawn, AdvertisementMissing, NotAnnounced, ServiceRejected,
	// ServiceForeign, ControllerConflict or InstallFailed.
	// +optional
	Reason AppsIngressReason `json:"reason,omitempty"`

	// Message explains the reason. If the phase is Ready, it is a warning, or absent.
	// +optional
	Message string `json:"message,omitempty"`
}
