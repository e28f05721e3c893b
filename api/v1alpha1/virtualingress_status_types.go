package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of a VirtualIngress's condition Ready. Conflict, Contested and Rejected take precedence, then HostClaimed,
// then the reason of the first backend that has one.
const (
	// ReasonResolved is the reason of Ready if it is true: each backend has its Service, the generated objects name it,
	// and the Gateways have accepted them.
	ReasonResolved = "Resolved"
	// ReasonNoMatchingService: no Service has a backend's labels, or its name in another namespace.
	ReasonNoMatchingService = "NoMatchingService"
	// ReasonMultipleMatches: several Services have a backend's labels, and onMultiple is Fail.
	ReasonMultipleMatches = "MultipleMatches"
	// ReasonPortNotFound: the Service of a backend does not have the backend's port.
	ReasonPortNotFound = "PortNotFound"
	// ReasonConsentMissing: the Service's namespace does not consent to aliases in the VirtualIngress's
	// namespace.
	ReasonConsentMissing = "ConsentMissing"
	// ReasonNoReadyEndpoints: requireEndpoints is set, and the Service lacks a ready endpoint.
	ReasonNoReadyEndpoints = "NoReadyEndpoints"
	// ReasonPending: the controller of a Gateway has not reported on a route, or does not exist.
	ReasonPending = "Pending"
	// ReasonNotAccepted: a Gateway does not accept a route.
	ReasonNotAccepted = "NotAccepted"
	// ReasonRefsNotResolved: a Gateway cannot resolve a reference of a route.
	ReasonRefsNotResolved = "RefsNotResolved"
	// ReasonUnsupported: a backend uses a feature that is not supported, or that a flag of the controller disables, or the
	// cluster does not serve the output's kind.
	ReasonUnsupported = "Unsupported"
	// ReasonHostClaimed: an older VirtualIngress in another namespace has the same host.
	ReasonHostClaimed = "HostClaimed"
	// ReasonConflict: an object with the name of a generated one has another owner.
	ReasonConflict = "Conflict"
	// ReasonRejected: the API server rejects a generated object.
	ReasonRejected = "Rejected"
	// ReasonContested: another client keeps changing a generated object, and the controller retries with a
	// growing delay.
	ReasonContested = "Contested"
)

// Annotations of generated objects and of Namespaces.
const (
	// AnnotationVirtualIngress is set on a generated object: its VirtualIngress, "namespace/name".
	AnnotationVirtualIngress = GroupName + "/virtualingress"

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

	// Conditions contains the condition Ready and, for routes, the conditions Accepted and ResolvedRefs that the Gateways
	// report: False if one is False, Unknown until all have reported.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// IngressName is the name of the generated Ingress; absent if it does not exist.
	// +optional
	IngressName string `json:"ingressName,omitempty"`

	// Routes are the generated routes that exist.
	// +optional
	// +listType=atomic
	Routes []VirtualIngressRoute `json:"routes,omitempty"`

	// Hosts are the hosts of the generated objects that exist. Like the hosts in the spec they belong to this VirtualIngress,
	// so that no other namespace gets the host of a kept object.
	// +optional
	// +listType=set
	Hosts []string `json:"hosts,omitempty"`

	// Backends are the results for the backends that select a Service by labels or name one in another namespace: one
	// for each selector or name, in the order of the spec.
	// +optional
	// +listType=atomic
	Backends []VirtualIngressBackendStatus `json:"backends,omitempty"`

	// LoadBalancer is a copy of the Ingress's status.loadBalancer.
	// +optional
	LoadBalancer VirtualIngressLoadBalancer `json:"loadBalancer,omitzero"`
}

// VirtualIngressRoute is a generated route of gateway.networking.k8s.io/v1.
type VirtualIngressRoute struct {
	// Kind is HTTPRoute or TLSRoute.
	// +required
	Kind VirtualIngressOutput `json:"kind"`

	// Name of the route.
	// +required
	Name string `json:"name"`
}

// VirtualIngressBackendStatus is the Service to which one selector or name resolves, or the fault.
type VirtualIngressBackendStatus struct {
	// Selector is the selector as "key=value,...", sorted by key, or the name of the Service.
	// +required
	Selector string `json:"selector"`

	// Namespace of the Service, if it differs from the VirtualIngress's.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Service is the name of the Service in use: the one that matches or, if there is a reason, the last one that
	// matched. Absent if none must be used.
	// +optional
	Service string `json:"service,omitempty"`

	// Alias is the name of the alias, a Service with a fixed name and the endpoints of the Service in use. Absent
	// without backendMode Alias.
	// +optional
	Alias string `json:"alias,omitempty"`

	// Reason is why the selector or name does not resolve to exactly one usable Service: NoMatchingService,
	// MultipleMatches, PortNotFound, NoReadyEndpoints, ConsentMissing or Unsupported. Absent if it does.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message explains the reason, for a human reader. Absent without a reason.
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
	// IP address of the load balancer.
	// +optional
	IP string `json:"ip,omitempty"`

	// Hostname of the load balancer, if it lacks an IP address.
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
