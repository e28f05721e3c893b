package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of a VirtualIngress's condition Ready. If backends have reasons, the condition has that of the
// first such backend.
const (
	// ReasonResolved is the reason of Ready if it is true: each backend has its Service, and the Ingress
	// names it.
	ReasonResolved = "Resolved"
	// ReasonNoMatchingService: no Service matches a backend's labels.
	ReasonNoMatchingService = "NoMatchingService"
	// ReasonMultipleMatches: several Services match, and onMultiple is Fail.
	ReasonMultipleMatches = "MultipleMatches"
	// ReasonPortNotFound: the Service has no such port.
	ReasonPortNotFound = "PortNotFound"
	// ReasonConsentMissing: the Service's namespace does not consent to aliases in the VirtualIngress's
	// namespace.
	ReasonConsentMissing = "ConsentMissing"
	// ReasonUnsupported: the feature is disabled by a flag of the controller, or is not supported.
	ReasonUnsupported = "Unsupported"
	// ReasonHostClaimed: a VirtualIngress of another namespace has the host.
	ReasonHostClaimed = "HostClaimed"
	// ReasonConflict: an object with the name of a generated one has another owner.
	ReasonConflict = "Conflict"
	// ReasonRejected: the API server rejects the Ingress.
	ReasonRejected = "Rejected"
	// ReasonContested: another client keeps changing a generated object, and the controller retries with a
	// growing delay.
	ReasonContested = "Contested"
)

// Annotations of generated objects and of Namespaces.
const (
	// AnnotationVirtualIngress is set on a generated Ingress: its VirtualIngress, "namespace/name".
	AnnotationVirtualIngress = GroupName + "/virtualingress"

	// AnnotationResolution is set on a generated Ingress: the reason of the condition Ready of its
	// VirtualIngress. With any other reason than Resolved, the Ingress names the last valid Services.
	AnnotationResolution = GroupName + "/resolution"

	// AnnotationSpecHash is set on every generated object: a hash of what the controller wrote, by which it
	// detects changes.
	AnnotationSpecHash = GroupName + "/spec-hash"

	// AnnotationAllowAliases is set on a Namespace: the namespaces whose VirtualIngresses may have aliases of
	// its Services, separated by commas, or "*".
	AnnotationAllowAliases = GroupName + "/allow-aliases-from"

	// AnnotationAliasOf is set on an alias: the Service that it is an alias of, "namespace/name".
	AnnotationAliasOf = GroupName + "/alias-of"
)

// VirtualIngressStatus is the observed state of a VirtualIngress.
type VirtualIngressStatus struct {
	// ObservedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions has the condition Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// IngressName is the name of the generated Ingress; absent if it does not exist.
	// +optional
	IngressName string `json:"ingressName,omitempty"`

	// Backends are the Services that are selected by labels or have an alias, each once, in the order of the
	// spec.
	// +optional
	// +listType=atomic
	Backends []VirtualIngressBackendStatus `json:"backends,omitempty"`

	// LoadBalancer is a copy of the Ingress's status.loadBalancer.
	// +optional
	LoadBalancer VirtualIngressLoadBalancer `json:"loadBalancer,omitzero"`
}

// VirtualIngressBackendStatus is the result of resolving one selector or name of a Service.
type VirtualIngressBackendStatus struct {
	// Selector is the selector as "key=value,...", or the name of the Service.
	// +required
	Selector string `json:"selector"`

	// Namespace of the Service, if it differs from the VirtualIngress's.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Service in use: the one that matches, or, with a reason, the last one that did.
	// +optional
	Service string `json:"service,omitempty"`

	// Alias is the name of the alias, a Service with a fixed name and the endpoints of the Service in use.
	// +optional
	Alias string `json:"alias,omitempty"`

	// Reason is the fault in one word; absent if there is none.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message explains the reason.
	// +optional
	Message string `json:"message,omitempty"`
}

// VirtualIngressLoadBalancer is the load balancer status of an Ingress.
type VirtualIngressLoadBalancer struct {
	// Ingress are the addresses of the load balancer.
	// +optional
	// +listType=atomic
	Ingress []VirtualIngressAddress `json:"ingress,omitempty"`
}

// VirtualIngressAddress is an address of the load balancer.
type VirtualIngressAddress struct {
	// IP address.
	// +optional
	IP string `json:"ip,omitempty"`

	// Hostname, if the load balancer has no IP address.
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

	// Error is why the port does not work, as reported by the ingress controller.
	// +optional
	Error *string `json:"error,omitempty"`
}
