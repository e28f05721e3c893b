package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// DefaultIngressSuffix is the default suffix of the names of generated objects.
const DefaultIngressSuffix = "-generated"

// VirtualIngressOutput is the kind of the objects generated from a VirtualIngress.
//
// +kubebuilder:validation:Enum=Ingress;HTTPRoute;TLSRoute
type VirtualIngressOutput string

const (
	// OutputIngress generates one Ingress of networking.k8s.io/v1.
	OutputIngress VirtualIngressOutput = "Ingress"

	// OutputHTTPRoute generates HTTPRoutes of gateway.networking.k8s.io/v1: one for each host and 16 paths.
	OutputHTTPRoute VirtualIngressOutput = "HTTPRoute"

	// OutputTLSRoute generates TLSRoutes of gateway.networking.k8s.io/v1, which pass TLS through to the backends: one for
	// each host.
	OutputTLSRoute VirtualIngressOutput = "TLSRoute"
)

// OnNoMatch is the policy for the generated objects if no Service matches a backend's labels.
//
// +kubebuilder:validation:Enum=Keep;Delete
type OnNoMatch string

const (
	// OnNoMatchKeep keeps the generated objects with the last Service that matched.
	OnNoMatchKeep OnNoMatch = "Keep"

	// OnNoMatchDelete deletes the generated objects until a Service matches.
	OnNoMatchDelete OnNoMatch = "Delete"
)

// BackendMode is the kind of Service that the generated objects name as their backend.
//
// +kubebuilder:validation:Enum=Direct;Alias
type BackendMode string

const (
	// BackendModeDirect names the selected Service.
	BackendModeDirect BackendMode = "Direct"

	// BackendModeAlias names an alias: a Service with a fixed name and the endpoints of the selected Service.
	BackendModeAlias BackendMode = "Alias"
)

// VirtualIngressSpec is the spec of a networking.k8s.io/v1 Ingress that may select its Services by labels, and may be
// written as routes of Gateway API instead. Its policies determine what happens if no Service matches, or several do.
//
// +kubebuilder:validation:XValidation:rule="has(self.defaultBackend) || (has(self.rules) && size(self.rules) > 0)",message="needs rules or a defaultBackend",fieldPath=".rules",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="(has(self.backendMode) && self.backendMode == 'Alias') || !(has(self.defaultBackend) && has(self.defaultBackend.service) && has(self.defaultBackend.service.__namespace__))",message="a Service in another namespace needs backendMode Alias",fieldPath=".backendMode",reason=FieldValueInvalid
// +kubebuilder:validation:XValidation:rule="(has(self.backendMode) && self.backendMode == 'Alias') || !has(self.rules) || !self.rules.exists(r, has(r.http) && r.http.paths.exists(p, (has(p.backend) && has(p.backend.service) && has(p.backend.service.__namespace__)) || (has(p.backends) && p.backends.exists(b, has(b.service.__namespace__)))) || has(r.tls) && r.tls.backends.exists(b, has(b.service.__namespace__)))",message="a Service in another namespace needs backendMode Alias",fieldPath=".backendMode",reason=FieldValueInvalid
// +kubebuilder:validation:XValidation:rule="(has(self.output) && self.output != 'Ingress') == has(self.parentRefs)",message="output HTTPRoute and TLSRoute need parentRefs, the Gateways of the routes; output Ingress must not have them",fieldPath=".parentRefs",reason=FieldValueInvalid
// +kubebuilder:validation:XValidation:rule="!(has(self.output) && self.output != 'Ingress') || !(has(self.ingressClassName) || has(self.tls) || has(self.defaultBackend))",message="output HTTPRoute and TLSRoute do not support ingressClassName, tls or defaultBackend: the Gateway has the class and the certificates, and a rule without host replaces defaultBackend",fieldPath=".output",reason=FieldValueInvalid
// +kubebuilder:validation:XValidation:rule="(has(self.output) && self.output != 'Ingress') || !has(self.rules) || !self.rules.exists(r, has(r.tls) || has(r.http) && r.http.paths.exists(p, has(p.backends) || has(p.headers) || has(p.queryParams) || has(p.method) || has(p.filters) || has(p.timeouts)))",message="an Ingress has one backend for each path, and no tls, backends, headers, queryParams, method, filters or timeouts in rules: set output HTTPRoute or TLSRoute",fieldPath=".rules",reason=FieldValueInvalid
// +kubebuilder:validation:XValidation:rule="!(has(self.output) && self.output == 'HTTPRoute') || !has(self.rules) || self.rules.all(r, !has(r.tls) && has(r.http) && r.http.paths.all(p, p.pathType != 'ImplementationSpecific' && (!has(p.backend) || !has(p.backend.service) || has(p.backend.service.port.number)) && (!has(p.backends) || p.backends.all(b, has(b.service.port.number)))))",message="output HTTPRoute needs rules with http, pathType Exact or Prefix, and ports by number",fieldPath=".rules",reason=FieldValueInvalid
// +kubebuilder:validation:XValidation:rule="!(has(self.output) && self.output == 'TLSRoute') || !has(self.rules) || self.rules.all(r, has(r.host) && has(r.tls) && !has(r.http) && r.tls.backends.all(b, has(b.service.port.number)))",message="output TLSRoute needs rules with host and tls, without http, and ports by number",fieldPath=".rules",reason=FieldValueInvalid
type VirtualIngressSpec struct {
	// Output is the kind of the generated objects. Defaults to Ingress. While an object of the previous kind exists, it is kept
	// until all Gateways have accepted the routes.
	// +optional
	Output VirtualIngressOutput `json:"output,omitempty"`

	// ParentRefs are the Gateways, or their listeners, that the generated routes attach to.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	ParentRefs []gatewayv1.ParentReference `json:"parentRefs,omitempty"`

	// IngressClassName is the IngressClass of the controller that serves the Ingress. Defaults to the cluster's
	// default class, if it has one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	IngressClassName *string `json:"ingressClassName,omitempty"`

	// DefaultBackend handles the requests that match no rule.
	// +optional
	DefaultBackend *VirtualIngressBackend `json:"defaultBackend,omitempty"`

	// TLS are the certificates and the hosts that use them.
	// +optional
	// +listType=atomic
	TLS []VirtualIngressTLS `json:"tls,omitempty"`

	// Rules map hosts and paths to backends.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Rules []VirtualIngressRule `json:"rules,omitempty"`

	// OnMultiple is the policy if several Services match a backend's labels. Defaults to the controller's
	// --on-multiple, which is Fail by default.
	// +optional
	OnMultiple OnMultiple `json:"onMultiple,omitempty"`

	// OnNoMatch is the policy for the generated objects if no Service matches a backend's labels. Defaults to the
	// controller's --on-no-match, which is Keep by default.
	// +optional
	OnNoMatch OnNoMatch `json:"onNoMatch,omitempty"`

	// BackendMode selects whether the generated objects name the selected Services or aliases of them. Defaults to Direct.
	// +optional
	BackendMode BackendMode `json:"backendMode,omitempty"`

	// RequireEndpoints selects a Service only while one of the Services of its path has a ready endpoint. Until then
	// the previously selected Service is kept; if there is none, nothing is generated.
	// +optional
	RequireEndpoints bool `json:"requireEndpoints,omitempty"`

	// Suffix is appended to this object's name to form the names of the generated objects. It may be empty. Defaults to the
	// controller's --suffix, which is "-generated" by default. The name of a route also has a hash of its host.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([-.a-z0-9]*[a-z0-9])?$`
	Suffix *string `json:"suffix,omitempty"`
}

// VirtualIngressTLS is a certificate and the hosts that use it.
type VirtualIngressTLS struct {
	// Hosts are the hosts that use the certificate.
	// +optional
	// +listType=atomic
	Hosts []string `json:"hosts,omitempty"`

	// SecretName is the Secret with the certificate, in the same namespace.
	// +optional
	SecretName string `json:"secretName,omitempty"`
}

// VirtualIngressRule maps the paths of one host to backends.
type VirtualIngressRule struct {
	// Host is the host of the requests. Its first label may be a wildcard. Defaults to all hosts.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^((\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	Host string `json:"host,omitempty"`

	// HTTP has the paths of the host.
	// +optional
	HTTP *VirtualIngressHTTP `json:"http,omitempty"`

	// TLS has the backends to which TLS connections for the host are passed through. It requires output TLSRoute.
	// +optional
	TLS *VirtualIngressPassthrough `json:"tls,omitempty"`
}

// VirtualIngressPassthrough has the backends of TLS connections that are passed through.
type VirtualIngressPassthrough struct {
	// Backends share the connections by weight.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Backends []VirtualIngressWeightedBackend `json:"backends"`
}

// VirtualIngressWeightedBackend is a Service that handles a share of requests or connections.
type VirtualIngressWeightedBackend struct {
	// Service handles the requests.
	// +required
	Service VirtualIngressService `json:"service"`

	// Weight is the share, in proportion to the sum of all weights. With 0 the Service gets none.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Weight *int32 `json:"weight,omitempty"`
}

// VirtualIngressHTTP has the paths of a host.
type VirtualIngressHTTP struct {
	// Paths map paths to backends.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Paths []VirtualIngressPath `json:"paths"`
}

// PathType is how the path of a request is matched.
//
// +kubebuilder:validation:Enum=Exact;Prefix;ImplementationSpecific
type PathType string

// Path types, as in networking.k8s.io/v1.
const (
	// PathTypeExact matches the path exactly.
	PathTypeExact PathType = "Exact"
	// PathTypePrefix matches a prefix of the path, element by element.
	PathTypePrefix PathType = "Prefix"
	// PathTypeImplementationSpecific leaves matching to the controller of the IngressClass.
	PathTypeImplementationSpecific PathType = "ImplementationSpecific"
)

// VirtualIngressPath maps a path to backends. method, headers, queryParams, filters and timeouts are fields of HTTPRoute in
// gateway.networking.k8s.io/v1, and require output HTTPRoute.
//
// +kubebuilder:validation:XValidation:rule="self.pathType == 'ImplementationSpecific' || (has(self.path) && size(self.path) > 0)",message="pathType Exact and Prefix need a path",fieldPath=".path",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="(has(self.backend) ? 1 : 0) + (has(self.backends) ? 1 : 0) + (has(self.filters) && self.filters.exists(f, f.type == 'RequestRedirect') ? 1 : 0) == 1",message="set exactly one of backend, backends and a filter RequestRedirect",fieldPath=".backend",reason=FieldValueRequired
type VirtualIngressPath struct {
	// Path of the request. It begins with a slash.
	// +optional
	// +kubebuilder:validation:Pattern=`^(/.*)?$`
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// PathType is how the path is matched.
	// +required
	PathType PathType `json:"pathType"`

	// Method of the request. Defaults to any method.
	// +optional
	Method *gatewayv1.HTTPMethod `json:"method,omitempty"`

	// Headers that the request must have.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Headers []gatewayv1.HTTPHeaderMatch `json:"headers,omitempty"`

	// QueryParams are parameters that the query of the request must have.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	QueryParams []gatewayv1.HTTPQueryParamMatch `json:"queryParams,omitempty"`

	// Filters change requests and responses, or redirect requests.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	Filters []VirtualIngressFilter `json:"filters,omitempty"`

	// Timeouts limit requests.
	// +optional
	Timeouts *gatewayv1.HTTPRouteTimeouts `json:"timeouts,omitempty"`

	// Backend handles the requests.
	// +optional
	Backend *VirtualIngressBackend `json:"backend,omitempty"`

	// Backends share the requests by weight, instead of one backend. They require output HTTPRoute.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Backends []VirtualIngressWeightedBackend `json:"backends,omitempty"`
}

// VirtualIngressFilter is a filter of an HTTPRoute of gateway.networking.k8s.io/v1.
//
// +kubebuilder:validation:XValidation:rule="has(self.requestHeaderModifier) == (self.type == 'RequestHeaderModifier') && has(self.responseHeaderModifier) == (self.type == 'ResponseHeaderModifier') && has(self.requestRedirect) == (self.type == 'RequestRedirect') && has(self.urlRewrite) == (self.type == 'URLRewrite') && has(self.extensionRef) == (self.type == 'ExtensionRef')",message="set the field that belongs to the type, and no other"
type VirtualIngressFilter struct {
	// Type is the kind of the filter.
	// +required
	// +kubebuilder:validation:Enum=RequestHeaderModifier;ResponseHeaderModifier;RequestRedirect;URLRewrite;ExtensionRef
	Type gatewayv1.HTTPRouteFilterType `json:"type"`

	// RequestHeaderModifier changes headers of requests.
	// +optional
	RequestHeaderModifier *gatewayv1.HTTPHeaderFilter `json:"requestHeaderModifier,omitempty"`

	// ResponseHeaderModifier changes headers of responses.
	// +optional
	ResponseHeaderModifier *gatewayv1.HTTPHeaderFilter `json:"responseHeaderModifier,omitempty"`

	// RequestRedirect redirects requests.
	// +optional
	RequestRedirect *gatewayv1.HTTPRequestRedirectFilter `json:"requestRedirect,omitempty"`

	// URLRewrite changes the host or the path of requests.
	// +optional
	URLRewrite *gatewayv1.HTTPURLRewriteFilter `json:"urlRewrite,omitempty"`

	// ExtensionRef refers to a filter of the Gateway's implementation, in the same namespace.
	// +optional
	ExtensionRef *gatewayv1.LocalObjectReference `json:"extensionRef,omitempty"`
}

// VirtualIngressBackend handles requests: a Service, or another object that the controller of the
// IngressClass supports.
//
// +kubebuilder:validation:XValidation:rule="has(self.service) != has(self.resource)",message="set exactly one of service and resource"
type VirtualIngressBackend struct {
	// Service handles the requests.
	// +optional
	Service *VirtualIngressService `json:"service,omitempty"`

	// Resource is another object in this namespace that handles the requests.
	// +optional
	Resource *VirtualIngressResource `json:"resource,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// VirtualIngressService is a port of a Service, which is given by name or selected by labels.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.matchLabels)",message="set exactly one of name and matchLabels"
type VirtualIngressService struct {
	// Name of the Service.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// MatchLabels select one Service by its labels.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// Namespace of the Service, if it differs from this object's. It requires backendMode Alias and the
	// consent of that namespace.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`

	// Port of the Service.
	// +required
	Port VirtualIngressPort `json:"port"`
}

// VirtualIngressPort is a port of a Service, by its name or its number.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.number)",message="set exactly one of name and number"
type VirtualIngressPort struct {
	// Name of the port.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// Number of the port.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Number int32 `json:"number,omitempty"`
}

// VirtualIngressResource refers to an object in the same namespace.
type VirtualIngressResource struct {
	// APIGroup of the object; absent for the core group.
	// +optional
	APIGroup *string `json:"apiGroup,omitempty"`

	// Kind of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	Kind string `json:"kind"`

	// Name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=virtualingresses,shortName=ving,categories=oooi
// +kubebuilder:metadata:labels=app.kubernetes.io/managed-by=oooi
// +kubebuilder:metadata:annotations={"argocd.argoproj.io/sync-options=Prune=false,Delete=false","helm.sh/resource-policy=keep","kustomize.toolkit.fluxcd.io/prune=disabled"}
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.ingressClassName`,description="IngressClass of the Ingress"
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.spec.rules[0].host`,description="Host of the first rule"
// +kubebuilder:printcolumn:name="Ingress",type=string,JSONPath=`.status.ingressName`,description="Generated Ingress"
// +kubebuilder:printcolumn:name="Route",type=string,priority=1,JSONPath=`.status.routes[0].name`,description="First generated route"
// +kubebuilder:printcolumn:name="Accepted",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the Gateways accept the routes"
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.status.backends[0].service`,description="Service selected for the first backend with a selector"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.loadBalancer.ingress[0].ip`,description="First address of the Ingress"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the generated objects are as specified, with a Service for each backend, and no Gateway refuses them"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready or not"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="Explanation of the reason"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// VirtualIngress is an Ingress whose backends may be Services selected by labels instead of names. A
// controller creates the Ingress, or routes of Gateway API, with the names of the selected Services, and keeps them up to date.
type VirtualIngress struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state.
	// +optional
	Spec VirtualIngressSpec `json:"spec,omitzero"`

	// Status is the observed state.
	// +optional
	Status VirtualIngressStatus `json:"status,omitzero"`
}

// +kubebuilder:object:root=true

// VirtualIngressList is a list of VirtualIngress objects.
type VirtualIngressList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the VirtualIngresses.
	Items []VirtualIngress `json:"items"`
}
