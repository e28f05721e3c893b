// Package routes says where a proxy sends connections.
package routes

import (
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Report is what the proxy of one ProxyServer listens on, and where connections go.
type Report struct {
	metav1.TypeMeta `json:",inline"`

	Metadata output.Metadata `json:"metadata"`
	// Infra and HostedCluster are those that routes come from, "namespace/name"; empty for none.
	Infra         string       `json:"infra,omitempty"`
	HostedCluster string       `json:"hostedCluster,omitempty"`
	Addresses     []netip.Addr `json:"addresses"`
	Listeners     []Listener   `json:"listeners"`
}

// How connections of a listener are told apart.
const (
	BySNI  = "SNI"
	ByHost = "Host"
)

// Listener is one port.
type Listener struct {
	Port int32 `json:"port"`
	// By is SNI or Host.
	By     string  `json:"by"`
	Routes []Route `json:"routes"`
	// Default is where everything goes that no route takes; nil: it is closed.
	Default *Target `json:"default,omitempty"`
	// Plain is where that goes of it which is not TLS, where there is no Default.
	Plain *Target `json:"plain,omitempty"`
}

// Route leads one name to a target.
type Route struct {
	// Host is a name, or "*." and a domain for every name below that.
	Host   string `json:"host"`
	Target Target `json:"target"`
	// Source is what in Owner says so.
	Source string    `json:"source"`
	Owner  model.Ref `json:"owner"`
}

// Target is where connections go to.
type Target struct {
	// Service is "namespace/name", Port its port by number or name.
	Service string `json:"service,omitempty"`
	Port    string `json:"port,omitempty"`
	// Addresses stand in the place of a Service.
	Addresses []netip.AddrPort `json:"addresses,omitempty"`
	// FromVLAN: connections leave from the proxy's address on the VLAN.
	FromVLAN bool `json:"fromVLAN,omitempty"`
	// Missing says why there is nothing to connect to.
	Missing string `json:"missing,omitempty"`
}

// String names the target in a few words.
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

// Make makes the report of one proxy. Of its backends the objects say which ports they name.
func Make(p *model.ProxyServer, objects *model.Objects) *Report {
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

// target is where an upstream leads. Its name has the port, save that of a backend.
func target(u *model.Upstream, port string) *Target {
	if after, ok := strings.CutPrefix(u.Name, u.Service+"/"); ok && u.Service != "" {
		port = after
	}
	return &Target{Service: u.Service, Port: port, Addresses: u.Addresses, FromVLAN: u.FromVLAN, Missing: u.Missing}
}

// backendPort is the port that a ProxyServer's backend names.
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

// Find returns where the routes of a listener send connections for a name: by the name itself,
// else by the longest domain that it is in. It is nil for a name that no route takes.
func (l *Listener) Find(name string) *Target {
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
