package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InfraSpec describes the VLAN of a hosted cluster and the services on it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.appsIngress) || !has(self.appsIngress.enabled) || !self.appsIngress.enabled || has(self.hostedClusterRef) || (has(self.appsIngress.hostedClusterRef) && size(self.appsIngress.hostedClusterRef.name) > 0)",message="appsIngress needs a hosted cluster: set spec.hostedClusterRef or spec.appsIngress.hostedClusterRef",fieldPath=".appsIngress",reason=FieldValueRequired
type InfraSpec struct {
	// HostedClusterRef refers to the hosted cluster that this VLAN belongs to. If absent, the hosted cluster
	// is found by, in this order, appsIngress.hostedClusterRef, infraComponents.proxy.controlPlaneNamespace,
	// and the cluster domain in infraComponents.dns. Applied live.
	// +optional
	// +kubebuilder:validation:XValidation:rule="size(self.name) > 0",message="must name a HostedCluster",fieldPath=".name",reason=FieldValueRequired
	HostedClusterRef *HostedClusterReference `json:"hostedClusterRef,omitempty"`

	// NetworkConfig describes the VLAN.
	// +required
	NetworkConfig NetworkConfig `json:"networkConfig"`

	// InfraComponents configures the services on the VLAN. A component without a block is not deployed.
	// +optional
	InfraComponents InfraComponents `json:"infraComponents,omitzero"`

	// AppsIngress publishes the apps of the hosted cluster (*.apps) on the VLAN.
	// +optional
	AppsIngress *AppsIngress `json:"appsIngress,omitempty"`

	// Egress are the names outside of the cluster that VMs can connect to through the proxy. None by default.
	// +optional
	Egress *Egress `json:"egress,omitempty"`

	// NodePlacement selects the nodes of all pods of the Infra, among them the short-lived ones of checks and tests. All
	// of these nodes must have the VLAN. Absent: any node. Rolls every component.
	// +optional
	// +structType=atomic
	NodePlacement *NodePlacement `json:"nodePlacement,omitempty"`
}

// NetworkConfig describes a VLAN.
type NetworkConfig struct {
	// CIDR is the VLAN's subnet, such as 192.0.2.0/24. DNS serves clients with a source address in it as
	// clients on this VLAN. Applied live in DNS and proxy, rolls DHCP.
	// +required
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}|[0-9a-fA-F]{0,4}(:[0-9a-fA-F]{0,4}){2,7}/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))$')`,message="must be an IPv4 or IPv6 network in CIDR notation, such as 192.0.2.0/24"
	CIDR string `json:"cidr"`

	// AdditionalCIDRs are additional subnets of the VLAN, of either address family. DHCP does not serve them.
	// Applied live in DNS and proxy.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	AdditionalCIDRs []CIDR `json:"additionalCIDRs,omitempty"`

	// Gateway is the VLAN's router. DHCP sends it in option 3 and, if its options contain routes (option 121), as
	// the default route among them. If it is absent, VMs and oooi's pods get no default route on the VLAN. Rolls
	// every component.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9a-fA-F]{0,4}(:[0-9a-fA-F]{0,4}){2,7})$')`,message="must be an IPv4 or IPv6 address without a prefix length"
	Gateway string `json:"gateway,omitempty"`

	// NetworkAttachmentDefinition is the NetworkAttachmentDefinition of the VMs, as "name" or
	// "namespace/name". If it does not assign static addresses, setup derives one that does for oooi's pods. Rolls
	// every component.
	// +required
	// +kubebuilder:validation:MinLength=1
	NetworkAttachmentDefinition string `json:"networkAttachmentDefinition"`

	// NetworkAttachmentNamespace is the namespace of the NetworkAttachmentDefinition, unless its name
	// includes one. Defaults to the Infra's own. Rolls every component.
	// +optional
	NetworkAttachmentNamespace string `json:"networkAttachmentNamespace,omitempty"`

	// DNSServers are the upstream resolvers that oooi's DNS forwards to. DHCP clients do not get them while DNS is
	// enabled. Defaults to the resolvers of the DNS pod's node.
	// +optional
	DNSServers []string `json:"dnsServers,omitempty"`
}

// InfraComponents configures the services on the VLAN. A component is deployed if its block exists and
// enabled is not false.
type InfraComponents struct {
	// DHCP leases addresses to the VMs.
	// +optional
	DHCP *InfraDHCP `json:"dhcp,omitempty"`

	// DNS answers for the names of the hosted cluster.
	// +optional
	DNS *InfraDNS `json:"dns,omitempty"`

	// Proxy forwards TLS connections from the VLAN to the control plane.
	// +optional
	Proxy *InfraProxy `json:"proxy,omitempty"`

	// Control configures control, which all Infras of a management cluster share.
	// +optional
	Control *InfraControl `json:"control,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=infra,categories=oooi
// +kubebuilder:metadata:labels=app.kubernetes.io/managed-by=oooi
// +kubebuilder:metadata:annotations={"argocd.argoproj.io/sync-options=Prune=false,Delete=false","helm.sh/resource-policy=keep","kustomize.toolkit.fluxcd.io/prune=disabled"}
// +kubebuilder:printcolumn:name="HostedCluster",type=string,JSONPath=`.spec.hostedClusterRef.name`,description="Hosted cluster that the VLAN belongs to, if the spec names it"
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.networkConfig.cidr`,description="Subnet of the VLAN"
// +kubebuilder:printcolumn:name="DHCP",type=string,JSONPath=`.spec.infraComponents.dhcp.serverIP`,description="Address of the DHCP server on the VLAN"
// +kubebuilder:printcolumn:name="DNS",type=string,JSONPath=`.spec.infraComponents.dns.serverIP`,description="Address of the DNS server on the VLAN"
// +kubebuilder:printcolumn:name="Proxy",type=string,JSONPath=`.spec.infraComponents.proxy.serverIP`,description="Address that control-plane names resolve to on the VLAN"
// +kubebuilder:printcolumn:name="Apps",type=string,JSONPath=`.status.appsIngress.externalIP`,description="Address that *.apps resolves to on the VLAN"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether every enabled component was probed and works"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready or not"
// +kubebuilder:printcolumn:name="NAD",type=string,priority=1,JSONPath=`.spec.networkConfig.networkAttachmentDefinition`,description="NetworkAttachmentDefinition of the VMs"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Infra describes one VLAN of VMs that cannot reach their hosted control plane, and the DHCP, DNS and proxy
// that connect them.
type Infra struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state.
	// +optional
	Spec InfraSpec `json:"spec,omitzero"`

	// Status is the observed state.
	// +optional
	Status InfraStatus `json:"status,omitzero"`
}

// +kubebuilder:object:root=true

// InfraList is a list of Infra objects.
type InfraList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the Infras.
	Items []Infra `json:"items"`
}
