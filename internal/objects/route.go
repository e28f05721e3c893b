package objects

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RouteResource is where an OpenShift API server serves Routes.
var RouteResource = schema.GroupVersionResource{
	Group: "route.openshift.io", Version: "v1", Resource: "routes",
}

// Route is the part of route.openshift.io/v1 Route that joins a hostname to a Service.
type Route struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec   RouteSpec   `json:"spec"`
	Status RouteStatus `json:"status,omitzero"`
}

// IsAdmitted reports whether a router serves the Route under its host: of several Routes with
// one host that is the one that came first.
func (r *Route) IsAdmitted() bool {
	return slices.ContainsFunc(r.Status.Ingress, func(i RouteIngress) bool {
		return i.Host == r.Spec.Host && slices.Contains(i.Conditions, RouteCondition{Type: "Admitted", Status: "True"})
	})
}

// RouteStatus is the part of RouteStatus that we read.
type RouteStatus struct {
	Ingress []RouteIngress `json:"ingress,omitempty"`
}

// RouteIngress is the part of RouteIngress that says whether one router serves the Route.
type RouteIngress struct {
	Host       string           `json:"host,omitempty"`
	Conditions []RouteCondition `json:"conditions,omitempty"`
}

// RouteCondition is the part of RouteIngressCondition that we read.
type RouteCondition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

// RouteSpec is the part of RouteSpec that we read.
type RouteSpec struct {
	Host           string      `json:"host,omitempty"`
	To             RouteTarget `json:"to"`
	Port           *RoutePort  `json:"port,omitempty"`
	WildcardPolicy string      `json:"wildcardPolicy,omitempty"`
}

// RoutePort is RoutePort of route.openshift.io/v1: the Service's port, by number or name.
type RoutePort struct {
	TargetPort intstr.IntOrString `json:"targetPort"`
}

// RouteTarget is the part of RouteTargetReference that we read.
type RouteTarget struct {
	Kind string `json:"kind,omitempty"`
	Name string `json:"name"`
}
