package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/objects"
)

// NameRules limit which names are published for hosted clusters, whose authors type hostnames
// as they like.
type NameRules struct {
	// Management are domains of the management cluster, such as "apps.mgmt.example.com" and
	// "mgmt.example.com", beside those that its Routes tell.
	Management []string
	// Allowed are the domains that names may lie in; empty for all.
	Allowed []string
}

// routeOwners says which hosts of Routes are the management cluster's own.
type routeOwners struct {
	planes   []string                  // the control planes' namespaces, sorted
	foreign  map[string]*objects.Route // admitted Routes outside of all control planes, by host
	rules    NameRules                 // that the rest is made of
	domains  []string                  // of the management cluster
	reserved []string                  // names in them that no Route may have
}

// canary is the Route by which OpenShift probes its routers. Its host is never customized, so
// it tells the domain of the management cluster's applications.
var canary = Ref{Kind: "Route", Namespace: "openshift-ingress-canary", Name: "canary"}

// newRouteOwners reads Routes, of all namespaces where those are watched.
func newRouteOwners(routes []*objects.Route, planes []string, rules NameRules) *routeOwners {
	o := &routeOwners{planes: planes, foreign: map[string]*objects.Route{}, rules: rules, domains: slices.Clone(rules.Management)}
	for _, r := range routes {
		if _, plane := slices.BinarySearch(planes, r.Namespace); plane || !r.IsAdmitted() {
			continue
		}
		host, err := cleanName(r.Spec.Host)
		if err != nil {
			continue
		}
		o.foreign[host] = r
		if r.Namespace == canary.Namespace && r.Name == canary.Name {
			_, domain, _ := strings.Cut(host, ".")
			o.domains = append(o.domains, domain)
		}
	}
	for _, domain := range slices.Clone(o.domains) {
		if base, ok := strings.CutPrefix(domain, "apps."); ok && strings.Contains(base, ".") {
			o.domains = append(o.domains, base)
		}
	}
	slices.Sort(o.domains)
	o.domains = slices.Compact(o.domains)
	for _, domain := range o.domains {
		for _, name := range []string{"api.", "api-int.", oauthHost + ".", consoleHost + ".", oauthHost + ".apps.", consoleHost + ".apps."} {
			o.reserved = append(o.reserved, name+domain)
		}
	}
	return o
}

// screenNames removes from every cluster the names that it may not have.
func (b *builder) screenNames(routes []*objects.Route, rules NameRules) {
	planes := sortedKeys(b.byNamespace)
	last := b.last
	if last.owners == nil || !slices.Equal(last.ownedBy, routes) || !slices.Equal(last.owners.planes, planes) {
		last.ownedBy, last.owners = routes, newRouteOwners(routes, planes, rules)
	}
	if o := last.owners; len(o.foreign)+len(o.domains)+len(rules.Allowed) > 0 {
		for _, c := range b.clusters {
			s := nameScreen{routeOwners: o, draft: c, own: b.routes[c.ControlPlaneNamespace], found: &b.found}
			s.apply()
		}
	}
}

// nameScreen looks at the names of one cluster.
type nameScreen struct {
	*routeOwners
	*draft
	own   []*objects.Route // of the control plane
	found *problems
}

func (s *nameScreen) apply() {
	keep := func(names []string, what string, fault func(string) string) (kept, lost []string) {
		for _, name := range names {
			if why := fault(name); why != "" {
				s.found.add(s.Ref, ReasonNameNotAllowed, "%s %s is not published: %s", what, name, why)
				lost = append(lost, name)
				continue
			}
			kept = append(kept, name)
		}
		return kept, lost
	}
	domains, lostDomains := keep(s.Domains, "cluster domain", s.domainFault)
	derived := func(apps string) bool { // goes without a word of its own
		return slices.ContainsFunc(lostDomains, func(domain string) bool { return apps == "apps."+domain })
	}
	apps := slices.DeleteFunc(slices.Clone(s.AppsDomains), derived)
	s.Domains = domains
	apps, lostApps := keep(apps, "apps domain", s.appsFault)
	s.AppsNames = slices.DeleteFunc(slices.Clone(s.AppsNames), func(name string) bool {
		_, domain, _ := strings.Cut(name, ".")
		return slices.Contains(lostDomains, domain)
	})
	for _, domain := range s.AppsDomains {
		if derived(domain) {
			lostApps = append(lostApps, domain)
		}
	}
	s.AppsDomains = apps
	lost := slices.Concat(lostDomains, lostApps)
	s.removeNames(func(name string, endpoints []Endpoint) bool {
		_, parent, _ := strings.Cut(name, ".")
		if slices.Contains(lost, parent) && !slices.ContainsFunc(endpoints, func(e Endpoint) bool { return e.Source != conventional }) {
			return true
		}
		why := s.hostFault(name)
		if why != "" {
			s.found.add(s.Ref, ReasonNameNotAllowed, "hostname %s (%s) is not published: %s", name, endpoints[0].Source, why)
		}
		return why != ""
	})
}

// domainFault says why the cluster may not have all names of a domain; empty where it may.
func (s *nameScreen) domainFault(domain string) string {
	if why := s.outside(domain); why != "" {
		return why
	}
	for _, name := range slices.Concat(s.domains, s.reserved) {
		if within(name, domain) {
			return "it holds " + name + ", which is the management cluster's: choose a domain of the hosted cluster's own"
		}
	}
	return s.foreignFault(domain)
}

// appsFault is domainFault for an apps domain, whose wildcard may not lie among the management
// cluster's names unless the cluster's own domain does.
func (s *nameScreen) appsFault(domain string) string {
	if why := s.domainFault(domain); why != "" || s.owns(domain) {
		return why
	}
	for _, name := range s.domains {
		if within(domain, name) {
			return "it lies in " + name + ", a domain of the management cluster: choose one outside, or below the hosted cluster's own"
		}
	}
	return ""
}

// hostFault says why the cluster may not have one name; empty where it may.
func (s *nameScreen) hostFault(name string) string {
	if why := s.outside(name); why != "" {
		return why
	}
	if slices.Contains(s.reserved, name) {
		return "it is the management cluster's: choose a name of the hosted cluster's own"
	}
	if s.owns(name) || s.admits(name) {
		return ""
	}
	if why := s.foreignFault(name); why != "" {
		return why
	}
	for _, domain := range s.domains {
		if within(name, domain) {
			return fmt.Sprintf("it lies in %s, a domain of the management cluster, and no admitted Route in namespace %s has it: choose a name outside, or publish it by a Route", domain, s.ControlPlaneNamespace)
		}
	}
	return ""
}

// outside says that a name is in none of the allowed domains.
func (s *nameScreen) outside(name string) string {
	if len(s.rules.Allowed) == 0 || slices.ContainsFunc(s.rules.Allowed, func(domain string) bool { return within(name, domain) }) {
		return ""
	}
	return "it lies in none of the allowed domains " + strings.Join(s.rules.Allowed, ", ")
}

// foreignFault says that a name is the host of a Route that is no control plane's.
func (s *nameScreen) foreignFault(name string) string {
	if r := s.foreign[name]; r != nil {
		return "it is the host of Route " + r.Namespace + "/" + r.Name + ": choose another name"
	}
	return ""
}

// admits reports whether a router serves the name by a Route of the control plane.
func (s *nameScreen) admits(name string) bool {
	return slices.ContainsFunc(s.own, func(r *objects.Route) bool {
		host, err := cleanName(r.Spec.Host)
		return err == nil && host == name && r.IsAdmitted()
	})
}

// removeNames removes hostnames. A list that other snapshots share stays as it is.
func (d *draft) removeNames(refused func(name string, endpoints []Endpoint) bool) {
	if d.names != nil {
		for _, name := range sortedKeys(d.names) {
			if refused(name, d.names[name]) {
				delete(d.names, name)
			}
		}
		return
	}
	var kept []Hostname
	for i, h := range d.Hostnames {
		switch out := refused(h.Name, h.Endpoints); {
		case out && kept == nil:
			kept = append(make([]Hostname, 0, len(d.Hostnames)), d.Hostnames[:i]...)
		case !out && kept != nil:
			kept = append(kept, h)
		}
	}
	if kept != nil {
		d.Hostnames = kept
	}
}
