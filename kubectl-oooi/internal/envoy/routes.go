package envoy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/routes"
)

// Routes are the routes of one Envoy.
type Routes struct {
	Header `json:",inline"`

	Routes []Route `json:"routes"`
	// Port and Name select routes on this port, and with this text in their names; 0 and "" select all.
	Port uint16 `json:"-"`
	Name string `json:"-"`
}

// A Route forwards the connections or requests for a name on a port to a cluster.
type Route struct {
	Port uint16 `json:"port"`
	// By is the name that selects the route: SNI (TLS) or Host (HTTP). UDP means that the route gets all datagrams.
	By string `json:"by"`
	// Name is a name, or "*." and a domain for all names below the domain; empty for all other names. With HTTP rules, it
	// includes the conditions for path and headers.
	Name string `json:"name,omitempty"`
	// NotTLS means that the route is for connections that are not TLS.
	NotTLS bool `json:"notTLS,omitempty"`
	// Cluster is a cluster, several with their weights, a redirect, or a status code.
	Cluster string `json:"cluster"`
	// Owner is the object that defines the route, as "kind namespace/name"; empty for the default.
	Owner string `json:"owner,omitempty"`
}

// Read reads the routes of all listeners that xdsd configures, sorted by port.
func (r *Routes) Read(ctx context.Context, get Getter) error {
	listeners, err := readListeners(ctx, get)
	if err != nil {
		return err
	}
	dump, err := decode[struct {
		Configs []struct {
			Config struct {
				Name  string `json:"name"`
				Hosts []struct {
					Name    string      `json:"name"`
					Domains []string    `json:"domains"`
					Routes  []httpRoute `json:"routes"`
				} `json:"virtual_hosts"`
			} `json:"route_config"`
		} `json:"configs"`
	}](ctx, get, "/config_dump?resource=dynamic_route_configs")
	if err != nil {
		return err
	}
	r.Routes = []Route{}
	for i := range listeners {
		l := &listeners[i]
		for j := range l.FilterChains {
			if c := &l.FilterChains[j]; l.Protocol == udp {
				r.Routes = append(r.Routes, Route{Port: l.Port, By: routes.ByUDP, Name: c.Name, Cluster: c.Cluster})
			} else {
				r.Routes = append(r.Routes, c.routes(l.Port)...)
			}
		}
	}
	for i := range dump.Configs {
		config := &dump.Configs[i].Config
		var port uint16
		for j := range listeners {
			if slices.ContainsFunc(listeners[j].FilterChains, func(c FilterChain) bool { return c.Routes == config.Name }) {
				port = listeners[j].Port
			}
		}
		for _, host := range config.Hosts {
			for _, domain := range host.Domains {
				for j := range host.Routes {
					if target := host.Routes[j].target(); target != "" {
						r.Routes = append(r.Routes, Route{Port: port, By: routes.ByHost, Name: domain + host.Routes[j].match(), Cluster: target, Owner: owner(host.Name, domain)})
					}
				}
			}
		}
	}
	r.Routes = slices.DeleteFunc(r.Routes, func(route Route) bool {
		return r.Port != 0 && route.Port != r.Port || !strings.Contains(route.Name, r.Name)
	})
	slices.SortStableFunc(r.Routes, func(a, b Route) int { return cmp.Compare(a.Port, b.Port) })
	return nil
}

// httpRoute is the used part of envoy.config.route.v3.Route.
type httpRoute struct {
	Name  string `json:"name"` // empty without rules
	Match struct {
		Prefix    string      `json:"prefix"`
		Separated string      `json:"path_separated_prefix"`
		Path      string      `json:"path"`
		Headers   []httpMatch `json:"headers"`
		Query     []httpMatch `json:"query_parameters"`
	} `json:"match"`
	Route struct {
		Cluster  string `json:"cluster"`
		Weighted struct {
			Clusters []struct {
				Name   string `json:"name"`
				Weight int64  `json:"weight"`
			} `json:"clusters"`
		} `json:"weighted_clusters"`
	} `json:"route"`
	Response struct {
		Status int `json:"status"`
	} `json:"direct_response"`
	Redirect *struct {
		Scheme string `json:"scheme_redirect"`
		Host   string `json:"host_redirect"`
		Port   int64  `json:"port_redirect"`
		Path   string `json:"path_redirect"`
		Prefix string `json:"prefix_rewrite"`
		Regexp struct {
			Substitution string `json:"substitution"`
		} `json:"regex_rewrite"`
	} `json:"redirect"`
}

// httpMatch is a condition of a header or query parameter.
type httpMatch struct {
	Name   string `json:"name"`
	String struct {
		Exact string `json:"exact"`
	} `json:"string_match"`
}

// target returns the cluster, the clusters with their weights, the redirect or the status code of a route; empty for the
// route of invalid requests, which has no rule.
func (r *httpRoute) target() string {
	if to := r.Redirect; to != nil {
		text := "redirect to " + cmp.Or(to.Scheme, "http") + "://" + cmp.Or(to.Host, "(same host)")
		if to.Port != 0 {
			text += ":" + strconv.FormatInt(to.Port, 10)
		}
		if prefix := cmp.Or(to.Prefix, to.Regexp.Substitution); prefix != "" {
			return text + strings.TrimRight(prefix, "/") + "/*"
		}
		return text + to.Path
	}
	if r.Response.Status != 0 && r.Name != "" {
		return fmt.Sprint("status ", r.Response.Status)
	}
	var list []string
	for _, c := range r.Route.Weighted.Clusters {
		list = append(list, fmt.Sprintf("%s (weight %d)", c.Name, c.Weight))
	}
	return cmp.Or(r.Route.Cluster, strings.Join(list, ", "))
}

// match returns the conditions of a route with rules, as 'kubectl oooi routes' prints them.
func (r *httpRoute) match() string {
	if r.Name == "" {
		return ""
	}
	conditions := []string{cmp.Or(r.Match.Path, r.Match.Separated+"/*")}
	for i := range r.Match.Headers {
		if h := &r.Match.Headers[i]; h.Name == ":method" {
			conditions = append(conditions, h.String.Exact)
		} else {
			conditions = append(conditions, h.Name+"="+h.String.Exact)
		}
	}
	for _, q := range r.Match.Query {
		conditions = append(conditions, "?"+q.Name+"="+q.String.Exact)
	}
	return strings.Join(conditions, " ")
}

// routes returns the routes of a filter chain that forwards connections; nil for other filter chains.
func (c *FilterChain) routes(port uint16) []Route {
	if c.Cluster == "" {
		return nil
	}
	route := Route{Port: port, By: routes.BySNI, NotTLS: c.TransportProtocol == "raw_buffer", Cluster: c.Cluster}
	if len(c.ServerNames) == 0 {
		return []Route{route}
	}
	var list []Route
	for _, name := range c.ServerNames {
		route.Name, route.Owner = name, owner(c.Name, name)
		list = append(list, route)
	}
	return list
}

// owner returns the owner of a filter chain or virtual host. xdsd composes its name from the owner and the host.
func owner(name, host string) string {
	before, found := strings.CutSuffix(name, " "+host)
	if !found {
		return ""
	}
	return before
}

// RoutesTable returns a table with a row for each route.
func RoutesTable(reports []*Routes, wide bool) *output.Table {
	var list []Row[Route]
	for _, r := range reports {
		list = rows(list, r.Metadata.Name, r.Routes)
	}
	return output.NewTable([]output.Column[Row[Route]]{
		podColumn[Route](),
		{Title: "PORT", Value: func(r Row[Route]) string { return strconv.Itoa(int(r.Part.Port)) }},
		{Title: "BY", Value: func(r Row[Route]) string { return r.Part.By }},
		{Title: "NAME", Value: func(r Row[Route]) string { return r.Part.title() }},
		{Title: "CLUSTER", Value: func(r Row[Route]) string { return r.Part.Cluster }},
		{Title: "OWNER", Value: func(r Row[Route]) string { return r.Part.Owner }},
	}, list, wide)
}

// title returns the name, or the text for other connections that 'kubectl oooi routes' prints.
func (r *Route) title() string {
	switch {
	case r.NotTLS:
		return "(not TLS)"
	case r.Name == "":
		return "(any other)"
	default:
		return r.Name
	}
}
