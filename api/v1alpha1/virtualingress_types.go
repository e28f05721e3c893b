package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultIngressSuffix is what the name of a generated Ingress ends with where neither
// the VirtualIngress nor its controller says otherwise.
const DefaultIngressSuffix = "-generated"

// OnNoMatch says what becomes of the Ingress when no Service has a backend's labels.
//
// +kubebuilder:validation:Enum=Keep;Delete
type OnNoMatch string

const (
	// OnNoMatchKeep leaves the Ingress with the last Service that was found.
	OnNoMatchKeep OnNoMatch = "Keep"

	// OnNoMatchDelete deletes the Ingress until there is a Service again.
	OnNoMatchDelete OnNoMatch = "Delete"
)

// BackendMode says what the Ingress names as its backends.
//
// +kubebuilder:validation:Enum=Direct;Alias
type BackendMode string

const (
	// BackendModeDirect has the Ingress name the Service that was found.
	BackendModeDirect BackendMode = "Direct"

	// BackendModeAlias has it name a Service of a fixed name, with the endpoints of
	// the one that was found.
	BackendModeAlias BackendMode = "Alias"
)

// VirtualIngressSpec is the spec of a networking.k8s.io/v1 Ingress, whose Services may
// be found by their labels, and what to do when that is not possible.
//
// +kubebuilder:validation:XValidation:rule="has(self.defaultBackend) || (has(self.rules) && size(self.rules) > 0)",message="needs rules or a defaultBackend",fieldPath=".rules",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="(has(self.backendMode) && self.backendMode == 'Alias') || !(has(self.defaultBackend) && has(self.defaultBackend.service) && has(self.defaultBackend.service.__namespace__))",message="a Service of another namespace needs backendMode Alias",fieldPath=".backendMode",reason=FieldValueInvalid
// +kubebuilder:validation:XValidation:rule="(has(self.backendMode) && self.backendMode == 'Alias') || !has(self.rules) || !self.rules.exists(r, has(r.http) && r.http.paths.exists(p, has(p.backend.service) && has(p.backend.service.__namespace__)))",message="a Service of another namespace needs backendMode Alias",fieldPath=".backendMode",reason=FieldValueInvalid
type VirtualIngressSpec struct {
	// IngressClassName names the IngressClass of the controller that serves the Ingress.
	// Absent: the cluster's default one, if it has any.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	IngressClassName *string `json:"ingressClassName,omitempty"`

	// DefaultBackend takes the requests that no rule does.
	// +optional
	DefaultBackend *VirtualIngressBackend `json:"defaultBackend,omitempty"`

	// TLS are the certificates, by the hosts that they are for.
	// +optional
	// +listType=atomic
	TLS []VirtualIngressTLS `json:"tls,omitempty"`

	// Rules lead hosts and paths to backends.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Rules []VirtualIngressRule `json:"rules,omitempty"`

	// OnMultiple says what to do when more than one Service has a backend's labels.
	// Absent: what the controller was told, which is Fail by default.
	// +optional
	OnMultiple OnMultiple `json:"onMultiple,omitempty"`

	// OnNoMatch says what becomes of the Ingress when no Service has a backend's labels.
	// Absent: what the controller was told, which is Keep by default.
	// +optional
	OnNoMatch OnNoMatch `json:"onNoMatch,omitempty"`

	// BackendMode says whether the Ingress names the Services that were found, or
	// Services of fixed names with the same endpoints. Absent: Direct.
	// +optional
	BackendMode BackendMode `json:"backendMode,omitempty"`

	// Suffix is what the Ingress is named after this object's name; it may be empty.
	// Absent: what the controller was told, which is "-generated" by default.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([-.a-z0-9]*[a-z0-9])?$`
	Suffix *string `json:"suffix,omitempty"`
}

// VirtualIngressTLS names the certificate for some hosts.
type VirtualIngressTLS struct {
	// Hosts are the hosts that the certificate is for.
	// +optional
	// +listType=atomic
	Hosts []string `json:"hosts,omitempty"`

	// SecretName is the Secret with the certificate, in the same namespace.
	// +optional
	SecretName string `json:"secretName,omitempty"`
}

// VirtualIngressRule leads the paths of one host to backends.
type VirtualIngressRule struct {
	// Host is the host that requests are for. A wildcard may stand for its first label.
	// Absent: every host.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^((\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	Host string `json:"host,omitempty"`

	// HTTP are the paths of the host.
	// +optional
	HTTP *VirtualIngressHTTP `json:"http,omitempty"`
}

// VirtualIngressHTTP are the paths of a host.
type VirtualIngressHTTP struct {
	// Paths lead to backends.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Paths []VirtualIngressPath `json:"paths"`
}

// PathType says how a path is compared with that of a request.
//
// +kubebuilder:validation:Enum=Exact;Prefix;ImplementationSpecific
type PathType string

// The ways to compare paths.
const (
	// PathTypeExact takes the path as it is.
	PathTypeExact PathType = "Exact"
	// PathTypePrefix takes paths that begin with it, element by element.
	PathTypePrefix PathType = "Prefix"
	// PathTypeImplementationSpecific leaves it to the controller of the IngressClass.
	PathTypeImplementationSpecific PathType = "ImplementationSpecific"
)

// VirtualIngressPath leads a path to a backend.
//
// +kubebuilder:validation:XValidation:rule="self.pathType == 'ImplementationSpecific' || (has(self.path) && size(self.path) > 0)",message="pathType Exact and Prefix need a path",fieldPath=".path",reason=FieldValueRequired
type VirtualIngressPath struct {
	// Path of the request; it begins with a slash.
	// +optional
	// +kubebuilder:validation:Pattern=`^(/.*)?$`
	Path string `json:"path,omitempty"`

	// PathType says how the path is compared.
	// +required
	PathType PathType `json:"pathType"`

	// Backend takes the requests.
	// +required
	Backend VirtualIngressBackend `json:"backend"`
}

// VirtualIngressBackend is what takes requests: a Service, or an object that the
// controller of the IngressClass knows.
//
// +kubebuilder:validation:XValidation:rule="has(self.service) != has(self.resource)",message="set exactly one of service and resource"
type VirtualIngressBackend struct {
	// Service takes the requests.
	// +optional
	Service *VirtualIngressService `json:"service,omitempty"`

	// Resource is another object of this namespace that takes them.
	// +optional
	Resource *VirtualIngressResource `json:"resource,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// VirtualIngressService is a port of a Service that has a name or is found by labels.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.matchLabels)",message="set exactly one of name and matchLabels"
type VirtualIngressService struct {
	// Name of the Service.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// MatchLabels are labels that one Service has, and no other.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// Namespace of the Service where it is another one. It takes backendMode Alias, and
	// the consent of that namespace.
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

// VirtualIngressResource names an object in the same namespace.
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
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.ingressClassName`,description="IngressClass of the Ingress"
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.spec.rules[0].host`,description="Host of the first rule"
// +kubebuilder:printcolumn:name="Ingress",type=string,JSONPath=`.status.ingressName`,description="Ingress that is generated"
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.status.backends[0].service`,description="Service that was found for the first backend that names labels"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.loadBalancer.ingress[0].ip`,description="First address of the Ingress"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the Ingress says what is wanted, with a Service for each backend"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready or not"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What to do about it"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// VirtualIngress is an Ingress whose backends may be Services that are known by their
// labels and not by their names. A controller keeps the Ingress that names them.
type VirtualIngress struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	// +optional
	Spec VirtualIngressSpec `json:"spec,omitzero"`

	// Status is what was observed.
	// +optional
	Status VirtualIngressStatus `json:"status,omitzero"`
}

// +kubebuilder:object:root=true

// VirtualIngressList is a list of VirtualIngress objects.
type VirtualIngressList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects of the list.
	Items []VirtualIngress `json:"items"`
}
