package model

import (
	"cmp"
	"slices"
)

// Role is the control-plane service that a hostname belongs to.
type Role string

// The control-plane services that HyperShift publishes.
const (
	RoleAPI          Role = "kube-apiserver"
	RoleOAuth        Role = "oauth"
	RoleIgnition     Role = "ignition"
	RoleKonnectivity Role = "konnectivity"
	RoleMetricsProxy Role = "metrics-proxy"
)

// Default ports of control-plane services.
const (
	portHTTPS        = 443
	portAPI          = 6443
	portKonnectivity = 8091
)

// backends are the Service and port of each role in the control plane's namespace.
var backends = map[Role]Backend{
	RoleAPI:          {Service: "kube-apiserver", Port: portAPI},
	RoleOAuth:        {Service: "oauth-openshift", Port: 6443},
	RoleIgnition:     {Service: "ignition-server-proxy", Port: portHTTPS},
	RoleKonnectivity: {Service: "konnectivity-server", Port: portKonnectivity},
	RoleMetricsProxy: {Service: "metrics-proxy", Port: portHTTPS},
}

// Backend returns the Service port of the role, or the zero Backend for an unknown role.
func (r Role) Backend() Backend { return backends[r] }

// Backend is a port of a Service in the hosted control plane's namespace.
type Backend struct {
	Service string `json:"service"`
	Port    int32  `json:"port"`
}

// Endpoint is a control-plane service behind a hostname. Several roles may share a hostname; they are
// distinguished by the port that the client connects to.
type Endpoint struct {
	Role Role `json:"role"`
	// Port is the port that clients connect to; 0 if it is not known yet (a node port that Kubernetes has not
	// allocated).
	Port int32 `json:"port"`
	// Source is the field or object that has the hostname, such as "spec.services[APIServer]".
	Source string `json:"source"`
}

// Hostname is a name of a control plane, in lower case and without a trailing dot, with its endpoints.
type Hostname struct {
	Name      string     `json:"name"`
	Endpoints []Endpoint `json:"endpoints"`
}

// hostnames are the endpoints of one cluster's names, by name.
type hostnames map[string][]Endpoint

// add adds an endpoint to a name. The first source of a (role, port) is kept, so callers add names of objects
// before conventional ones.
func (h hostnames) add(name string, role Role, port int32, source string) {
	for _, e := range h[name] {
		if e.Role == role && e.Port == port {
			return
		}
	}
	h[name] = append(h[name], Endpoint{Role: role, Port: port, Source: source})
}

// sorted returns the hostnames by name, with their endpoints by port and role.
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

// conventional is the Source of an Endpoint whose name no object contains.
const conventional = "convention"
