package objects

import (
	"iter"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RouteResource is the resource of Routes.
var RouteResource = schema.GroupVersionResource{
	Group: "route.openshift.io", Version: "v1", Resource: "routes",
}

// Route is the part of a route.openshift.io/v1 Route that maps a hostname to a Service.
type Route struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec   RouteSpec   `json:"spec"`
	Status RouteStatus `json:"status,omitzero"`
}

// AdmittedHosts yields the hosts under which routers serve the Route. With spec.subdomain they differ from spec.host. If
// several Routes have the same host, a router admits only the oldest.
func (r *Route) AdmittedHosts() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, i := range r.Status.Ingress {
			if i.Host != "" && i.IsAdmitted() && !yield(i.Host) {
				return
			}
		}
	}
}

// Hosts returns spec.host and the hosts under which routers serve the Route.
func (r *Route) Hosts() []string {
	var hosts []string
	if r.Spec.Host != "" {
		hosts = append(hosts, r.Spec.Host)
	}
	for host := range r.AdmittedHosts() {
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// RouteStatus is the part of OpenShift's RouteStatus that is in use.
type RouteStatus struct {
	Ingress []RouteIngress `json:"ingress,omitempty"`
}

// RouteIngress is the part of OpenShift's RouteIngress that reports whether a router serves the Route.
type RouteIngress struct {
	Host       string           `json:"host,omitempty"`
	RouterName string           `json:"routerName,omitempty"`
	Conditions []RouteCondition `json:"conditions,omitempty"`
}

// IsAdmitted reports whether the router serves the Route.
func (i *RouteIngress) IsAdmitted() bool {
	return slices.Contains(i.Conditions, RouteCondition{Type: "Admitted", Status: "True"})
}

// RouteCondition is the part of OpenShift's RouteIngressCondition that is in use.
type RouteCondition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

// RouteSpec is the part of OpenShift's RouteSpec that is in use.
type RouteSpec struct {
	Host           string      `json:"host,omitempty"`
	To             RouteTarget `json:"to"`
	Port           *RoutePort  `json:"port,omitempty"`
	WildcardPolicy string      `json:"wildcardPolicy,omitempty"`
}

// RoutePort is OpenShift's RoutePort: the port of the Service, by number or name.
type RoutePort struct {
	TargetPort intstr.IntOrString `json:"targetPort"`
}

// RouteTarget is the part of OpenShift's RouteTargetReference that is in use.
type RouteTarget struct {
	Kind string `json:"kind,omitempty"`
	Name string `json:"name"`
}
