// Package routes builds and prints reports of the routes of proxies.
package routes

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

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
	// By is the name that selects a route: BySNI (TLS) or ByHost (HTTP). With ByUDP, the only route gets all datagrams on
	// the port.
	By     string  `json:"by"`
	Routes []Route `json:"routes"`
	// Default is the target of connections that no route matches. If it is nil, the proxy closes the connections or, with
	// ByHost, responds with 404.
	Default *Target `json:"default,omitempty"`
}

// A Route sends the connections for one name to a target.
type Route struct {
	// Host is a name, "*." and a domain for all names below the domain, or "*" for all names.
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
	// Forward means that the proxy connects to the name that the client sent, which is outside of the cluster: through the proxy
	// Parent if that is not empty. With ByUDP, it forwards NTP to one of Servers for each client.
	Forward bool     `json:"forward,omitempty"`
	Parent  string   `json:"parent,omitempty"`
	Servers []string `json:"servers,omitempty"`
	// Missing is why the target cannot be reached; empty if it can.
	Missing string `json:"missing,omitempty"`
	// Rules are the rules for HTTP requests by precedence, instead of a Service.
	Rules []Rule `json:"rules,omitempty"`
}

// A Rule redirects HTTP requests or forwards them to backends.
type Rule struct {
	// Name is "backend/rule", with the number of the rule in the backend.
	Name string `json:"name"`
	// Match are the conditions, such as "/api GET x-version=v2 ?page=1"; an exact path is preceded by "=".
	Match    string                               `json:"match"`
	Redirect *gatewayv1.HTTPRequestRedirectFilter `json:"redirect,omitempty"`
	// Backends get requests in proportion to their weights. Without Backends and Redirect, the proxy responds
	// with 500.
	Backends []WeightedTarget `json:"backends,omitempty"`
}

// A WeightedTarget is a target with its share of requests.
type WeightedTarget struct {
	Target `json:",inline"`

	Weight int32 `json:"weight"`
}

// String returns the redirect, or the targets with their weights if there are several.
func (r *Rule) String() string {
	switch {
	case r.Redirect != nil:
		to := r.Redirect
		text := ptr.Deref(to.Scheme, "http") + "://" + string(ptr.Deref(to.Hostname, "(same host)"))
		if to.Port != nil {
			text += ":" + strconv.Itoa(int(*to.Port))
		}
		if to.Path != nil {
			text += cmp.Or(ptr.Deref(to.Path.ReplaceFullPath, ""), strings.TrimRight(ptr.Deref(to.Path.ReplacePrefixMatch, ""), "/")+"/*")
		}
		return fmt.Sprintf("redirect %d to %s", ptr.Deref(to.StatusCode, 302), text)
	case len(r.Backends) == 0:
		return "status 500"
	case len(r.Backends) == 1:
		return r.Backends[0].String()
	}
	list := make([]string, len(r.Backends))
	for i := range r.Backends {
		list[i] = fmt.Sprintf("%s (weight %d)", &r.Backends[i].Target, r.Backends[i].Weight)
	}
	return strings.Join(list, ", ")
}

// problem returns why a target of the rule cannot be reached; empty if all can.
func (r *Rule) problem() string {
	var list []string
	for i := range r.Backends {
		if missing := r.Backends[i].Missing; missing != "" && !slices.Contains(list, missing) {
			list = append(list, missing)
		}
	}
	return strings.Join(list, "; ")
}

func rulesOf(list []model.HTTPRule, targets map[string]*Target) []Rule {
	var rules []Rule
	for i := range list {
		rule := Rule{Name: list[i].Name, Match: list[i].Match(), Redirect: list[i].Redirect}
		for _, b := range list[i].Backends {
			if t := targets[b.Upstream]; t != nil {
				rule.Backends = append(rule.Backends, WeightedTarget{*t, b.Weight})
			}
		}
		rules = append(rules, rule)
	}
	return rules
}

// String returns the addresses, or the Service and its port, with "(missing)" if it cannot be reached. It returns
// "closed" for nil, and "nothing" for a target without addresses and Service.
func (t *Target) String() string {
	switch {
	case t == nil:
		return "closed"
	case len(t.Rules) > 0:
		list := make([]string, len(t.Rules))
		for i := range t.Rules {
			list[i] = t.Rules[i].Match + ": " + t.Rules[i].String()
		}
		return strings.Join(list, "; ")
	case len(t.Addresses) > 0:
		list := make([]string, len(t.Addresses))
		for i, a := range t.Addresses {
			list[i] = a.String()
		}
		return strings.Join(list, ",")
	case len(t.Servers) > 0:
		return strings.Join(t.Servers, ",")
	case t.Parent != "":
		return "the name, by " + t.Parent
	case t.Forward:
		return "the name"
	case t.Service == "":
		return "nothing"
	case t.Missing != "":
		return "Service " + t.Service + ":" + t.Port + " (missing)"
	default:
		return "Service " + t.Service + ":" + t.Port
	}
}

// NewReport returns the report of one proxy. The ports of its backends are taken from the ProxyServer in objects.
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
		listener := Listener{Port: l.Port, By: BySNI, Default: targets[l.Default]}
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
			if route.Rules != nil {
				out.Target = Target{Rules: rulesOf(route.Rules, targets)}
			}
			listener.Routes = append(listener.Routes, out)
		}
		r.Listeners = append(r.Listeners, listener)
	}
	return r
}

// target returns the target of an upstream. The upstream's name contains the port, except for a backend, whose port is
// passed.
func target(u *model.Upstream, port string) *Target {
	if after, ok := strings.CutPrefix(u.Name, u.Service+"/"); ok && u.Service != "" {
		port = after
	}
	t := &Target{Service: u.Service, Port: port, Addresses: u.Addresses, FromVLAN: u.FromVLAN, Forward: u.Forward, Servers: u.Servers, Missing: u.Missing}
	if u.Parent != nil {
		t.Parent = net.JoinHostPort(u.Parent.Host, strconv.Itoa(int(u.Parent.Port)))
	}
	return t
}

// backendPort returns the targetPort of a backend of a ProxyServer; empty if there is no such backend.
func backendPort(p *model.ProxyServer, backend string, objects *model.Objects) string {
	if parts := strings.Split(backend, "/"); len(parts) == 3 { // a Service of an HTTP rule
		return parts[2]
	}
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

// Find returns the target for a name, from the route with this name, or else from the matching wildcard route with the
// longest domain. It returns nil if no route matches, and for UDP, where names select nothing.
func (l *Listener) Find(name string) *Target {
	if l.By == ByUDP {
		return nil
	}
	if r := model.MatchHost(l.Routes, func(r *Route) string { return r.Host }, name); r != nil {
		return &r.Target
	}
	return nil
}
