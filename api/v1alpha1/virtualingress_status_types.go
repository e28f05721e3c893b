package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of a VirtualIngress's condition Ready. One of a backend is also that of the
// object, the first backend's that has one.
const (
	// ReasonResolved is the reason of Ready when it is true: each backend has its Service,
	// and the Ingress names it.
	ReasonResolved = "Resolved"
	// ReasonNoMatchingService: no Service has a backend's labels.
	ReasonNoMatchingService = "NoMatchingService"
	// ReasonMultipleMatches: several Services have them, and none is to be preferred.
	ReasonMultipleMatches = "MultipleMatches"
	// ReasonPortNotFound: the Service has no such port.
	ReasonPortNotFound = "PortNotFound"
	// ReasonConsentMissing: the namespace of a Service does not let this one have it.
	ReasonConsentMissing = "ConsentMissing"
	// ReasonUnsupported: the controller runs without what this takes, or nobody could do it.
	ReasonUnsupported = "Unsupported"
	// ReasonHostClaimed: a host is that of a VirtualIngress of another namespace.
	ReasonHostClaimed = "HostClaimed"
	// ReasonConflict: an object of the name that ours would have is somebody else's.
	ReasonConflict = "Conflict"
	// ReasonRejected: the API server refuses the Ingress.
	ReasonRejected = "Rejected"
	// ReasonContested: somebody keeps changing what is made of the VirtualIngress, and is
	// given time.
	ReasonContested = "Contested"
)

// Annotations of what a VirtualIngress is made into, and of what may be.
const (
	// AnnotationVirtualIngress is on a generated Ingress: the VirtualIngress that it is made
	// of, "namespace/name".
	AnnotationVirtualIngress = GroupName + "/virtualingress"

	// AnnotationResolution is on a generated Ingress: the reason of the condition Ready of its
	// VirtualIngress. Any but Resolved says that what it names is the last that was good.
	AnnotationResolution = GroupName + "/resolution"

	// AnnotationSpecHash is on whatever is generated: it tells the controller whether it is
	// what it would write now.
	AnnotationSpecHash = GroupName + "/spec-hash"

	// AnnotationAllowAliases is on a Namespace: the namespaces whose VirtualIngresses may have
	// aliases of its Services, separated by commas, or "*".
	AnnotationAllowAliases = GroupName + "/allow-aliases-from"

	// AnnotationAliasOf is on an alias: the Service that it stands for, "namespace/name".
	AnnotationAliasOf = GroupName + "/alias-of"
)

// VirtualIngressStatus is what was observed of a VirtualIngress.
type VirtualIngressStatus struct {
	// ObservedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// IngressName is the Ingress that is generated; absent while there is none.
	// +optional
	IngressName string `json:"ingressName,omitempty"`

	// Backends are the Services that are found by their labels or stand behind an alias,
	// each once, in the order of the spec.
	// +optional
	// +listType=atomic
	Backends []VirtualIngressBackendStatus `json:"backends,omitempty"`

	// LoadBalancer is where the Ingress is reached, as its own status says.
	// +optional
	LoadBalancer VirtualIngressLoadBalancer `json:"loadBalancer,omitzero"`
}

// VirtualIngressBackendStatus is what became of one way to name a Service.
type VirtualIngressBackendStatus struct {
	// Selector are the labels, as "key=value,...", or the name of the Service.
	// +required
	Selector string `json:"selector"`

	// Namespace of the Service where it is another one.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Service that is in use: the one that was found, or with a reason the last one that was.
	// +optional
	Service string `json:"service,omitempty"`

	// Alias is the Service of a fixed name with its endpoints.
	// +optional
	Alias string `json:"alias,omitempty"`

	// Reason says in a word what is wrong; absent for nothing.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message says what is wrong.
	// +optional
	Message string `json:"message,omitempty"`
}

// VirtualIngressLoadBalancer is where an Ingress is reached.
type VirtualIngressLoadBalancer struct {
	// Ingress are its addresses.
	// +optional
	// +listType=atomic
	Ingress []VirtualIngressAddress `json:"ingress,omitempty"`
}

// VirtualIngressAddress is an address of an Ingress.
type VirtualIngressAddress struct {
	// IP address.
	// +optional
	IP string `json:"ip,omitempty"`

	// Hostname in place of an IP address.
	// +optional
	Hostname string `json:"hostname,omitempty"`

	// Ports of the address.
	// +optional
	// +listType=atomic
	Ports []VirtualIngressAddressPort `json:"ports,omitempty"`
}

// VirtualIngressAddressPort is a port of an address.
type VirtualIngressAddressPort struct {
	// Port number.
	// +required
	Port int32 `json:"port"`

	// Protocol of the port.
	// +required
	Protocol string `json:"protocol"`

	// Error says what is wrong with the port.
	// +optional
	Error *string `json:"error,omitempty"`
}
