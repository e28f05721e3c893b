package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// checkUpstreams finds upstreams without an endpoint that Envoy considers healthy, and those to which most
// connections fail.
func checkUpstreams(s *Site) []Finding {
	endpoints, apps := s.backendEndpoints(), s.vlanUpstreams()
	misrouted := s.misrouted(endpoints)
	var findings []Finding
	for _, e := range s.metrics(envoyMetrics) {
		byCluster := func(name string) map[string]float64 {
			values := map[string]float64{}
			e.value.each(name, func(labels map[string]string, value float64) {
				if upstream := labels[clusterLabel]; strings.Contains(upstream, "/") { // others are Envoy's own clusters
					values[upstream] = value
				}
			})
			return values
		}
		total, healthy := byCluster("envoy_cluster_membership_total"), byCluster("envoy_cluster_membership_healthy")
		tried, refused := byCluster("envoy_cluster_upstream_cx_total"), byCluster("envoy_cluster_upstream_cx_connect_fail")
		var unreached []*model.Upstream // on the VLAN
		var portless []string           // because the pod has no free source port
		failures := sourcePortFailures(endpoints, e.pod)
		for _, name := range slices.Sorted(maps.Keys(total)) {
			remedy := fmt.Sprintf("check that the backend's pods listen ('kubectl oooi routes -n %s' shows the backend), and that a NetworkPolicy of the control plane's namespace admits the proxy", s.Infra.Namespace)
			u := apps[e.pod.Name][name]
			if u != nil {
				remedy = appsBackendRemedy
			}
			switch {
			case total[name] > 0 && healthy[name] == 0 && failures.explain(name):
				portless = append(portless, name)
			case total[name] > 0 && healthy[name] == 0 && u != nil:
				unreached = append(unreached, u)
			case total[name] > 0 && healthy[name] == 0 && misrouted[e.pod.Name].has(name): // see misroutedFinding
			case total[name] > 0 && healthy[name] == 0:
				evidence := s.unreachable(endpoints, name, e.pod)
				findings = append(findings, failed(podRef(e.pod), connectRemedy(e.pod, evidence, remedy), "none of the %.0f endpoints of backend %s accepts connections", total[name], name).because(evidence...).of(upstreamScope(name)))
			case healthy[name] < total[name]:
				evidence := s.unreachable(endpoints, name, e.pod)
				findings = append(findings, warned(podRef(e.pod), connectRemedy(e.pod, evidence, remedy), "%.0f of %.0f endpoints of backend %s accept no connections: Envoy uses the others", total[name]-healthy[name], total[name], name).because(evidence...))
			case tried[name] >= minConnections && refused[name] > maxFailedShare*tried[name] && !accepts(endpoints, name, e.pod):
				findings = append(findings, failed(podRef(e.pod), remedy, "%.0f of %.0f connections to backend %s have failed since Envoy started", refused[name], tried[name], name).of(upstreamScope(name)))
			}
		}
		for _, name := range portless {
			f := failed(podRef(e.pod), sourcePortRemedy(e.pod), "the pod has no free source port for connections to %s", strings.Join(portless, ", ")).because(failures.errors...)
			findings = append(findings, f.of(upstreamScope(name))) // equal ones are merged
		}
		findings = append(findings, s.unreachedApps(e.pod, unreached)...)
		if m := misrouted[e.pod.Name]; len(m) > 0 {
			f := s.misroutedFinding(e.pod, m)
			for _, b := range m {
				findings = append(findings, f.of(upstreamScope(b.Upstream))) // equal ones are merged
			}
		}
	}
	return findings
}

// accepts reports whether all endpoints of an upstream accepted the last connections of xdsd, so that earlier failures are
// over.
func accepts(endpoints []*backendEndpoint, upstream string, from *corev1.Pod) bool {
	known := false
	for _, e := range endpoints {
		for i := range e.answers {
			a := &e.answers[i]
			if e.upstream.Name != upstream || a.pod.Name != from.Name {
				continue
			}
			if !a.value.Connected {
				return false
			}
			known = true
		}
	}
	return known
}

// connectRemedy returns the remedy for errors of connections from a pod: other if they do not tell more.
func connectRemedy(pod *corev1.Pod, reasons []string, other string) string {
	with := func(text string) func(string) bool { return func(r string) bool { return strings.Contains(r, text) } }
	switch {
	case slices.ContainsFunc(reasons, with(noSourcePort)):
		return fmt.Sprintf("Pod %s has no free source port: %s", pod.Name, sourcePortRemedy(pod))
	case slices.ContainsFunc(reasons, with("timeout")) && !slices.ContainsFunc(reasons, with("refused")):
		return "packets are dropped: find the NetworkPolicy, or the filter between the nodes, that does not admit the proxy to the endpoint; an endpoint that does not exist on any node does not answer either. " + other
	}
	return other
}

// noSourcePort is the error of a connection for which a pod has no free source port.
const noSourcePort = "cannot assign requested address"

func sourcePortRemedy(pod *corev1.Pod) string {
	return fmt.Sprintf("limit the connections of clients (limits of the proxy), or raise net.ipv4.ip_local_port_range of the pod; 'kubectl oooi envoy clusters -n %s' shows the connections", pod.Namespace)
}

// portFailures are the errors of a pod's connections for which it had no free source port, and the upstreams to which its
// connections failed for another reason.
type portFailures struct {
	errors []string
	others map[string]bool
}

// explain reports whether an upstream that Envoy cannot reach needs no other explanation.
func (f *portFailures) explain(upstream string) bool {
	return len(f.errors) > 0 && !f.others[upstream]
}

func sourcePortFailures(endpoints []*backendEndpoint, from *corev1.Pod) *portFailures {
	f := &portFailures{others: map[string]bool{}}
	for _, e := range endpoints {
		for i := range e.answers {
			switch a := &e.answers[i]; {
			case a.pod.Name != from.Name || a.value.Connected:
			case strings.Contains(a.value.Error, noSourcePort):
				f.errors = append(f.errors, fmt.Sprintf("backend %s: %s", e.upstream.Name, a.value.Error))
			default:
				f.others[e.upstream.Name] = true
			}
		}
	}
	return f
}

// misroutedBackends are the endpoints, outside of the VLAN's subnets, to which a pod sends packets through its VLAN
// interface and cannot connect.
type misroutedBackends []*probe.Backend

// has reports whether the endpoints of an upstream are among them.
func (m misroutedBackends) has(upstream string) bool {
	return slices.ContainsFunc(m, func(b *probe.Backend) bool { return b.Upstream == upstream })
}

// misrouted returns the misrouted backends of each pod, sorted by upstream and address.
func (s *Site) misrouted(endpoints []*backendEndpoint) map[string]misroutedBackends {
	list := map[string]misroutedBackends{}
	if s.Model == nil {
		return list
	}
	for _, e := range endpoints {
		if slices.ContainsFunc(s.Model.CIDRs, func(p netip.Prefix) bool { return p.Contains(e.address.Addr()) }) {
			continue
		}
		for i := range e.answers {
			if a := &e.answers[i]; !a.value.Connected && a.value.Interface == render.ProbeDevice {
				list[a.pod.Name] = append(list[a.pod.Name], &a.value)
			}
		}
	}
	return list
}

// misroutedFinding returns one finding for all misrouted backends of a pod.
func (s *Site) misroutedFinding(pod *corev1.Pod, backends misroutedBackends) Finding {
	var addresses, evidence []string
	for _, b := range backends {
		if text := b.Address.Addr().String(); !slices.Contains(addresses, text) {
			addresses = append(addresses, text)
			evidence = append(evidence, fmt.Sprintf("backend %s: %s", b.Upstream, b.Error))
		}
	}
	remedy := fmt.Sprintf("check the routes in the NetworkAttachmentDefinitions of the pod: kubectl -n %s get network-attachment-definitions -o yaml", pod.Namespace)
	return failed(podRef(pod), remedy, "packets to %s leave through %s: a route of the pod leads to the VLAN, although these backends are not in its subnets", strings.Join(addresses, ", "), render.ProbeDevice).because(evidence...)
}

// vlanUpstreams returns the upstreams whose addresses are on the VLAN, by pod and name: those of apps addresses.
func (s *Site) vlanUpstreams() map[string]map[string]*model.Upstream {
	list := map[string]map[string]*model.Upstream{}
	for _, x := range states[xdsdReport](s, xdsdState, AtInfra) {
		list[x.pod.Name] = map[string]*model.Upstream{}
		for _, p := range x.value.ProxyServers {
			if p == nil {
				continue
			}
			for _, u := range p.Upstreams {
				if u != nil && u.FromVLAN {
					list[x.pod.Name][u.Name] = u
				}
			}
		}
	}
	return list
}

const appsBackendRemedy = "check that the ingress router of the hosted cluster runs, and that no filter on its nodes or on the VLAN drops connections from the proxy"

// unreachedApps returns a finding for each address on the VLAN that accepts no connections of a pod, by what xdsd has
// found out about its host.
func (s *Site) unreachedApps(pod *corev1.Pod, upstreams []*model.Upstream) []Finding {
	ports := map[netip.Addr][]string{}
	scopes := map[netip.Addr][]string{}
	var addresses []netip.AddrPort
	for _, u := range upstreams {
		for _, a := range u.Addresses {
			addresses = append(addresses, a)
			scopes[a.Addr()] = append(scopes[a.Addr()], upstreamScope(u.Name))
		}
	}
	slices.SortFunc(addresses, netip.AddrPort.Compare)
	for _, a := range slices.Compact(addresses) {
		ports[a.Addr()] = append(ports[a.Addr()], strconv.Itoa(int(a.Port())))
	}
	results, sightings := s.portResults(xdsdMetrics, "xdsd_vlan_port"), s.sightings()
	var findings []Finding
	for _, a := range slices.SortedFunc(maps.Keys(ports), netip.Addr.Compare) {
		list := strings.Join(ports[a], ", ")
		f := failed(podRef(pod), appsBackendRemedy, "apps address %s accepts no connections at port %s", a, list)
		certain := slices.ContainsFunc(results, func(r portResult) bool { return r.pod == pod && r.address.Addr() == a && r.result != portAccepted })
		for _, x := range s.neighbors(xdsdMetrics, xdsdNeighbor) {
			at := slices.IndexFunc(x.value, func(n neighbor) bool { return n.address == a })
			switch {
			case x.pod != pod || at < 0:
			case x.value[at].mac == "" && !isSilent(sightings, a, pod):
				f.Remedy = uncertainRemedy
				f = f.because("no host answers ARP requests of the pod for the address, and our pods do not know yet whether other hosts on the VLAN still answer")
			case x.value[at].mac == "":
				f = failed(podRef(pod), "check the load balancer of the hosted cluster, such as MetalLB's speakers and its L2Advertisement, and the network of the nodes' VMs",
					"no host on the VLAN answers ARP requests for %s: MetalLB does not announce it, or the nodes of the hosted cluster are not connected to this VLAN", a)
			case certain:
				f = failed(podRef(pod), appsBackendRemedy, "apps address %s answers ARP requests on the VLAN, but accepts no connections at port %s", a, list).because("MAC address " + x.value[at].mac)
				if previous, since := s.previousMAC(pod, a); previous != "" {
					f.Remedy = "find both hosts by their MAC addresses, in the MAC address table of the switch or with 'kubectl get vmi -A -o yaml': remove the address from the one that does not serve apps, and announce it from the other"
					f.Message += fmt.Sprintf(": host %s, which does not serve apps, has replaced host %s", x.value[at].mac, previous)
					f = f.because(fmt.Sprintf("%s replaced %s at %s", x.value[at].mac, previous, formatTime(since)))
				}
			default: // the kernel keeps the MAC address of a host that is gone
				f.Remedy = uncertainRemedy
				f = f.because("the last host with the address had MAC address " + x.value[at].mac + ", and may be gone")
			}
		}
		for _, scope := range scopes[a] {
			findings = append(findings, f.of(scope)) // equal ones are merged
		}
	}
	return findings
}

// uncertainRemedy is what to do while the address, or the pod's connection to the VLAN, may be at fault.
const uncertainRemedy = "run doctor again in a minute: until then it is not certain whether a host on the VLAN has the address, and whether the pod reaches the VLAN"

// previousMAC returns the MAC address that answered a pod of the proxy for an address before the current one, and when it
// was replaced; empty if none did.
func (s *Site) previousMAC(pod *corev1.Pod, a netip.Addr) (previous string, changed time.Time) {
	for _, x := range s.metrics(xdsdMetrics) {
		if x.pod != pod {
			continue
		}
		x.value.each(xdsdNeighbor+changedSuffix, func(labels map[string]string, value float64) {
			if labels["address"] == a.String() {
				previous, changed = labels["previous"], time.Unix(int64(value), 0)
			}
		})
	}
	return previous, changed
}

// unreachable returns why connections of a pod to the endpoints of an upstream failed, and the EndpointSlices with these
// endpoints.
func (s *Site) unreachable(endpoints []*backendEndpoint, upstream string, from *corev1.Pod) []string {
	var errs, evidence []string
	for _, e := range endpoints {
		a := e.first(func(b *probe.Backend) bool { return !b.Connected })
		if a == nil || e.upstream.Name != upstream || a.pod != from {
			continue
		}
		errs = append(errs, a.value.Error)
		own, _ := s.slicesOf(e)
		for _, slice := range own {
			evidence = append(evidence, fmt.Sprintf("%s is an endpoint in EndpointSlice %s/%s", e.address, slice.Namespace, slice.Name))
		}
	}
	return append(errs, evidence...)
}
