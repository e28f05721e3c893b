package model

import (
	"cmp"
	"net/url"

	"github.com/densityops/oooi/internal/objects"
)

// publishedServices has the role of each service in HostedCluster.spec.services and the port of its
// LoadBalancer. Nodes do not connect to the services that are not listed (OIDC, OVNSbDb).
var publishedServices = map[string]struct {
	role             Role
	loadBalancerPort int32
	source           string
}{
	"APIServer":    {RoleAPI, portAPI, "spec.services[APIServer]"},
	"OAuthServer":  {RoleOAuth, portAPI, "spec.services[OAuthServer]"},
	"Ignition":     {RoleIgnition, portHTTPS, "spec.services[Ignition]"},
	"Konnectivity": {RoleKonnectivity, portKonnectivity, "spec.services[Konnectivity]"},
}

// roleByService has the role of a Route in the control plane's namespace, by the Service that it points to.
var roleByService = map[string]Role{
	"kube-apiserver":        RoleAPI,
	"oauth-openshift":       RoleOAuth,
	"ignition-server-proxy": RoleIgnition,
	"konnectivity-server":   RoleKonnectivity,
	"metrics-proxy":         RoleMetricsProxy,
}

// nodePorts are the node ports that Kubernetes allocated to the Services of one control plane, by role.
// HyperShift publishes them even if spec.services does not set a port.
type nodePorts map[Role]int32

// nodePortsOf returns the node ports of the Services in a control plane's namespace.
func nodePortsOf(services []*objects.Service) nodePorts {
	ports := nodePorts{}
	for _, s := range services {
		role, ok := roleByService[s.Name]
		if !ok {
			continue
		}
		for _, p := range s.Spec.Ports {
			if p.Port == role.Backend().Port && p.NodePort != 0 {
				ports[role] = p.NodePort
			}
		}
	}
	return ports
}

// addPublished adds the control-plane names in spec.services, Routes and the HostedCluster's status. Without an OAuth
// server it omits that server's names, which spec.services usually has.
func (d *draft) addPublished(hc *objects.HostedCluster, routes []*objects.Route, allocated nodePorts, found *problems) {
	add := func(host string, role Role, port int32, source string) {
		if host == "" || role == RoleOAuth && !d.oauth {
			return
		}
		if name, ok := publishable(d.Ref, host, source, found); ok {
			d.addName(name, role, port, source)
		}
	}
	for _, s := range hc.Spec.Services {
		if p, ok := publishedServices[s.Service]; ok {
			host, port := strategyEndpoint(s.Strategy, p.loadBalancerPort, allocated[p.role])
			add(host, p.role, port, p.source)
		}
	}
	for _, r := range routes {
		role, ok := roleByService[r.Spec.To.Name]
		if !ok || r.Spec.WildcardPolicy == "Subdomain" {
			continue
		}
		for _, host := range r.Hosts() {
			add(host, role, portHTTPS, "Route "+r.Name)
		}
	}
	add(hc.Status.ControlPlaneEndpoint.Host, RoleAPI, d.apiPort, "status.controlPlaneEndpoint")
	host, port := splitHost(hc.Status.IgnitionEndpoint)
	add(host, RoleIgnition, cmp.Or(port, portHTTPS), "status.ignitionEndpoint")
	if u, err := url.Parse(hc.Status.OAuthCallbackURLTemplate); err == nil {
		host, port := splitHost(u.Host)
		add(host, RoleOAuth, cmp.Or(port, portHTTPS), "status.oauthCallbackURLTemplate")
	}
	add(hc.Spec.KubeAPIServerDNSName, RoleAPI, d.apiPort, "spec.kubeAPIServerDNSName")
}

// apiPort returns the port that clients of the API server connect to: the port in the HostedCluster's status, else in
// the publishing strategy.
func apiPort(hc *objects.HostedCluster, allocated nodePorts) int32 {
	if port := hc.Status.ControlPlaneEndpoint.Port; port != 0 {
		return port
	}
	for _, s := range hc.Spec.Services {
		if s.Service == "APIServer" {
			_, port := strategyEndpoint(s.Strategy, portAPI, allocated[RoleAPI])
			return port
		}
	}
	return portAPI
}

// strategyEndpoint returns the hostname of a publishing strategy, "" if it has none, and the port that
// clients connect to. For a NodePort this is the allocated port, else the configured one; 0 if neither is
// known.
func strategyEndpoint(s objects.PublishingStrategy, loadBalancerPort, allocated int32) (host string, port int32) {
	switch {
	case s.Type == "LoadBalancer":
		if s.LoadBalancer != nil {
			host = s.LoadBalancer.Hostname
		}
		return host, loadBalancerPort
	case s.Type == "Route":
		if s.Route != nil {
			host = s.Route.Hostname
		}
		return host, portHTTPS
	case s.Type == "NodePort" && s.NodePort != nil:
		return s.NodePort.Address, cmp.Or(allocated, s.NodePort.Port)
	default:
		return "", 0
	}
}

// addConventional adds the names that a stand-alone OpenShift has under its cluster domain. HyperShift itself
// does not generate them.
func (d *draft) addConventional(domain string) {
	for _, n := range []struct {
		label string
		role  Role
		port  int32
	}{
		{"api", RoleAPI, d.apiPort},
		{"api-int", RoleAPI, d.apiPort},
		{"ignition", RoleIgnition, portHTTPS},
		{"ignition-server", RoleIgnition, portHTTPS},
		{"konnectivity", RoleKonnectivity, portHTTPS},
		{"konnectivity-server", RoleKonnectivity, portHTTPS},
	} {
		d.addName(n.label+"."+domain, n.role, n.port, conventional)
	}
	if d.oauth {
		d.addName("oauth."+domain, RoleOAuth, portHTTPS, conventional)
	}
}
