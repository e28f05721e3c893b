package model

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// rolePorts are the ports on which the names of a role are routed in addition to the published port: clients
// use the published port or the service's usual one.
var rolePorts = map[Role][]int32{
	RoleAPI:          {portAPI, portHTTPS},
	RoleOAuth:        {portAPI, portHTTPS},
	RoleIgnition:     {portHTTPS},
	RoleKonnectivity: {portHTTPS, portKonnectivity},
	RoleMetricsProxy: {portHTTPS},
}

// inClusterNames are the names of the API server that clients in the hosted cluster send as SNI.
var inClusterNames = []string{
	"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	"openshift", "openshift.default", "openshift.default.svc", "openshift.default.svc.cluster.local",
}

// defaultHealthCheck is the health check of upstreams of an Infra. Endpoints that disappear without closing
// their connections get no more connections, and open ones are closed, after UnhealthyAfter probes.
var defaultHealthCheck = HealthCheck{Interval: 5 * time.Second, Timeout: 2 * time.Second, UnhealthyAfter: 2, HealthyAfter: 1}

// addCluster adds the routes of the hosted cluster that an Infra serves.
func (p *proxyBuilder) addCluster(infra *Infra) {
	c := infra.Cluster
	namespace := c.ControlPlaneNamespace
	if named := infra.proxy.ControlPlaneNamespace; named != "" {
		namespace = named
	}
	upstreams := map[Role]string{} // upstream names
	upstreamOf := func(role Role) string {
		if upstreams[role] == "" {
			backend := role.Backend()
			if role == RoleAPI && infra.apiService != "" {
				backend.Service = infra.apiService
			}
			upstreams[role] = p.serviceUpstream(infra, namespace, backend.Service, strconv.Itoa(int(backend.Port)))
		}
		return upstreams[role]
	}

	api := upstreamOf(RoleAPI)
	for _, port := range []int32{portAPI, portHTTPS} {
		p.listener(port).api = api
	}
	addRoute := func(port int32, host string, role Role, source string) {
		l := p.listener(port)
		if role == RoleAPI {
			l.api = api
		} else {
			l.defaults = append(l.defaults, upstreamOf(role))
		}
		p.route(port, Route{Host: host, Upstream: upstreamOf(role), Owner: c.Ref, Source: source})
	}
	// Published ports take precedence. A name with a single role also has it on that role's usual ports.
	for _, h := range c.Hostnames {
		for _, e := range h.Endpoints {
			if user := podPorts[e.Port]; user != "" {
				p.found.add(c.Ref, ReasonNameConflict, "%s: port %d is used in the proxy's own pod by %s: %s is not routed on it; publish another port",
					e.Source, e.Port, user, h.Name)
			} else if isPort(e.Port) {
				addRoute(e.Port, h.Name, e.Role, e.Source)
			} else if !hasPort(h, e.Role) {
				p.found.add(c.Ref, ReasonServiceNotFound, "%s: Service %s/%s lacks a node port for port %d; %s is not routed to it yet",
					e.Source, c.ControlPlaneNamespace, e.Role.Backend().Service, e.Role.Backend().Port, h.Name)
			}
		}
	}
	for _, h := range c.Hostnames {
		role, one := onlyRole(h)
		if !one {
			continue
		}
		for _, port := range rolePorts[role] {
			if _, taken := p.listener(port).routes[h.Name]; !taken {
				addRoute(port, h.Name, role, h.Endpoints[0].Source)
			}
		}
	}
	for _, l := range p.listeners {
		if l.api != "" {
			for _, name := range inClusterNames {
				l.routes[name] = Route{Host: name, Upstream: api, Owner: c.Ref, Source: conventional}
			}
		}
	}
	p.addRoutes(infra, namespace)
	p.addApps(infra)
}

// hasPort reports whether any port is known on which a name has a role.
func hasPort(h Hostname, role Role) bool {
	return slices.ContainsFunc(h.Endpoints, func(e Endpoint) bool { return e.Role == role && isPort(e.Port) })
}

// onlyRole returns the role of a name, and false if it has several.
func onlyRole(h Hostname) (Role, bool) {
	for _, e := range h.Endpoints[1:] {
		if e.Role != h.Endpoints[0].Role {
			return "", false
		}
	}
	return h.Endpoints[0].Role, true
}

// addRoutes adds the hosts of other Routes of the control plane. Without their own filter chain they would be
// routed to the API server.
func (p *proxyBuilder) addRoutes(infra *Infra, namespace string) {
	for _, r := range p.routes[namespace] {
		if _, known := roleByService[r.Spec.To.Name]; known || r.Spec.WildcardPolicy == "Subdomain" {
			continue
		}
		ref := Ref{Kind: "Route", Namespace: r.Namespace, Name: r.Name}
		for _, host := range r.Hosts() {
			source := "spec.host"
			if host != r.Spec.Host {
				source = "status.ingress"
			}
			if name, ok := publishable(ref, host, source, &p.found); ok {
				up := p.serviceUpstream(infra, namespace, r.Spec.To.Name, routePort(r))
				p.route(portHTTPS, Route{Host: name, Upstream: up, Owner: ref, Source: source})
			}
		}
	}
}

// routePort returns the Service port of a Route by number or name: the one in the Route, else 443.
func routePort(r *objects.Route) string {
	if r.Spec.Port != nil {
		return r.Spec.Port.TargetPort.String()
	}
	return strconv.Itoa(portHTTPS)
}

// addApps adds the routes of the cluster's apps.
func (p *proxyBuilder) addApps(infra *Infra) {
	c := infra.Cluster
	if c.Apps == nil || infra.apps == nil {
		return
	}
	ports := infra.apps.EffectivePorts()
	if !isPort(ports.HTTP) || !isPort(ports.HTTPS) {
		p.found.add(infra.Ref, ReasonInvalidAddress, "spec.appsIngress.ports: http %d and https %d must be from 1 to 65535: apps are not routed",
			ports.HTTP, ports.HTTPS)
		return
	}
	taken := false
	for _, port := range []struct {
		field  string
		number int32
	}{{"http", ports.HTTP}, {"https", ports.HTTPS}} {
		if user := podPorts[port.number]; user != "" {
			p.found.add(infra.Ref, ReasonNameConflict,
				"spec.appsIngress.ports.%s: port %d is used in the proxy's own pod by %s: apps are not routed; use another port", port.field, port.number, user)
			taken = true
		}
	}
	if taken {
		return
	}
	if l := p.listeners[ports.HTTP]; l != nil {
		p.found.add(infra.Ref, ReasonNameConflict,
			"spec.appsIngress.ports.http: port %d is already used for TLS: apps are not served over HTTP; use another port", ports.HTTP)
		ports.HTTP = 0
	}
	hosts := slices.Clone(c.AppsNames)
	for _, domain := range c.AppsDomains {
		hosts = append(hosts, "*."+domain)
	}
	https := p.addressUpstream(infra, "apps-https", c.Apps.Addresses, ports.HTTPS)
	for _, host := range hosts {
		if _, taken := p.listener(ports.HTTPS).routes[host]; !taken { // a control-plane name takes precedence
			p.route(ports.HTTPS, Route{Host: host, Upstream: https, Owner: c.Ref, Source: "appsIngress"})
		}
	}
	if ports.HTTP == 0 || c.Apps.Withdrawn { // another host may have a withdrawn address; on the HTTPS port TLS detects that
		return
	}
	http := p.addressUpstream(infra, "apps-http", c.Apps.Addresses, ports.HTTP)
	p.listener(ports.HTTP).http = true
	for _, host := range hosts {
		p.route(ports.HTTP, Route{Host: host, Upstream: http, Owner: c.Ref, Source: "appsIngress"})
	}
}

// newUpstream returns an upstream with the connection settings of the Infra's proxy.
func newUpstream(infra *Infra, name string) *Upstream {
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

// serviceUpstream returns the name of the upstream for a Service port, and adds the upstream if it does not
// exist.
func (p *proxyBuilder) serviceUpstream(infra *Infra, namespace, service, port string) string {
	name := strings.Join([]string{namespace, service, port}, "/")
	if p.upstreams[name] == nil {
		u := newUpstream(infra, name)
		u.Service, u.PortName, u.Missing = p.services.port(namespace, service, port, corev1.ProtocolTCP)
		p.upstreams[name] = u
	}
	return name
}

// addressUpstream adds an upstream for addresses on a port, and returns its name.
func (p *proxyBuilder) addressUpstream(infra *Infra, what string, addresses []netip.Addr, port int32) string {
	u := newUpstream(infra, "infra/"+infra.Key()+"/"+what)
	u.FromVLAN, u.ProxyProtocol = true, proxyProtocol(infra.apps.ProxyProtocol)
	for _, address := range addresses {
		u.Addresses = append(u.Addresses, netip.AddrPortFrom(address, uint16(port))) //nolint:gosec // checked by isPort
	}
	if len(addresses) == 0 {
		u.Missing = "the apps address is not assigned yet"
	}
	p.upstreams[u.Name] = u
	return u.Name
}
