package model

import (
	"cmp"
	"slices"
)

// Role is what a control-plane hostname leads to.
type Role string

// The control-plane services that HyperShift publishes.
const (
	RoleAPI          Role = "kube-apiserver"
	RoleOAuth        Role = "oauth"
	RoleIgnition     Role = "ignition"
	RoleKonnectivity Role = "konnectivity"
	RoleMetricsProxy Role = "metrics-proxy"
)

// Ports that clients of a control plane dial when nothing else is said.
const (
	portHTTPS        = 443
	portAPI          = 6443
	portKonnectivity = 8091
)

// backends says which Service of the control-plane namespace stands behind a
// role, and on which of its ports.
var backends = map[Role]Backend{
	RoleAPI:          {Service: "kube-apiserver", Port: portAPI},
	RoleOAuth:        {Service: "oauth-openshift", Port: 6443},
	RoleIgnition:     {Service: "ignition-server-proxy", Port: portHTTPS},
	RoleKonnectivity: {Service: "konnectivity-server", Port: portKonnectivity},
	RoleMetricsProxy: {Service: "metrics-proxy", Port: portHTTPS},
}

// Backend returns the Service port that stands behind the role.
func (r Role) Backend() Backend { return backends[r] }

// Backend is a port of a Service in the hosted control plane's namespace.
type Backend struct {
	Service string `json:"service"`
	Port    int32  `json:"port"`
}

// Endpoint is one thing that a hostname leads to. Several roles may share a
// hostname: the port that the client dials tells them apart.
type Endpoint struct {
	Role Role `json:"role"`
	// Port is the port that clients dial, 0 where the object leaves it open
	// (a node port that Kubernetes has not allocated yet).
	Port int32 `json:"port"`
	// Source is where the hostname was found, such as "spec.services[APIServer]".
	Source string `json:"source"`
}

// Hostname is a name under which a control plane is reached, lower-case and
// without a trailing dot, with everything that it leads to.
type Hostname struct {
	Name      string     `json:"name"`
	Endpoints []Endpoint `json:"endpoints"`
}

// hostnames collects the names of one cluster.
type hostnames map[string][]Endpoint

// add notes that name leads to role on port. The first source of a (role, port)
// is kept: callers add what the objects say before what is conventional.
func (h hostnames) add(name string, role Role, port int32, source string) {
	for _, e := range h[name] {
		if e.Role == role && e.Port == port {
			return
		}
	}
	h[name] = append(h[name], Endpoint{Role: role, Port: port, Source: source})
}

func (h hostnames) sorted() []Hostname {
	total := 0
	for _, endpoints := range h {
		total += len(endpoints)
	}
	list, all := make([]Hostname, 0, len(h)), make([]Endpoint, 0, total)
	for name, endpoints := range h {
		slices.SortFunc(endpoints, func(a, b Endpoint) int {
			return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Role, b.Role))
		})
		all = append(all, endpoints...)
		list = append(list, Hostname{Name: name, Endpoints: slices.Clip(all[len(all)-len(endpoints):])})
	}
	slices.SortFunc(list, func(a, b Hostname) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// equalHostnames reports whether two lists are the same. Most are one and the same.
func equalHostnames(a, b []Hostname) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.EqualFunc(a, b, func(a, b Hostname) bool {
		return a.Name == b.Name && slices.Equal(a.Endpoints, b.Endpoints)
	}))
}
