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

// services are the control-plane services, with the ConfigMap of the CA that issued their certificates. The ConfigMap is empty for
// ignition, whose CA is only in a Secret. Servers respond to GET requests for path without credentials. konnectivity accepts only
// agents. Source: hypershift, ignition-server/cmd/start.go.
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

// addControlPlane adds a client's connections to each control-plane name that an object defines.
func (p *plan) addControlPlane(c Client) {
	if !p.Infra.Spec.InfraComponents.Proxy.IsEnabled() {
		p.skip("tls-", "infraComponents.proxy is not enabled")
		return
	}
	for _, service := range services {
		scenario := "tls-" + service.name
		p.skip(scenario, fmt.Sprintf("no object defines a name of %s for %s", service.role, clientNames[c]))
		add := func(address netip.AddrPort, server, name, suffix string) {
			p.add(scenario, c, fmt.Sprintf("%s at %s%s", name+service.path, address, suffix),
				probe.Step{TLS: &probe.Target{Name: server, Address: address, Path: service.path}},
				p.verified(name, service.ca, service.role), responds(service.path))
		}
		for _, t := range p.endpoints(c, service.role) {
			add(t.Address, t.Name, t.Name, "")
		}
		if service.role == model.RoleAPI && c == VLAN {
			for _, a := range p.withoutSNI() { // clients send no SNI to an address
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

// withoutSNI returns the proxy's ports whose default backend is the API server. Pods of the hosted cluster connect to them without SNI.
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

// verified returns a check of the certificates for a name, or for any name if the name is empty. If ca is the name of a CA's ConfigMap,
// this CA must have issued them, unless the HostedCluster defines a certificate of another CA for the name.
func (s *subject) verified(name, ca string, role model.Role) check {
	return func(o *probe.Outcome) string {
		switch {
		case o.TLS != nil && o.TLS.SmallPackets:
			return "the handshake succeeds only with small packets: the network loses large packets"
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
		case ca == "" || named: // the CA is unknown
			options.Roots = x509.NewCertPool()
			options.Roots.AddCert(chain[0])
		case options.Roots == nil:
			return fmt.Sprintf("ConfigMap %s/%s with the CA of %s does not exist or lacks a certificate; see the log of control-plane-operator in the same "+
				"namespace, which creates it, or omit the scenario with --skip", s.Cluster.ControlPlaneNamespace, ca, role)
		}
		if _, err := chain[0].Verify(options); err != nil {
			return fmt.Sprintf("the certificate of %s, issued by %s, is not valid: %v", chain[0].Subject, chain[0].Issuer, err)
		}
		return ""
	}
}

// responds returns a check of the response to a request for a path; it passes if the path is empty. A working server may
// require credentials.
func responds(path string) check {
	return func(o *probe.Outcome) string {
		switch {
		case o.Error != "":
			return o.Error
		case path == "":
			return ""
		case o.HTTP == nil:
			return "the client cannot send requests over TLS; its image is older than the plugin"
		case o.HTTP.Status >= http.StatusInternalServerError:
			return strings.TrimSuffix(fmt.Sprintf("GET %s: %d %s: %s", path, o.HTTP.Status, http.StatusText(o.HTTP.Status), reason(o.HTTP)), ": ")
		}
		return ""
	}
}

// reason returns the reason in a response's body: the failed checks of an API server, or the beginning of a text. It is empty for
// HTML.
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

// addApps adds a client's requests to the console and to an app that does not exist, in each apps domain.
func (p *plan) addApps(c Client) {
	p.skip("apps-", "apps lack an address for "+clientNames[c])
	for _, n := range p.apps(c) {
		for _, a := range n.Addresses {
			add := func(scenario string, port uint16, request func(*probe.Target) probe.Step, checks ...check) {
				t := &probe.Target{Name: n.Name, Address: netip.AddrPortFrom(a, port), Path: "/"}
				p.add(scenario, c, fmt.Sprintf("%s at %s", t.Name, t.Address), request(t), checks...).note = p.noApp(n.Name)
			}
			overTLS := []check{p.verified(n.Name, "", ""), p.answeredByApps(n.Name)}
			if p.isUnused(n.Name) { // the hosted cluster decides whether the router's certificate is valid for all names
				overTLS = overTLS[1:]
			}
			add("apps-https", 443, func(t *probe.Target) probe.Step { return probe.Step{TLS: t} }, overTLS...)
			add("apps-http", 80, func(t *probe.Target) probe.Step { return probe.Step{HTTP: t} }, p.answeredByApps(n.Name))
		}
	}
}

// isUnused reports whether a name begins with the test's label, so that no app has this name.
func (s *subject) isUnused(name string) bool { return strings.HasPrefix(name, s.label+".") }

// answeredByApps returns a check of the response for an app's name. It passes if the apps router responds, even if it does not know the
// app, and fails if the proxy responds that it cannot reach the router.
func (s *subject) answeredByApps(name string) check {
	return func(o *probe.Outcome) string {
		switch {
		case o.Error == "" && o.HTTP != nil && ofProxy(o.HTTP):
			return fmt.Sprintf("the proxy cannot reach the apps address: HTTP status %d, %s", o.HTTP.Status, reason(o.HTTP))
		case o.Error == "" && o.HTTP != nil && o.HTTP.Status == http.StatusServiceUnavailable && (s.isUnused(name) || ofRouter(o.HTTP)):
			return ""
		}
		return responds("/")(o)
	}
}

// noApp returns a note if the router responds that an app of every cluster is not available.
func (s *subject) noApp(name string) check {
	return func(o *probe.Outcome) string {
		if o.HTTP != nil && ofRouter(o.HTTP) && !s.isUnused(name) {
			return "the router responds that this app is not available"
		}
		return ""
	}
}

// ofRouter reports whether OpenShift's router sent the response for a host without a Route, or for a Route without endpoints.
func ofRouter(r *probe.Response) bool {
	return r.Status == http.StatusServiceUnavailable && strings.Contains(r.Body, "Application is not available")
}

// ofProxy reports whether Envoy itself sent the response, for want of a response from the backend. It compares texts, since oooi configures
// Envoy to pass backends' responses unchanged, without a header that would distinguish them.
func ofProxy(r *probe.Response) bool {
	texts := []string{"upstream connect error or disconnect/reset before headers", "no healthy upstream", "upstream request timeout"}
	return r.Status >= http.StatusInternalServerError && slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(r.Body, text) })
}
