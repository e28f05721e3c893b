package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// managementNames are the names of the management cluster, which hosted clusters may not have.
type managementNames struct {
	routes   map[string]*objects.Route // admitted Routes outside of all control planes, by host
	rules    NameRules
	domains  []string // of the management cluster
	reserved []string // names in these domains that hosted clusters may not have, even with a Route
}

// canaryRoute is the Route by which OpenShift probes its routers. Its host cannot be customized, so it has
// the apps domain of the management cluster. It has spec.subdomain, so only its status has the host.
var canaryRoute = Ref{Kind: "Route", Namespace: "openshift-ingress-canary", Name: "canary"}

// newManagementNames computes the names of the management cluster. routes are its Routes outside of control planes.
func newManagementNames(routes []*objects.Route, rules NameRules) *managementNames {
	o := &managementNames{routes: map[string]*objects.Route{}, rules: rules, domains: slices.Clone(rules.Management)}
	for _, r := range routes {
		for admitted := range r.AdmittedHosts() {
			host, err := cleanName(admitted)
			if err != nil {
				continue
			}
			o.routes[host] = r
			if r.Namespace == canaryRoute.Namespace && r.Name == canaryRoute.Name {
				_, domain, _ := strings.Cut(host, ".")
				o.domains = append(o.domains, domain)
			}
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

// equal reports whether both permit the same names, with the same messages for others.
func (o *managementNames) equal(other *managementNames) bool {
	return slices.Equal(o.domains, other.domains) && maps.EqualFunc(o.routes, other.routes, func(a, b *objects.Route) bool { return compareNames(a, b) == 0 })
}

// filterRecords removes the records of Infras with names that are not allowed. The management cluster's own names are only
// removed from the pods' view: on a VLAN, the author of the Infra may choose what they resolve to.
func (b *builder) filterRecords() {
	for _, i := range b.infras {
		s := nameFilter{managementNames: b.management, draft: &draft{Cluster: i.Cluster}}
		if i.Cluster == nil {
			s.Cluster = &Cluster{}
		}
		s.ownRoutes = b.routes[s.ControlPlaneNamespace]
		var kept []staticRecord
		for _, r := range i.records {
			name := strings.TrimPrefix(r.Name, "*.")
			why := s.allowedFault(name)
			if why == "" && slices.Contains(r.views, v1alpha1.DNSViewPod) {
				if why = s.hostFault(name); why == "" && name != r.Name {
					why = s.domainFault(name)
				}
			}
			if why != "" {
				b.found.add(i.Ref, ReasonRecordConflict, "%s: %s %s is not served: %s", recordsField, r.Name, r.Type, why)
				continue
			}
			kept = append(kept, r)
		}
		i.records = kept
	}
}

// nameFilter removes the names of one cluster that it may not have.
type nameFilter struct {
	*managementNames
	*draft
	ownRoutes []*objects.Route // of the control plane
	found     *problems
}

func (s *nameFilter) apply() {
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
	derived := func(apps string) bool { // removed with its cluster domain, without a separate problem
		return slices.ContainsFunc(lostDomains, func(domain string) bool { return apps == "apps."+domain })
	}
	apps := slices.DeleteFunc(slices.Clone(s.AppsDomains), derived)
	s.Domains = domains
	apps, lostApps := keep(apps, "apps domain", s.appsFault)
	s.AppsNames, _ = keep(slices.DeleteFunc(slices.Clone(s.AppsNames), func(name string) bool {
		_, domain, _ := strings.Cut(name, ".")
		return slices.Contains(lostDomains, domain)
	}), "apps name", s.hostFault)
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

// domainFault returns why the cluster may not have all names of a domain; "" if it may.
func (s *nameFilter) domainFault(domain string) string {
	if why := s.allowedFault(domain); why != "" {
		return why
	}
	for _, name := range slices.Concat(s.domains, s.reserved) {
		if within(name, domain) {
			return "it contains " + name + ", which belongs to the management cluster; choose another domain"
		}
	}
	return s.routeFault(domain)
}

// appsFault returns why the cluster may not have an apps domain; "" if it may. An apps domain may only be in
// a domain of the management cluster if the cluster's own domain is.
func (s *nameFilter) appsFault(domain string) string {
	if why := s.domainFault(domain); why != "" || s.owns(domain) {
		return why
	}
	for _, name := range s.domains {
		if within(domain, name) {
			return "it lies in " + name + ", a domain of the management cluster; choose one outside of it, or below the hosted cluster's own domain"
		}
	}
	return ""
}

// hostFault returns why the cluster may not have a name; "" if it may.
func (s *nameFilter) hostFault(name string) string {
	if why := s.allowedFault(name); why != "" {
		return why
	}
	if slices.Contains(s.reserved, name) {
		return "it belongs to the management cluster; choose another name"
	}
	if s.owns(name) {
		return ""
	}
	if why := s.routeFault(name); why != "" { // several routers can admit Routes with the same host
		return why
	}
	if s.hasAdmittedRoute(name) {
		return ""
	}
	for _, domain := range s.domains {
		if within(name, domain) {
			return fmt.Sprintf("it lies in %s, a domain of the management cluster, and no admitted Route in namespace %s has this host; choose a name outside "+
				"of that domain, or publish it with a Route", domain, s.ControlPlaneNamespace)
		}
	}
	return ""
}

// allowedFault returns a fault if a name is in none of the allowed domains.
func (s *nameFilter) allowedFault(name string) string {
	if len(s.rules.Allowed) == 0 || slices.ContainsFunc(s.rules.Allowed, func(domain string) bool { return within(name, domain) }) {
		return ""
	}
	return "it lies in none of the allowed domains " + strings.Join(s.rules.Allowed, ", ")
}

// routeFault returns a fault if a name is the host of an admitted Route outside of all control planes.
func (s *nameFilter) routeFault(name string) string {
	if r := s.routes[name]; r != nil {
		return "it is the host of Route " + r.Namespace + "/" + r.Name + "; choose another name"
	}
	return ""
}

// hyperShiftRouter is the routerName with which HyperShift admits all Routes of a control plane whose API server is
// published by a Route with a hostname. It does not compare their hosts with Routes in other namespaces. Source:
// hypershift, control-plane-operator/controllers/hostedcontrolplane/ingress/router.go.
const hyperShiftRouter = "router"

// hasAdmittedRoute reports whether a router of the management cluster serves the name by a Route of the control plane.
func (s *nameFilter) hasAdmittedRoute(name string) bool {
	for _, r := range s.ownRoutes {
		for _, i := range r.Status.Ingress {
			if host, err := cleanName(i.Host); err == nil && host == name && i.RouterName != hyperShiftRouter && i.IsAdmitted() {
				return true
			}
		}
	}
	return false
}

// removeNames removes the hostnames for which refused returns true.
func (d *draft) removeNames(refused func(name string, endpoints []Endpoint) bool) {
	if d.names == nil {
		d.Hostnames = slices.DeleteFunc(slices.Clone(d.Hostnames), func(h Hostname) bool { return refused(h.Name, h.Endpoints) })
	}
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		if refused(name, d.names[name]) {
			delete(d.names, name)
		}
	}
}
