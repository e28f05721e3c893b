package objects

import (
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

	Spec RouteSpec `json:"spec"`
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
