// Package routes builds and prints reports of the routes of proxies.
package routes

import (
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// A Report has the listeners and routes of the proxy of one ProxyServer.
type Report struct {
	metav1.TypeMeta `json:",inline"`

	Metadata output.Metadata `json:"metadata"`
	// Infra and HostedCluster are the objects that define the routes, as "namespace/name"; empty for none.
	Infra         string `json:"infra,omitempty"`
	HostedCluster string `json:"hostedCluster,omitempty"`
	// Addresses are the VLAN addresses of the proxy.
	Addresses []netip.Addr `json:"addresses"`
	Listeners []Listener   `json:"listeners"`
}

// Values of Listener.By.
const (
	BySNI  = "SNI"
	ByHost = "Host"
	ByUDP  = "UDP"
)

// A Listener is one port of the proxy.
type Listener struct {
	Port int32 `json:"port"`
	// By is the name that selects a route: BySNI (TLS) or ByHost (HTTP). With ByUDP, the only route gets all datagrams of
	// the port.
	By     string  `json:"by"`
	Routes []Route `json:"routes"`
	// Default is the target of connections that no route matches; nil if they are closed.
	Default *Target `json:"default,omitempty"`
	// Plain is the target of connections that are not TLS if Default is nil; nil if they are closed.
	Plain *Target `json:"plain,omitempty"`
}

// A Route sends the connections for one name to a target.
type Route struct {
	// Host is a name, or "*." and a domain for all names below the domain.
	Host   string `json:"host"`
	Target Target `json:"target"`
	// Source is the field of Owner that defines the route.
	Source string    `json:"source"`
	Owner  model.Ref `json:"owner"`
}

// A Target is the destination of connections.
type Target struct {
	// Service is "namespace/name", Port the number or name of its port.
	Service string `json:"service,omitempty"`
	Port    string `json:"port,omitempty"`
	// Addresses are used instead of a Service.
	Addresses []netip.AddrPort `json:"addresses,omitempty"`
	// FromVLAN means that the proxy connects from its VLAN address.
	FromVLAN bool `json:"fromVLAN,omitempty"`
	// Missing is the reason why the target cannot be reached; empty if it can.
	Missing string `json:"missing,omitempty"`
}

// String returns the addresses, or the Service and its port, with "(missing)" if it cannot be reached. It returns
// "closed" for nil, and "nothing" for a target without addresses and Service.
func (t *Target) String() string {
	switch {
	case t == nil:
		return "closed"
	case len(t.Addresses) > 0:
		list := make([]string, len(t.Addresses))
		for i, a := range t.Addresses {
			list[i] = a.String()
		}
		return strings.Join(list, ",")
	case t.Service == "":
		return "nothing"
	case t.Missing != "":
		return "Service " + t.Service + ":" + t.Port + " (missing)"
	default:
		return "Service " + t.Service + ":" + t.Port
	}
}

// NewReport returns the report of one proxy. The ports of its backends are those in the ProxyServer in objects.
func NewReport(p *model.ProxyServer, objects *model.Objects) *Report {
	r := &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "ProxyRoutes"},
		Metadata: output.Metadata{Name: p.Name, Namespace: p.Namespace}, Addresses: p.VLAN,
	}
	if p.Infra != nil {
		r.Infra = p.Infra.Key()
	}
	if p.Cluster != nil && p.Cluster.Kind == "HostedCluster" {
		r.HostedCluster = p.Cluster.Key()
	}
	targets := map[string]*Target{}
	for _, u := range p.Upstreams {
		targets[u.Name] = target(u, backendPort(p, u.Backend, objects))
	}
	for _, l := range p.Listeners {
		listener := Listener{Port: l.Port, By: BySNI, Default: targets[l.Default], Plain: targets[l.Plain]}
		if l.HTTP {
			listener.By = ByHost
		}
		if l.UDP {
			listener.By = ByUDP
		}
		for _, route := range l.Routes {
			out := Route{Host: route.Host, Owner: route.Owner, Source: route.Source}
			if t := targets[route.Upstream]; t != nil {
				out.Target = *t
			}
			listener.Routes = append(listener.Routes, out)
		}
		r.Listeners = append(r.Listeners, listener)
	}
	return r
}

// target returns the target of an upstream. The port is in the name of the upstream, except for a backend, whose port
// is passed.
func target(u *model.Upstream, port string) *Target {
	if after, ok := strings.CutPrefix(u.Name, u.Service+"/"); ok && u.Service != "" {
		port = after
	}
	return &Target{Service: u.Service, Port: port, Addresses: u.Addresses, FromVLAN: u.FromVLAN, Missing: u.Missing}
}

// backendPort returns the targetPort of a backend of a ProxyServer; empty if there is no such backend.
func backendPort(p *model.ProxyServer, backend string, objects *model.Objects) string {
	for _, server := range objects.ProxyServers {
		if backend == "" || server.Namespace != p.Namespace || server.Name != p.Name {
			continue
		}
		for i := range server.Spec.Backends {
			if server.Spec.Backends[i].Name == backend {
				return server.Spec.Backends[i].TargetPort.String()
			}
		}
	}
	return ""
}

// Find returns the target for a name: that of the route with this name, else that of the matching wildcard route with
// the longest domain. It returns nil if no route matches, and for UDP, where names select nothing.
func (l *Listener) Find(name string) *Target {
	if l.By == ByUDP {
		return nil
	}
	var found *Route
	for i := range l.Routes {
		r := &l.Routes[i]
		if r.Host == name {
			return &r.Target
		}
		if domain, wild := strings.CutPrefix(r.Host, "*"); wild && strings.HasSuffix(name, domain) && (found == nil || len(found.Host) < len(r.Host)) {
			found = r
		}
	}
	if found == nil {
		return nil
	}
	return &found.Target
}
