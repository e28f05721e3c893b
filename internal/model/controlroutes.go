package model

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// listened are the ports beside the published one on which a role's names are routed:
// clients dial the port that they were told, or the one that the service has everywhere.
var listened = map[Role][]int32{
	RoleAPI:          {portAPI, portHTTPS},
	RoleOAuth:        {portAPI, portHTTPS},
	RoleIgnition:     {portHTTPS},
	RoleKonnectivity: {portHTTPS, portKonnectivity},
	RoleMetricsProxy: {portHTTPS},
}

// inCluster are the names by which clients inside of the hosted cluster ask for the
// API server, which is what the proxy is on their way to.
var inCluster = []string{
	"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	"openshift", "openshift.default", "openshift.default.svc", "openshift.default.svc.cluster.local",
}

// The health check of what an Infra's proxy connects to. Endpoints that are gone
// without a word are left, and their sessions closed, after UnhealthyAfter probes.
var defaultHealthCheck = HealthCheck{Interval: 5 * time.Second, Timeout: 2 * time.Second, UnhealthyAfter: 2, HealthyAfter: 1}

// addCluster adds the routes of the hosted cluster that an Infra serves.
func (p *proxyBuilder) addCluster(infra *Infra) {
	c := infra.Cluster
	namespace := c.ControlPlaneNamespace
	if named := infra.proxy.ControlPlaneNamespace; named != "" {
		namespace = named
	}
	roles := map[Role]string{} // the upstream of each role that there is
	to := func(role Role) string {
		if roles[role] == "" {
			backend := role.Backend()
			if role == RoleAPI && infra.apiService != "" {
				backend.Service = infra.apiService
			}
			roles[role] = p.serviceUpstream(infra, namespace, backend.Service, strconv.Itoa(int(backend.Port)))
		}
		return roles[role]
	}

	api := to(RoleAPI)
	for _, port := range []int32{portAPI, portHTTPS} {
		p.listener(port).api = api
	}
	lead := func(port int32, host string, role Role, source string) {
		l := p.listener(port)
		if role == RoleAPI {
			l.api = api
		} else {
			l.lone = append(l.lone, to(role))
		}
		p.route(port, Route{Host: host, Upstream: to(role), Owner: c.Ref, Source: source})
	}
	// What is published comes first; a name with one role has that on its usual ports, too.
	for _, h := range c.Hostnames {
		for _, e := range h.Endpoints {
			if isPort(e.Port) {
				lead(e.Port, h.Name, e.Role, e.Source)
			} else if !hasPort(h, e.Role) {
				p.found.add(c.Ref, ReasonServiceNotFound, "%s: Service %s/%s has no node port for port %d yet: %s is not routed to it",
					e.Source, c.ControlPlaneNamespace, e.Role.Backend().Service, e.Role.Backend().Port, h.Name)
			}
		}
	}
	for _, h := range c.Hostnames {
		role, one := onlyRole(h)
		if !one {
			continue
		}
		for _, port := range listened[role] {
			if _, taken := p.listener(port).routes[h.Name]; !taken {
				lead(port, h.Name, role, h.Endpoints[0].Source)
			}
		}
	}
	for _, l := range p.listeners {
		if l.api != "" {
			for _, name := range inCluster {
				l.routes[name] = Route{Host: name, Upstream: api, Owner: c.Ref, Source: conventional}
			}
		}
	}
	p.addRoutes(infra, namespace)
	p.addApps(infra)
}

func isPort(port int32) bool { return port > 0 && port <= math.MaxUint16 }

// hasPort reports whether the port is known on which a name leads to a role.
func hasPort(h Hostname, role Role) bool {
	return slices.ContainsFunc(h.Endpoints, func(e Endpoint) bool { return e.Role == role && isPort(e.Port) })
}

// onlyRole returns the role of a name that has just one.
func onlyRole(h Hostname) (Role, bool) {
	for _, e := range h.Endpoints[1:] {
		if e.Role != h.Endpoints[0].Role {
			return "", false
		}
	}
	return h.Endpoints[0].Role, true
}

// addRoutes adds what other Routes of the control plane publish. Without a chain of
// their own their names would fall to the API server.
func (p *proxyBuilder) addRoutes(infra *Infra, namespace string) {
	for _, r := range p.routes[namespace] {
		if _, known := routed[r.Spec.To.Name]; known || r.Spec.WildcardPolicy == "Subdomain" || r.Spec.Host == "" {
			continue
		}
		ref := Ref{Kind: "Route", Namespace: r.Namespace, Name: r.Name}
		name, ok := publishable(ref, r.Spec.Host, "spec.host", &p.found)
		if !ok {
			continue
		}
		up := p.serviceUpstream(infra, namespace, r.Spec.To.Name, routePort(r))
		p.route(portHTTPS, Route{Host: name, Upstream: up, Owner: ref, Source: "spec.host"})
	}
}

// routePort is the Service's port that a Route leads to: the one that it names, else
// the one for TLS.
func routePort(r *objects.Route) string {
	if r.Spec.Port != nil {
		return r.Spec.Port.TargetPort.String()
	}
	return strconv.Itoa(portHTTPS)
}

// addApps adds the routes of the cluster's applications.
func (p *proxyBuilder) addApps(infra *Infra) {
	c := infra.Cluster
	if c.Apps == nil || infra.apps == nil {
		return
	}
	ports := infra.apps.EffectivePorts()
	if !isPort(ports.HTTP) || !isPort(ports.HTTPS) {
		p.found.add(infra.Ref, ReasonInvalidAddress, "spec.appsIngress.ports: %d and %d are to be ports", ports.HTTP, ports.HTTPS)
		return
	}
	taken := false
	for _, port := range []struct {
		field  string
		number int32
	}{{"http", ports.HTTP}, {"https", ports.HTTPS}} {
		if user := podPorts[port.number]; user != "" {
			p.found.add(infra.Ref, ReasonNameConflict, "spec.appsIngress.ports.%s: port %d is used in the proxy's own pod by %s", port.field, port.number, user)
			taken = true
		}
	}
	if taken {
		return
	}
	if l := p.listeners[ports.HTTP]; l != nil {
		p.found.add(infra.Ref, ReasonNameConflict, "spec.appsIngress.ports.http: port %d carries TLS already", ports.HTTP)
		ports.HTTP = 0
	}
	hosts := slices.Clone(c.AppsNames)
	for _, domain := range c.AppsDomains {
		hosts = append(hosts, "*."+domain)
	}
	https := p.addressUpstream(infra, "apps-https", c.Apps.Addresses, ports.HTTPS)
	for _, host := range hosts {
		if _, taken := p.listener(ports.HTTPS).routes[host]; !taken { // a control-plane name wins
			p.route(ports.HTTPS, Route{Host: host, Upstream: https, Owner: c.Ref, Source: "appsIngress"})
		}
	}
	if ports.HTTP == 0 || c.Apps.Withdrawn { // an address that was taken back may be another's by now
		return
	}
	http := p.addressUpstream(infra, "apps-http", c.Apps.Addresses, ports.HTTP)
	p.listener(ports.HTTP).http = true
	for _, host := range hosts {
		p.route(ports.HTTP, Route{Host: host, Upstream: http, Owner: c.Ref, Source: "appsIngress"})
	}
}

// upstreamOf is an upstream with what the Infra says of connections.
func upstreamOf(infra *Infra, name string) *Upstream {
	u := &Upstream{
		Name: name, Owner: infra.Ref, HealthCheck: &defaultHealthCheck,
		ConnectTimeout: max(time.Millisecond, infra.proxy.ConnectTimeout.Or(v1alpha1.DefaultProxyConnectTimeout)),
		IdleTimeout:    infra.proxy.IdleTimeout.Or(v1alpha1.DefaultProxyIdleTimeout),
	}
	if limit := infra.proxy.MaxConnections; limit != nil {
		u.MaxConnections = positive(*limit, 0)
	}
	return u
}

// serviceUpstream returns the name of the upstream of a Service's port.
func (p *proxyBuilder) serviceUpstream(infra *Infra, namespace, service, port string) string {
	name := strings.Join([]string{namespace, service, port}, "/")
	if p.upstreams[name] == nil {
		u := upstreamOf(infra, name)
		u.Service, u.PortName, u.Missing = p.index.port(namespace, service, port)
		p.upstreams[name] = u
	}
	return name
}

// addressUpstream returns the name of the upstream of some addresses on a port.
func (p *proxyBuilder) addressUpstream(infra *Infra, what string, addresses []netip.Addr, port int32) string {
	u := upstreamOf(infra, "infra/"+infra.Key()+"/"+what)
	u.FromVLAN = true
	for _, address := range addresses {
		u.Addresses = append(u.Addresses, netip.AddrPortFrom(address, uint16(port))) //nolint:gosec // checked to be one
	}
	if len(addresses) == 0 {
		u.Missing = "the applications have no address yet"
	}
	p.upstreams[u.Name] = u
	return u.Name
}
