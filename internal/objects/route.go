package objects

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	WildcardPolicy string      `json:"wildcardPolicy,omitempty"`
}

// RouteTarget is the part of RouteTargetReference that we read.
type RouteTarget struct {
	Kind string `json:"kind,omitempty"`
	Name string `json:"name"`
}
