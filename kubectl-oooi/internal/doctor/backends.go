package doctor

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/probe"
)

// backendEndpoint is an endpoint of the proxy's backends, with what it answered to each proxy replica.
type backendEndpoint struct {
	upstream *model.Upstream
	address  netip.AddrPort
	answers  []podPage[probe.Backend]
	// defined are the names that an object defines, so that the server's certificate must contain them.
	defined map[string]bool
}

// backendEndpoints returns the endpoints that xdsd has probed, sorted by upstream and address.
func (s *Site) backendEndpoints() []*backendEndpoint {
	var list []*backendEndpoint
	for _, x := range states[xdsdReport](s, xdsdState, AtInfra) {
		for _, b := range x.value.Backends {
			at := slices.IndexFunc(list, func(e *backendEndpoint) bool { return e.upstream.Name == b.Upstream && e.address == b.Address })
			if at < 0 {
				e := x.value.backendEndpoint(&b)
				if e == nil {
					continue // removed since the probe
				}
				at, list = len(list), append(list, e)
			}
			list[at].answers = append(list[at].answers, podPage[probe.Backend]{x.pod, b})
		}
	}
	slices.SortStableFunc(list, func(a, b *backendEndpoint) int {
		return cmp.Or(strings.Compare(a.upstream.Name, b.upstream.Name), a.address.Compare(b.address))
	})
	return list
}

// backendEndpoint returns the endpoint of a result without its answers, nil if no proxy has its upstream.
func (x *xdsdReport) backendEndpoint(b *probe.Backend) *backendEndpoint {
	for _, p := range x.ProxyServers {
		if p == nil {
			continue
		}
		at := slices.IndexFunc(p.Upstreams, func(u *model.Upstream) bool { return u.Name == b.Upstream })
		if at < 0 {
			continue
		}
		e := &backendEndpoint{upstream: p.Upstreams[at], address: b.Address, defined: map[string]bool{}}
		for _, l := range p.Listeners {
			for _, r := range l.Routes {
				if r.Upstream == b.Upstream && !r.Conventional() {
					e.defined[r.Host] = true
				}
			}
		}
		return e
	}
	return nil
}

// ref returns a reference to the Service of the endpoint, or to the object that defines it.
func (e *backendEndpoint) ref() model.Ref {
	if namespace, name, ok := strings.Cut(e.upstream.Service, "/"); ok {
		return model.Ref{Kind: services.Kind, Namespace: namespace, Name: name}
	}
	return e.upstream.Owner
}

// podsRemedy returns a command that shows the pod of the endpoint.
func (e *backendEndpoint) podsRemedy() string {
	return fmt.Sprintf("kubectl -n %s get pods -o wide --field-selector status.podIP=%s", e.ref().Namespace, e.address.Addr())
}

// first returns the first answer for which f is true, nil if there is none.
func (e *backendEndpoint) first(f func(*probe.Backend) bool) *podPage[probe.Backend] {
	for i := range e.answers {
		if f(&e.answers[i].value) {
			return &e.answers[i]
		}
	}
	return nil
}

// failedHandshake returns the first answer that accepted a connection and did not complete a handshake, nil if there is none.
func (e *backendEndpoint) failedHandshake() *podPage[probe.Backend] {
	return e.first(func(b *probe.Backend) bool { return b.Connected && b.Error != "" })
}

// checkEndpoints returns the findings of check, which returns one without its severity, nil for none. An endpoint fails
// if no other one of its backend is without a finding.
func (s *Site) checkEndpoints(check func(*backendEndpoint) *Finding) []Finding {
	type found struct {
		endpoint *backendEndpoint
		finding  *Finding
	}
	healthy := map[string]bool{}
	var all []found
	for _, e := range s.backendEndpoints() {
		f := check(e)
		healthy[e.upstream.Name] = healthy[e.upstream.Name] || f == nil
		all = append(all, found{e, f})
	}
	var findings []Finding
	for _, f := range all {
		if f.finding == nil {
			continue
		}
		f.finding.Severity = Fail
		if healthy[f.endpoint.upstream.Name] {
			f.finding.Severity = Warn
		}
		findings = append(findings, f.finding.of(upstreamScope(f.endpoint.upstream.Name)))
	}
	return findings
}

// checkHandshakes finds endpoints that accept TCP connections and do not complete TLS handshakes. Those that accept no
// connections are found by OOOI-PRX-012.
func checkHandshakes(s *Site) []Finding {
	small := s.needSmallPackets()
	return s.checkEndpoints(func(e *backendEndpoint) *Finding {
		a := e.failedHandshake()
		if a == nil {
			return nil
		}
		f := failed(e.ref(), "see the log of its pod: "+e.podsRemedy(), "endpoint %s accepts TCP connections, but TLS handshakes fail: %s", e.address, a.value.Error)
		switch {
		case e.upstream.FromVLAN && a.value.SmallPackets:
			f = failed(e.ref(), "compare the MTU of the VLAN on all nodes and switches", "apps address %s completes TLS handshakes in small packets only: large packets between the proxy and the router are lost, such as those with its certificate", e.address)
		case e.upstream.FromVLAN:
			f = failed(e.ref(), appsBackendRemedy, "apps address %s accepts TCP connections, but TLS handshakes fail: %s: the ingress router hangs, or a filter drops packets with data", e.address, a.value.Error)
		case a.value.SmallPackets && len(small[a.pod.Name]) > 1:
			f = failed(podRef(a.pod), fmt.Sprintf("compare the MTU of the pod network on the node of Pod %s and those of the endpoints: kubectl -n %s get pods -o wide", a.pod.Name, e.ref().Namespace),
				"TLS handshakes with %d endpoints complete in small packets only: large packets between the pod and these are lost, such as those with their certificates", len(small[a.pod.Name])).because(small[a.pod.Name]...)
			return &f
		case a.value.SmallPackets:
			f = failed(e.ref(), fmt.Sprintf("compare the MTU of the pod network on the nodes of Pod %s and of the endpoint: %s", a.pod.Name, e.podsRemedy()),
				"endpoint %s completes TLS handshakes in small packets only: large packets between the proxy and the endpoint are lost, such as those with its certificate", e.address)
		case a.value.TimedOut:
			f = failed(e.ref(), "find the pod and delete it, since a process that hangs does not recover by itself: "+e.podsRemedy(),
				"endpoint %s accepts TCP connections, but does not answer TLS handshakes, not even in small packets: its process hangs", e.address)
		}
		f = f.because(fmt.Sprintf("handshake of Pod %s for %s: %s", a.pod.Name, a.value.Name, a.value.Error))
		if other := e.first(func(b *probe.Backend) bool { return b.Error == "" && b.Name == a.value.Name }); other != nil {
			f = f.because("Pod " + other.pod.Name + " completes it")
		}
		return &f
	})
}

// needSmallPackets returns the endpoints in the pod network that complete TLS handshakes in small packets only, by the name
// of the pod that has found out.
func (s *Site) needSmallPackets() map[string][]string {
	list := map[string][]string{}
	for _, e := range s.backendEndpoints() {
		a := e.failedHandshake()
		if a != nil && a.value.SmallPackets && !e.upstream.FromVLAN {
			list[a.pod.Name] = append(list[a.pod.Name], fmt.Sprintf("%s of %s: %s", e.address, e.ref(), a.value.Error))
		}
	}
	return list
}

// checkReadiness finds hosted API servers that complete TLS handshakes, but are not ready.
func checkReadiness(s *Site) []Finding {
	return s.checkEndpoints(func(e *backendEndpoint) *Finding {
		a := e.first(func(b *probe.Backend) bool {
			other := !b.Covered && e.defined[b.Name] // another server, which OOOI-PRX-019 reports
			return !other && (b.ReadyError != "" || b.Status >= http.StatusInternalServerError)
		})
		if a == nil {
			return nil
		}
		remedy := fmt.Sprintf("see the logs of the API server and etcd: kubectl -n %s get pods", e.ref().Namespace)
		f := failed(e.ref(), remedy, "the hosted API server at %s completes TLS handshakes, but returns %d %s for /readyz", e.address, a.value.Status, http.StatusText(a.value.Status)).because(a.value.Failed...)
		if a.value.ReadyError != "" {
			f = failed(e.ref(), remedy, "the hosted API server at %s completes TLS handshakes, but does not answer HTTP requests", e.address).because(a.value.ReadyError)
		}
		f = f.because("requested by Pod " + a.pod.Name)
		return &f
	})
}

// rootCA is the ConfigMap of a hosted control plane with the CA that HyperShift writes into the kubeconfigs of the hosted
// cluster's nodes and administrators, and rootCAKey its key.
const (
	rootCA    = "root-ca"
	rootCAKey = "ca.crt"
)

// hostedCA returns the CA of the hosted cluster, nil if it is not known.
func (s *Site) hostedCA() []*x509.Certificate {
	var list []*x509.Certificate
	for _, c := range all[corev1.ConfigMap](s, configMaps, AtControlPlane) {
		if c.Name != rootCA {
			continue
		}
		for block, rest := pem.Decode([]byte(c.Data[rootCAKey])); block != nil; block, rest = pem.Decode(rest) {
			if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
				list = append(list, certificate)
			}
		}
	}
	return list
}

// noRootCA returns why certificates cannot be compared with the hosted cluster's CA, empty if they can.
func noRootCA(s *Site) string {
	if why := noPods(xdsdState, AtInfra)(s); why != "" {
		return why
	}
	if len(s.hostedCA()) == 0 {
		return fmt.Sprintf("the control plane's namespace has no ConfigMap %s with the hosted cluster's CA", rootCA)
	}
	return ""
}

// checkIssuer finds hosted API servers whose certificate the CA of the hosted cluster has not issued. It omits names for
// which the HostedCluster defines other certificates.
func checkIssuer(s *Site) []Finding {
	authority, ours := x509.NewCertPool(), s.hostedCA()
	var expected []string
	for _, certificate := range ours {
		authority.AddCert(certificate)
		expected = append(expected, fmt.Sprintf("expected: issued by %s, SHA-256 fingerprint %s, of ConfigMap %s/%s", certificate.Subject, fingerprint(certificate), s.Cluster.ControlPlaneNamespace, rootCA))
	}
	return s.checkEndpoints(func(e *backendEndpoint) *Finding {
		for _, a := range e.answers {
			var chain []*x509.Certificate
			for _, data := range a.value.Chain {
				if certificate, err := x509.ParseCertificate(data); err == nil {
					chain = append(chain, certificate)
				}
			}
			if len(chain) == 0 || s.HasNamedCertificate(a.value.Name) {
				continue
			}
			intermediates := x509.NewCertPool()
			for _, certificate := range chain[1:] {
				intermediates.AddCert(certificate)
			}
			_, err := chain[0].Verify(x509.VerifyOptions{Roots: authority, Intermediates: intermediates, CurrentTime: s.facts.Taken, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			if err == nil {
				continue
			}
			f := failed(e.ref(), "find what answers at this address, such as another server or a device that intercepts TLS; if the CA was renewed, restart the API server: "+e.podsRemedy(),
				"the hosted API server at %s presents a certificate that the CA of the hosted cluster did not issue: VMs and clients with the hosted cluster's kubeconfig reject it", e.address).
				because(fmt.Sprintf("presented for %s: %s, issued by %s, SHA-256 fingerprint %s", a.value.Name, chain[0].Subject, chain[0].Issuer, fingerprint(chain[0]))).
				because(expected...).
				because("verification: "+err.Error(), "handshake of Pod "+a.pod.Name)
			return &f
		}
		return nil
	})
}

// fingerprint returns the SHA-256 fingerprint of a certificate as 'openssl x509 -fingerprint' prints it.
func fingerprint(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.Raw)
	return strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":")
}

// HasNamedCertificate reports whether the HostedCluster defines a certificate of another CA for a name of the API server.
// It assumes so if one has no names: it is for those that it contains, which are in a Secret.
func (s *Site) HasNamedCertificate(name string) bool {
	u := s.hostedObject()
	if u == nil {
		return false
	}
	named, _, _ := unstructured.NestedSlice(u.Object, "spec", "configuration", "apiServer", "servingCerts", "namedCertificates")
	return slices.ContainsFunc(named, func(one any) bool {
		certificate, _ := one.(map[string]any)
		names, _, _ := unstructured.NestedStringSlice(certificate, "names")
		return len(names) == 0 || slices.ContainsFunc(names, func(pattern string) bool { return covers(pattern, name) })
	})
}

// checkBackendCertificates finds endpoints whose certificate does not contain a name that an object defines, has expired
// or expires soon.
func checkBackendCertificates(s *Site) []Finding {
	var findings []Finding
	for _, e := range s.backendEndpoints() {
		remedy := "HyperShift renews certificates of the control plane: see " + fmt.Sprintf("'kubectl -n %s get pods'; restart the pod if its Secret has a newer one", e.ref().Namespace)
		if e.upstream.FromVLAN {
			remedy = "renew the default certificate of the ingress controller in the hosted cluster"
		}
		if a := e.first(func(b *probe.Backend) bool { return b.Error == "" && !b.Covered && e.defined[b.Name] }); a != nil {
			f := failed(e.ref(), "check spec.configuration.apiServer.servingCerts of the HostedCluster and the Service's selector: clients that verify the certificate fail",
				"the certificate of endpoint %s is not valid for %s", e.address, a.value.Name).because(certificateEvidence(&a.value.Handshake)...)
			conflicts := s.nameConflicts()
			if at := slices.IndexFunc(conflicts, func(c nameConflict) bool { return c.name == a.value.Name }); at >= 0 { // the name is routed to the wrong server
				f.Remedy = s.conflictRemedy(conflicts[at])
				f = f.because(conflicts[at].sources...)
			}
			own, others := s.slicesOf(e)
			for _, slice := range own {
				f = f.because(fmt.Sprintf("EndpointSlice %s/%s leads to the endpoint", slice.Namespace, slice.Name))
			}
			if len(others) > 0 && len(own) > 0 {
				f.Remedy = fmt.Sprintf("find out why the EndpointSlice has an endpoint of another Service, and correct or delete it: kubectl -n %s get endpointslice %s -o yaml --show-managed-fields", own[0].Namespace, own[0].Name)
				f = f.because("the endpoint belongs to Service " + strings.Join(others, ", "))
			}
			findings = append(findings, f.of(upstreamScope(e.upstream.Name)))
			continue
		}
		for i := range e.answers {
			h := &e.answers[i].value.Handshake
			if f := s.certificateTimes(h, e.ref(), remedy, "endpoint "+e.address.String()); f != nil {
				findings = append(findings, f.of(upstreamScope(e.upstream.Name)))
				break
			}
		}
	}
	return findings
}

// slicesOf returns the EndpointSlices of the endpoint's Service that contain the endpoint, and the other Services,
// "namespace/name", of which it is an endpoint as well.
func (s *Site) slicesOf(e *backendEndpoint) (own []*objects.EndpointSlice, others []string) {
	for _, slice := range s.endpointSlicesIn(AtControlPlane, AtBackends) {
		if !slices.ContainsFunc(slice.Endpoints, func(one objects.Endpoint) bool { return slices.Contains(one.Addresses, e.address.Addr().String()) }) {
			continue
		}
		if !slices.ContainsFunc(slice.Ports, func(p objects.EndpointPort) bool { return p.Port != nil && *p.Port == int32(e.address.Port()) }) {
			continue
		}
		if service := slice.Service(); service == e.upstream.Service {
			own = append(own, slice)
		} else if service != "" && !slices.Contains(others, service) {
			others = append(others, service)
		}
	}
	return own, others
}

func certificateEvidence(h *probe.Handshake) []string {
	return []string{"the certificate is valid for " + strings.Join(h.Names, ", "), "issued by " + h.Issuer}
}

// expiryWarning is how long before its expiry a certificate is reported.
const expiryWarning = 7 * 24 * time.Hour

// certificateTimes returns a finding if the certificate of a handshake has expired, expires soon or is not valid yet.
func (s *Site) certificateTimes(h *probe.Handshake, ref model.Ref, remedy, of string) *Finding {
	var f Finding
	switch now := s.facts.Taken; {
	case h.NotAfter.IsZero():
		return nil
	case now.After(h.NotAfter):
		f = failed(ref, remedy, "the certificate of %s expired at %s", of, h.NotAfter.Format(time.RFC3339))
	case now.Before(h.NotBefore):
		f = failed(ref, "compare the clock of the host that runs doctor with that of the certificate's issuer", "the certificate of %s is not valid before %s", of, h.NotBefore.Format(time.RFC3339))
	case now.Add(expiryWarning).After(h.NotAfter):
		f = warned(ref, remedy, "the certificate of %s expires at %s", of, h.NotAfter.Format(time.RFC3339))
	default:
		return nil
	}
	f = f.because(certificateEvidence(h)...)
	return &f
}
