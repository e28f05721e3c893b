package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

func init() {
	own := slices.Concat(in(AtInfra, infras, proxyServers, pods, networkPolicies, namespaces), in(AtSystem, pods, networkPolicies, namespaces))
	register(
		Check{
			Code: "OOOI-NET-006", Title: "NetworkPolicies admit the connections that our pods open", Needs: []string{"OOOI-INF-001"},
			Reads: slices.Concat(own, in(AtControlPlane, services, endpointSlices, namespaces), in(AtBackends, services, endpointSlices, namespaces), in(AtDefault, services, endpointSlices)),
			Run:   checkEgress,
		},
		Check{
			Code: "OOOI-NET-007", Title: "NetworkPolicies admit the connections to our pods", Needs: []string{"OOOI-INF-001"}, Reads: own,
			Run: checkIngress,
		},
	)
}

// A connection is one that a pod opens or accepts over the pod network.
type connection struct {
	// purpose is the source or destination, with its preposition: "to the API server", "from control".
	purpose  string
	severity Severity
	// targets are all addresses and ports that must be admitted, of each of which any alternative suffices.
	targets [][]policyTarget
}

// A policyTarget is a peer of a connection, and the port of the accepting side.
type policyTarget struct {
	policyPeer

	protocol corev1.Protocol
	port     int32
}

func (t policyTarget) String() string {
	if t.address.IsValid() {
		return fmt.Sprintf("%s %s", t.protocol, netip.AddrPortFrom(t.address, uint16(t.port))) //nolint:gosec // a port
	}
	return fmt.Sprintf("%s port %d", t.protocol, t.port)
}

// denyConnection returns the policies that deny a connection of a pod, and the first target that they deny; nil if it is admitted.
func (all policySet) denyConnection(pod policyPeer, direction networkingv1.PolicyType, c connection) (policySet, policyTarget) {
	for _, alternatives := range c.targets {
		var denying policySet
		for _, t := range alternatives {
			if denying = all.deny(pod, direction, t.policyPeer, t.protocol, t.port); denying == nil {
				break
			}
		}
		if denying != nil {
			return denying, alternatives[0]
		}
	}
	return nil, policyTarget{}
}

// namespacePeer returns a peer for the pods of a namespace with the given labels.
func (s *Site) namespacePeer(namespace string, pod labels.Set) policyPeer {
	p := policyPeer{namespace: namespace, pod: knownLabels{Set: pod}, space: knownLabels{Set: labels.Set{corev1.LabelMetadataName: namespace}}}
	for _, u := range s.facts.list(namespaces, namespace) { // a folder may lack the Namespace
		p.space = knownLabels{labels.Merge(u.GetLabels(), p.space.Set), true}
	}
	return p
}

// podPeer returns a pod of ours as a peer. Other labels than ours are unknown.
func (s *Site) podPeer(pod *corev1.Pod) policyPeer {
	p := s.namespacePeer(pod.Namespace, pod.Labels)
	p.address, _ = netip.ParseAddr(pod.Status.PodIP) // invalid if the pod has none
	return p
}

// policiesIn returns the NetworkPolicies of namespaces.
func (s *Site) policiesIn(places ...Where) policySet {
	var list policySet
	for _, where := range places {
		list = append(list, all[networkingv1.NetworkPolicy](s, networkPolicies, where)...)
	}
	return list
}

// podsByComponent returns the Infra's pods and those of control, by component.
func (s *Site) podsByComponent() map[string][]*corev1.Pod {
	list := map[string][]*corev1.Pod{}
	for _, c := range s.components() {
		list[c.name] = s.pods(c.name)
	}
	for _, p := range all[corev1.Pod](s, pods, AtSystem) {
		if componentOf(p) == componentControl {
			list[componentControl] = append(list[componentControl], p)
		}
	}
	return list
}

func checkEgress(s *Site) []Finding {
	opened := map[string][]connection{}
	for _, c := range []string{v1alpha1.ComponentDNS, v1alpha1.ComponentDHCP, v1alpha1.ComponentProxy, componentControl} {
		opened[c] = []connection{s.apiServer()}
	}
	opened[v1alpha1.ComponentDNS] = append(opened[v1alpha1.ComponentDNS], s.upstreamResolvers()...)
	known := s.backends()
	opened[v1alpha1.ComponentProxy] = append(opened[v1alpha1.ComponentProxy], s.proxyBackends(known)...)
	ours := s.podsByComponent()
	for _, component := range []string{v1alpha1.ComponentDNS, v1alpha1.ComponentDHCP} {
		probe := map[string]policyTarget{
			v1alpha1.ComponentDNS:  {protocol: corev1.ProtocolUDP, port: 53},
			v1alpha1.ComponentDHCP: {protocol: corev1.ProtocolTCP, port: int32(dhcpState.port)}, //nolint:gosec // a port
		}[component]
		for _, p := range ours[component] {
			probe.policyPeer = s.podPeer(p)
			opened[componentControl] = append(opened[componentControl], connection{"to Pod " + p.Name, Fail, [][]policyTarget{{probe}}})
		}
	}
	if a := s.Infra.Spec.AppsIngress; a.IsEnabled() && a.Source == v1alpha1.AppsIngressSourceHostedService && a.Dial != v1alpha1.AppsIngressDialURL {
		for _, namespace := range s.namespaces[AtControlPlane] {
			if c := s.serviceConnection(known, namespace+"/"+apiService, nil); len(c.targets) > 0 {
				opened[v1alpha1.ComponentDNS], opened[componentControl] = append(opened[v1alpha1.ComponentDNS], c), append(opened[componentControl], c)
			}
		}
	}
	return s.policyFindings(ours, networkingv1.PolicyTypeEgress, opened)
}

// checkIngress evaluates the ports that setup's own policies admit. Their sources are pods and nodes of any kind, so
// that a rule for some sources suffices; those of control are known.
func checkIngress(s *Site) []Finding {
	accepted := map[string][]connection{}
	anywhere := func(component, purpose string, severity Severity, protocol corev1.Protocol, port int32) {
		accepted[component] = append(accepted[component], connection{purpose, severity, [][]policyTarget{{{policyPeer{unknown: true}, protocol, port}}}})
	}
	control := policyTarget{s.namespacePeer(render.SystemNamespace, labels.Set{labelPartOf: partOf, v1alpha1.LabelComponent: componentControl}), corev1.ProtocolUDP, 53}
	anywhere(v1alpha1.ComponentDNS, "from the cluster's DNS and other pods", Fail, corev1.ProtocolUDP, 53)
	accepted[v1alpha1.ComponentDNS] = append(accepted[v1alpha1.ComponentDNS], connection{"from control", Fail, [][]policyTarget{{control}}})
	anywhere(v1alpha1.ComponentDNS, "from the cluster's DNS and other pods", Warn, corev1.ProtocolTCP, 53)
	control.protocol, control.port = corev1.ProtocolTCP, int32(dhcpState.port) //nolint:gosec // a port
	accepted[v1alpha1.ComponentDHCP] = append(accepted[v1alpha1.ComponentDHCP], connection{"from control", Fail, [][]policyTarget{{control}}})
	for _, p := range s.proxyModels() {
		for _, l := range p.Listeners {
			protocol := corev1.ProtocolTCP
			if l.UDP {
				protocol = corev1.ProtocolUDP
			}
			anywhere(v1alpha1.ComponentProxy, "from clients of the proxy's Service", Fail, protocol, l.Port)
		}
	}
	observed := []page{dnsMetrics, dhcpState, xdsdState, envoyMetrics, controlState}
	if len(s.servingPods(holderState, AtInfra)) > 0 {
		observed = append(observed, holderState)
	}
	for _, p := range observed {
		anywhere(p.component, "to the pages of "+p.daemon(), Warn, corev1.ProtocolTCP, int32(p.port)) //nolint:gosec // a port
	}
	return s.policyFindings(s.podsByComponent(), networkingv1.PolicyTypeIngress, accepted)
}

// policyFindings returns a finding for each component and policy that denies connections which the component needs.
// Replicas that lack the same connections share one.
func (s *Site) policyFindings(ours map[string][]*corev1.Pod, direction networkingv1.PolicyType, needed map[string][]connection) []Finding {
	policies := s.policiesIn(AtInfra, AtSystem)
	var findings []Finding
	for _, component := range []string{componentControl, v1alpha1.ComponentDHCP, v1alpha1.ComponentDNS, v1alpha1.ComponentProxy} {
		merged := map[string]int{} // index in findings
		for _, pod := range ours[component] {
			f, found := s.policyFinding(policies, pod, direction, needed[component])
			if !found {
				continue
			}
			key := f.Object.Name + strings.Join(f.Evidence, "\n")
			if at, ok := merged[key]; ok {
				findings[at] = findings[at].because("the same holds for Pod " + pod.Name)
				continue
			}
			merged[key] = len(findings)
			findings = append(findings, f.of(component))
		}
	}
	return findings
}

// policyFinding returns a finding about the policies that deny connections of a pod; found is false if all are admitted.
func (s *Site) policyFinding(policies policySet, pod *corev1.Pod, direction networkingv1.PolicyType, needed []connection) (f Finding, found bool) {
	var denying policySet
	var missing []string
	severity := Warn
	for _, c := range needed {
		by, t := policies.denyConnection(s.podPeer(pod), direction, c)
		if by == nil {
			continue
		}
		denying = by // the same for all connections of the pod
		text := fmt.Sprintf("no %s %s (%s)", strings.ToLower(string(direction)), c.purpose, t)
		if c.severity == Fail && severity == Warn { // the message is about the most severe one
			severity, missing = Fail, append([]string{text}, missing...)
			continue
		}
		missing = append(missing, text)
	}
	if denying == nil {
		return Finding{}, false
	}
	policy := denying.culprit(direction)
	remedy := "admit the connections in this policy or in another one that selects the pod, or delete the policy: docs/reference/ports.md lists the connections of each component"
	if isFromSetup(policy) {
		remedy = "if the policy was edited, run 'kubectl oooi setup -f FILE' with the Infra's file and --force-conflicts to restore it; " + diffFirst
	}
	f = failed(policyRef(policy), remedy, "the policy selects Pod %s and admits %s", pod.Name, missing[0])
	f.Severity = severity
	for _, m := range missing[1:min(len(missing), maxMissing)] {
		f = f.because("also " + m)
	}
	if len(missing) > maxMissing {
		f = f.because(fmt.Sprintf("and %d further connections", len(missing)-maxMissing))
	}
	return f.because(denying.others(policy)...), true
}

// maxMissing limits the connections that a finding lists.
const maxMissing = 10

// culprit returns the policy to name. Setup's policies do not restrict egress, so another one does, unless setup's was
// edited; for ingress, setup's policy admits all that is needed, so it was edited, unless there is none.
func (all policySet) culprit(direction networkingv1.PolicyType) *networkingv1.NetworkPolicy {
	at := slices.IndexFunc(all, func(p *networkingv1.NetworkPolicy) bool {
		return isFromSetup(p) == (direction == networkingv1.PolicyTypeIngress)
	})
	return all[max(at, 0)]
}

// others returns evidence about the other policies of the set.
func (all policySet) others(except *networkingv1.NetworkPolicy) []string {
	var evidence []string
	for _, p := range all {
		if p != except {
			evidence = append(evidence, policyRef(p).String()+" selects the pod as well, and does not admit the connections either")
		}
	}
	return evidence
}

// isFromSetup reports whether setup renders a policy, which it may have been edited since.
func isFromSetup(p *networkingv1.NetworkPolicy) bool {
	return p.Labels[labelPartOf] == partOf || p.Namespace == render.SystemNamespace && p.Name == render.ControlName
}

func policyRef(p *networkingv1.NetworkPolicy) model.Ref {
	return model.Ref{Kind: networkPolicies.Kind, Namespace: p.Namespace, Name: p.Name}
}

// apiServer returns the connection to the management cluster's API server. Network plugins compare rules with the
// address of the Service, or with that of the server behind it.
func (s *Site) apiServer() connection {
	c := connection{purpose: "to the API server", severity: Fail}
	var service []policyTarget
	for _, a := range s.apiServiceAddresses() {
		service = append(service, policyTarget{policyPeer{address: a}, corev1.ProtocolTCP, 443})
	}
	for _, e := range s.endpointsIn(AtDefault)["default/kubernetes"].at(nil) {
		c.targets = append(c.targets, append([]policyTarget{{policyPeer{address: e.Addr()}, corev1.ProtocolTCP, int32(e.Port())}}, service...))
	}
	if c.targets == nil { // unknown, as in a folder
		c.targets = [][]policyTarget{append(service, policyTarget{protocol: corev1.ProtocolTCP, port: 443}, policyTarget{protocol: corev1.ProtocolTCP, port: 6443})}
	}
	return c
}

// apiServiceAddresses returns the cluster IPs of Service default/kubernetes.
func (s *Site) apiServiceAddresses() []netip.Addr {
	var list []netip.Addr
	for _, o := range all[corev1.Service](s, services, AtDefault) {
		for _, text := range o.Spec.ClusterIPs {
			if a, err := netip.ParseAddr(text); err == nil && o.Name == "kubernetes" {
				list = append(list, a)
			}
		}
	}
	return list
}

// upstreamResolvers returns the connections of DNS to its upstream resolvers in the pod network.
func (s *Site) upstreamResolvers() []connection {
	servers := s.Infra.Spec.NetworkConfig.DNSServers
	if len(servers) == 0 {
		anyResolver := func(severity Severity, protocol corev1.Protocol) connection {
			return connection{"to upstream resolvers, those of the node", severity, [][]policyTarget{{{protocol: protocol, port: 53}}}}
		}
		return []connection{anyResolver(Fail, corev1.ProtocolUDP), anyResolver(Warn, corev1.ProtocolTCP)}
	}
	var list []connection
	for _, text := range servers {
		server, encrypted, err := parseResolver(text)
		if err != nil || s.Model == nil || slices.ContainsFunc(s.Model.CIDRs, func(p netip.Prefix) bool { return p.Contains(server.Addr()) }) {
			continue // reported by OOOI-INF-001; reached over the VLAN
		}
		peer := policyPeer{address: server.Addr(), unknown: s.mayBeService(server.Addr())}
		to := func(severity Severity, protocol corev1.Protocol) connection {
			return connection{"to upstream resolver " + text, severity, [][]policyTarget{{{peer, protocol, int32(server.Port())}}}}
		}
		if !encrypted {
			list = append(list, to(Fail, corev1.ProtocolUDP), to(Warn, corev1.ProtocolTCP))
		} else {
			list = append(list, to(Fail, corev1.ProtocolTCP))
		}
	}
	return list
}

// parseResolver parses an upstream resolver in the syntax of CoreDNS's plugin forward.
func parseResolver(text string) (server netip.AddrPort, encrypted bool, err error) {
	scheme, host, found := strings.Cut(text, "://")
	if !found {
		scheme, host = "dns", text
	}
	encrypted = scheme == "tls"
	if server, err = netip.ParseAddrPort(host); err == nil {
		return server, encrypted, nil
	}
	host, _, _ = strings.Cut(host, "%") // the TLS server name of tls://ADDRESS%NAME
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	port := uint16(53)
	if encrypted {
		port = 853
	}
	return netip.AddrPortFrom(a, port), encrypted, err //nolint:wrapcheck // the caller ignores the text
}

// serviceBits are the prefix lengths of the largest usual service networks, of IPv4 and IPv6.
const serviceBits4, serviceBits6 = 12, 108

// mayBeService reports whether an address may be a cluster IP, behind which a selector may select pods: the cluster IP
// of the API server is the first one of the service network.
func (s *Site) mayBeService(a netip.Addr) bool {
	return slices.ContainsFunc(s.apiServiceAddresses(), func(first netip.Addr) bool {
		bits := serviceBits4
		if first.Is6() {
			bits = serviceBits6
		}
		return netip.PrefixFrom(first, bits).Masked().Contains(a)
	})
}

// apiService is the Service of the hosted cluster's API server, and apiServerPort the port of its pods.
const (
	apiService    = "kube-apiserver"
	apiServerPort = 6443
)

// backendLabels returns the labels of the pods behind a Service; ok is false if there are none that a NetworkPolicy
// could select.
func backendLabels(o *corev1.Service) (set labels.Set, ok bool) {
	if len(o.Spec.Selector) > 0 {
		return o.Spec.Selector, true
	}
	if o.Name == apiService { // of HyperShift
		return labels.Set{"app": apiService, "hypershift.openshift.io/control-plane-component": apiService}, true
	}
	return nil, false
}

// readyEndpoints are the ready endpoints of a Service, by the name of their port.
type readyEndpoints map[string][]netip.AddrPort

// endpointsIn returns the ready endpoints in places, by the Service's "namespace/name".
func (s *Site) endpointsIn(places ...Where) map[string]readyEndpoints {
	index := map[string]readyEndpoints{}
	for _, slice := range s.endpointSlicesIn(places...) {
		ready := index[slice.Service()]
		if ready == nil {
			ready = readyEndpoints{}
			index[slice.Service()] = ready
		}
		for _, e := range slice.Endpoints {
			for _, text := range e.Addresses {
				a, err := netip.ParseAddr(text)
				for _, p := range slice.Ports {
					if err == nil && e.Conditions.IsReady() && p.Port != nil {
						ready[p.Name] = append(ready[p.Name], netip.AddrPortFrom(a, uint16(*p.Port))) //nolint:gosec // a port
					}
				}
			}
		}
	}
	return index
}

// endpointSlicesIn returns the EndpointSlices in places, without those that cannot be decoded.
func (s *Site) endpointSlicesIn(places ...Where) []*objects.EndpointSlice {
	var list []*objects.EndpointSlice
	for _, where := range places {
		for _, u := range s.list(endpointSlices, where) {
			if slice, ok := objects.Decode[objects.EndpointSlice](u).(*objects.EndpointSlice); ok {
				list = append(list, slice)
			}
		}
	}
	return list
}

// at returns the endpoints of the port with a name, or of all ports if it is nil, sorted.
func (r readyEndpoints) at(portName *string) []netip.AddrPort {
	var list []netip.AddrPort
	for name, endpoints := range r {
		if portName == nil || name == *portName {
			list = append(list, endpoints...)
		}
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}

// backends are the Services of the control plane and of backends, and their endpoints, by "namespace/name".
type backends struct {
	services  map[string]*corev1.Service
	endpoints map[string]readyEndpoints
}

func (s *Site) backends() backends {
	b := backends{map[string]*corev1.Service{}, s.endpointsIn(AtControlPlane, AtBackends)}
	for _, o := range slices.Concat(all[corev1.Service](s, services, AtControlPlane), all[corev1.Service](s, services, AtBackends)) {
		b.services[o.Namespace+"/"+o.Name] = o
	}
	return b
}

// serviceConnection returns the connection to the endpoints of a Service, "namespace/name": at all of its ports if
// portName is nil, to its cluster IPs as well.
func (s *Site) serviceConnection(of backends, key string, portName *string) connection {
	c := connection{purpose: "to Service " + key, severity: Fail}
	o := of.services[key]
	if o == nil {
		return c // reported by OOOI-PRX-002
	}
	set, _ := backendLabels(o)
	peer := s.namespacePeer(o.Namespace, set)
	var service []policyTarget
	for _, text := range o.Spec.ClusterIPs {
		for i := range o.Spec.Ports {
			if a, err := netip.ParseAddr(text); err == nil && portName == nil {
				at := peer
				at.address = a
				service = append(service, policyTarget{at, corev1.ProtocolTCP, o.Spec.Ports[i].Port})
			}
		}
	}
	for _, e := range of.endpoints[key].at(portName) {
		peer.address = e.Addr()
		c.targets = append(c.targets, append([]policyTarget{{peer, corev1.ProtocolTCP, int32(e.Port())}}, service...))
	}
	return c
}

// proxyBackends returns the connections of the proxy to its backends, each Service once, sorted.
func (s *Site) proxyBackends(of backends) []connection {
	var list []connection
	for _, p := range s.proxyModels() {
		for _, u := range p.Upstreams {
			if u.Service == "" || u.Missing != "" {
				continue
			}
			if c := s.serviceConnection(of, u.Service, &u.PortName); len(c.targets) > 0 {
				list = append(list, c)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b connection) int { return cmp.Compare(a.purpose, b.purpose) })
	return list
}

// checkBackendPolicies finds policies of backends' namespaces that do not admit the proxy.
func checkBackendPolicies(s *Site) []Finding {
	policies := s.policiesIn(AtControlPlane, AtBackends)
	proxy := s.namespacePeer(s.Infra.Namespace, labels.Merge(labels.Set{labelPartOf: partOf}, s.ownLabels(v1alpha1.ComponentProxy)))
	for _, p := range s.proxies() {
		proxy.pod.Set[v1alpha1.LabelProxyServer] = p.Name
	}
	known := s.backends()
	var findings []Finding
	for _, c := range s.proxyBackends(known) {
		o := known.services[strings.TrimPrefix(c.purpose, "to Service ")]
		if _, selected := backendLabels(o); !selected {
			continue
		}
		for _, alternatives := range c.targets {
			t := alternatives[0]
			if len(o.Spec.Selector) == 0 && t.port != apiServerPort {
				continue // not HyperShift's pods, whose labels backendLabels assumes
			}
			denying := policies.deny(t.policyPeer, networkingv1.PolicyTypeIngress, proxy, t.protocol, t.port)
			if denying == nil {
				continue
			}
			policy := denying[0]
			text := fmt.Sprintf("the proxy of %s %s (port %d)", s.ref(), c.purpose, t.port)
			if at := slices.IndexFunc(findings, func(f Finding) bool { return f.Object == policyRef(policy) }); at >= 0 {
				another := findings[at]
				another.Evidence = []string{"nor " + text}
				findings = append(findings, s.ofBackends(o, another)...)
				break
			}
			remedy := fmt.Sprintf("add a NetworkPolicy to namespace %s that admits the proxy's pods: labels %s in namespace %s", o.Namespace, proxy.pod, s.Infra.Namespace)
			if slices.ContainsFunc(s.Snapshot.Clusters, func(c *model.Cluster) bool { return c.ControlPlaneNamespace == o.Namespace }) {
				remedy = "run 'kubectl oooi setup -f FILE' with the Infra's file to add a policy that admits the proxy; ports other than 6443, 8091, 8443 and 9443 need a policy of your own"
			}
			findings = append(findings, s.ofBackends(o, failed(policyRef(policy), remedy, "the policy isolates its pods, and no policy admits %s", text).because(denying.others(policy)...))...)
			break
		}
	}
	return findings
}

// ofBackends returns a finding about each upstream of the proxy with a Service. Equal findings are merged.
func (s *Site) ofBackends(service *corev1.Service, f Finding) []Finding {
	var list []Finding
	for _, p := range s.proxyModels() {
		for _, u := range p.Upstreams {
			if u.Service == service.Namespace+"/"+service.Name {
				list = append(list, f.of(upstreamScope(u.Name)))
			}
		}
	}
	return list
}
