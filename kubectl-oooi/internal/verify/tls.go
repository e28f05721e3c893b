package verify

import (
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
)

// services are the control-plane services, with the ConfigMap of the CA that has issued their certificates; it is empty
// for ignition, whose CA is only in a Secret. The servers respond to a GET request for path without credentials; konnectivity
// accepts only agents. Source: hypershift, ignition-server/cmd/start.go.
var services = []struct {
	name    string
	role    model.Role
	ca      string
	path    string
	promise string
}{
	{"api", model.RoleAPI, rootCA, "/readyz", "of the hosted cluster's CA, and it is ready"},
	{"oauth", model.RoleOAuth, rootCA, "/healthz", "of the hosted cluster's CA, and it responds"},
	{"ignition", model.RoleIgnition, "", "/healthz", "for its name, and it responds"},
	{"konnectivity", model.RoleKonnectivity, konnectivityCA, "", "of the hosted cluster's CA"},
}

// addControlPlane adds connections of a client to each name of the control plane that an object defines.
func (p *plan) addControlPlane(c Client) {
	if !p.Infra.Spec.InfraComponents.Proxy.IsEnabled() {
		p.skip("tls-", "infraComponents.proxy is not enabled")
		return
	}
	for _, service := range services {
		scenario := "tls-" + service.name
		p.skip(scenario, fmt.Sprintf("no object defines a name of %s that %s resolve", service.role, whose[c]))
		add := func(address netip.AddrPort, server, name, suffix string) {
			p.add(scenario, c, fmt.Sprintf("%s at %s%s", name+service.path, address, suffix),
				probe.Step{TLS: &probe.Target{Name: server, Address: address, Path: service.path}},
				p.verified(name, service.ca, service.role), responds(service.path))
		}
		for _, t := range p.endpoints(c, service.role) {
			add(t.Address, t.Name, t.Name, "")
		}
		if service.role == model.RoleAPI && c == VLAN {
			for _, a := range p.withoutSNI() { // a client sends no SNI to an address
				add(a, a.Addr().String(), "", " without SNI")
			}
		}
	}
}

// endpoints returns where a client connects to a service: at each name that an object defines.
func (s *subject) endpoints(c Client, role model.Role) []probe.Target {
	var list []probe.Target
	for _, n := range s.names(c) {
		at := slices.IndexFunc(s.Cluster.Hostnames, func(h model.Hostname) bool { return h.Name == n.Name })
		if at < 0 {
			continue
		}
		for _, port := range ports(&s.Cluster.Hostnames[at], role) {
			for _, a := range n.Addresses {
				list = append(list, probe.Target{Name: n.Name, Address: netip.AddrPortFrom(a, port)})
			}
		}
	}
	return list
}

// withoutSNI returns where VMs connect to the API server without SNI, as pods of the hosted cluster do: the ports of the proxy
// whose default is the API server.
func (s *subject) withoutSNI() []netip.AddrPort {
	list := map[netip.AddrPort]bool{}
	for _, t := range s.endpoints(VLAN, model.RoleAPI) {
		for _, l := range s.listeners(s.Model) {
			if l.Default != "" && !l.Backends && slices.ContainsFunc(l.Routes, func(r model.Route) bool { return r.Host == t.Name && r.Upstream == l.Default }) {
				list[netip.AddrPortFrom(t.Address.Addr(), uint16(l.Port))] = true //nolint:gosec // a port
			}
		}
	}
	return slices.SortedFunc(maps.Keys(list), netip.AddrPort.Compare)
}

// verified returns a check of the certificates for a name, or for any name if it is empty. With the name of a CA's ConfigMap they
// must lead to that CA, unless the HostedCluster defines a certificate of another CA for the name.
func (s *subject) verified(name, ca string, role model.Role) check {
	return func(o *probe.Outcome) string {
		switch {
		case o.TLS != nil && o.TLS.SmallPackets:
			return "the handshake succeeds in small packets only: large packets are lost on the way"
		case o.Error != "" && (o.TLS == nil || len(o.TLS.Chain) == 0):
			return o.Error
		case len(o.TLS.Chain) == 0:
			return "the server presents no certificate"
		}
		var chain []*x509.Certificate
		intermediates := x509.NewCertPool()
		for _, data := range o.TLS.Chain {
			certificate, err := x509.ParseCertificate(data)
			if err != nil {
				return "the server presents an invalid certificate: " + err.Error()
			}
			if len(chain) > 0 {
				intermediates.AddCert(certificate)
			}
			chain = append(chain, certificate)
		}
		options := x509.VerifyOptions{DNSName: name, Intermediates: intermediates, CurrentTime: s.Facts.Taken}
		named := role != model.RoleKonnectivity && s.hasNamedCertificate(name)
		switch options.Roots = s.authorities[ca]; {
		case ca == "" || named: // of an unknown CA
			options.Roots = x509.NewCertPool()
			options.Roots.AddCert(chain[0])
		case options.Roots == nil:
			return fmt.Sprintf("ConfigMap %s/%s with the CA of %s does not exist or has no certificate: see the log of control-plane-operator in the same "+
				"namespace, which creates it, or omit the scenario with --skip", s.Cluster.ControlPlaneNamespace, ca, role)
		}
		if _, err := chain[0].Verify(options); err != nil {
			return fmt.Sprintf("the certificate of %s, issued by %s, is not valid: %v", chain[0].Subject, chain[0].Issuer, err)
		}
		return ""
	}
}

// responds returns a check of the response to a request for a path; it passes if the path is empty. A server that works may
// demand credentials.
func responds(path string) check {
	return func(o *probe.Outcome) string {
		switch {
		case o.Error != "":
			return o.Error
		case path == "":
			return ""
		case o.HTTP == nil:
			return "the client sends no requests over TLS; its image is older than the plugin"
		case o.HTTP.Status >= http.StatusInternalServerError:
			return strings.TrimSuffix(fmt.Sprintf("GET %s: %d %s: %s", path, o.HTTP.Status, http.StatusText(o.HTTP.Status), reason(o.HTTP)), ": ")
		}
		return ""
	}
}

// reason returns what the body of a response tells: the checks of an API server that failed, or the beginning of a text. It is
// empty for a page.
func reason(r *probe.Response) string {
	const longest = 200
	switch failed, text := r.FailedChecks(), strings.Join(strings.Fields(r.Body), " "); {
	case len(failed) > 0:
		return strings.Join(failed, ", ")
	case strings.HasPrefix(text, "<"):
		return ""
	default:
		return fmt.Sprintf("%.*s", longest, text)
	}
}

// addApps adds requests of a client to the console and to an app that does not exist, in each domain of apps.
func (p *plan) addApps(c Client) {
	p.skip("apps-", "apps have no address for "+whose[c])
	for _, n := range p.apps(c) {
		for _, a := range n.Addresses {
			add := func(scenario string, port uint16, request func(*probe.Target) probe.Step, checks ...check) {
				t := &probe.Target{Name: n.Name, Address: netip.AddrPortFrom(a, port), Path: "/"}
				p.add(scenario, c, fmt.Sprintf("%s at %s", t.Name, t.Address), request(t), checks...).note = p.noApp(n.Name)
			}
			overTLS := []check{p.verified(n.Name, "", ""), p.answeredByApps(n.Name)}
			if p.isUnused(n.Name) { // whether the router has a certificate for all names is a matter of the hosted cluster
				overTLS = overTLS[1:]
			}
			add("apps-https", 443, func(t *probe.Target) probe.Step { return probe.Step{TLS: t} }, overTLS...)
			add("apps-http", 80, func(t *probe.Target) probe.Step { return probe.Step{HTTP: t} }, p.answeredByApps(n.Name))
		}
	}
}

// isUnused reports whether a name is that of no app: it begins with the label of the test.
func (s *subject) isUnused(name string) bool { return strings.HasPrefix(name, s.label+".") }

// answeredByApps returns a check of the response for the name of an app. It passes if the router of the apps responds, also that
// it has no app of this name, and fails for a response with which the proxy says that it does not reach the router.
func (s *subject) answeredByApps(name string) check {
	return func(o *probe.Outcome) string {
		switch {
		case o.Error == "" && o.HTTP != nil && ofProxy(o.HTTP):
			return fmt.Sprintf("the proxy does not reach the apps address: HTTP status %d, %s", o.HTTP.Status, reason(o.HTTP))
		case o.Error == "" && o.HTTP != nil && o.HTTP.Status == http.StatusServiceUnavailable && (s.isUnused(name) || ofRouter(o.HTTP)):
			return ""
		}
		return responds("/")(o)
	}
}

// noApp returns a note about a response of the router that an app, which every cluster has, is not available.
func (s *subject) noApp(name string) check {
	return func(o *probe.Outcome) string {
		if o.HTTP != nil && ofRouter(o.HTTP) && !s.isUnused(name) {
			return "the router responds, but that this app is not available"
		}
		return ""
	}
}

// ofRouter reports whether a response is that of OpenShift's router for a host without a Route, or whose Route has no endpoint.
func ofRouter(r *probe.Response) bool {
	return r.Status == http.StatusServiceUnavailable && strings.Contains(r.Body, "Application is not available")
}

// ofProxy reports whether a response is of Envoy itself, because it had none of the backend. Our configuration adds no header by
// which the two could be told apart: a backend's responses pass unchanged.
func ofProxy(r *probe.Response) bool {
	texts := []string{"upstream connect error or disconnect/reset before headers", "no healthy upstream", "upstream request timeout"}
	return r.Status >= http.StatusInternalServerError && slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(r.Body, text) })
}
