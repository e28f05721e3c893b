package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

func init() {
	after := []string{"OOOI-POD-002", "OOOI-NET-003", "OOOI-LNK-001", "OOOI-LNK-002", "OOOI-LNK-005", "OOOI-LNK-011"}
	reads := slices.Concat(in(AtInfra, pods), pagesIn(AtInfra, xdsdMetrics, dhcpMetrics))
	register(
		Check{
			Code: "OOOI-LNK-006", Component: v1alpha1.ComponentDNS, Title: "no filter drops DNS queries on the VLAN", After: append(slices.Clone(after), "OOOI-LNK-004", "OOOI-LNK-008"), Reads: reads, NotApplicable: noServingPods(xdsdMetrics, dhcpMetrics),
			Run: checkSilentDNS,
		},
		Check{
			Code: "OOOI-LNK-008", Title: "the VLAN loses no packets between our pods", After: after, Reads: slices.Concat(reads, optional(pagesIn(AtInfra, dnsMetrics))), NotApplicable: noServingPods(xdsdMetrics, dhcpMetrics),
			Run: checkLoss,
		},
		Check{
			Code: "OOOI-LNK-015", Component: v1alpha1.ComponentDHCP, Title: "broadcast DHCP requests on the VLAN reach our DHCP servers", After: append(slices.Clone(after), "OOOI-LNK-003", "OOOI-LNK-004", "OOOI-LNK-008", "OOOI-DHCP-017"), Reads: reads, NotApplicable: noPods(xdsdMetrics, AtInfra),
			Run: checkSilentDHCP,
		},
		Check{
			Code: "OOOI-SVC-002", Title: "the cluster IP of our DNS Service answers", After: []string{"OOOI-POD-002", "OOOI-NET-006", "OOOI-NET-007", "OOOI-NODE-003", "OOOI-SVC-001"},
			Reads: slices.Concat(in(AtInfra, pods, services, networkPolicies, namespaces), pagesIn(AtInfra, xdsdMetrics)), NotApplicable: noDNSService,
			Run: checkDNSService,
		},
		Check{
			Code: "OOOI-SVC-004", Component: v1alpha1.ComponentProxy, Title: "the cluster IP of the proxy's Service accepts connections",
			After: []string{"OOOI-POD-002", "OOOI-NET-006", "OOOI-NET-007", "OOOI-NODE-003", "OOOI-SVC-001", "OOOI-PRX-006", "OOOI-PRX-009", "OOOI-PRX-010", "OOOI-PRX-011"},
			Reads: slices.Concat(in(AtInfra, pods, services, networkPolicies, namespaces), in(AtSystem, networkPolicies, namespaces), pagesIn(AtSystem, controlState)),
			NotApplicable: func(s *Site) string {
				return cmp.Or(disabled(v1alpha1.ComponentProxy)(s), noPods(controlState, AtSystem)(s))
			},
			Run: checkProxyService,
		},
	)
}

// settled reports whether a pod has been ready for a period, after which the probes of other pods must have reached it.
func (s *Site) settled(pod *corev1.Pod, period time.Duration) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return s.facts.Taken.Sub(later(c.LastTransitionTime.Time, pod.CreationTimestamp.Time)) >= period
		}
	}
	return false
}

// later returns the later time.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// queryGracePeriod is how long a server must have been ready: it is probed every 15 seconds, and a probe without a reply
// takes some seconds.
const queryGracePeriod = 25 * time.Second

// queried are the results of the queries that one of our pods sends to a DNS server of ours on the VLAN.
type queried struct {
	asker, server *corev1.Pod
	address       netip.Addr
	// replies reports whether the server replies. It is nil if that is not known.
	replies *bool
	// sent and lost are the number of queries in the last minute, and of those that were lost.
	sent, lost int
}

// queried returns the results of all pods for DNS servers that are ready, sorted by server.
func (s *Site) queried() []queried {
	var list []queried
	for _, observer := range []struct {
		page   page
		metric string
	}{{xdsdMetrics, "xdsd_vlan_dns"}, {dhcpMetrics, "coredhcp_vlan_dns"}} {
		for _, x := range s.metrics(observer.page) {
			values := func(metric string) map[netip.Addr]float64 {
				all := map[netip.Addr]float64{}
				x.value.each(metric, func(labels map[string]string, value float64) {
					if a, err := netip.ParseAddr(labels["address"]); err == nil {
						all[a] = value
					}
				})
				return all
			}
			replies, sent, lost := values(observer.metric), values(observer.metric+"_queries"), values(observer.metric+"_lost_queries")
			for a, n := range sent {
				component, pod, _ := s.owner(a)
				if component != v1alpha1.ComponentDNS || !s.settled(pod, queryGracePeriod) {
					continue
				}
				q := queried{asker: x.pod, server: pod, address: a, sent: int(n), lost: int(lost[a])}
				if value, known := replies[a]; known {
					q.replies = new(value == 1)
				}
				list = append(list, q)
			}
		}
	}
	slices.SortFunc(list, func(a, b queried) int {
		return cmp.Or(a.address.Compare(b.address), strings.Compare(a.asker.Name, b.asker.Name))
	})
	return list
}

// Fewer lost queries than minLost are not reported, and a smaller share than minLossFailure is a warning.
const (
	minLost        = 3
	minLossFailure = 0.05
)

func (q queried) lossy() bool { return q.lost >= minLost }

// String returns the loss, as evidence.
func (q queried) String() string {
	return fmt.Sprintf("Pod %s: %d of %d queries to %s were lost within a minute", q.asker.Name, q.lost, q.sent, q.address)
}

// checkLoss finds pods whose packets on the VLAN are lost in part, by the queries of xdsd and coredhcp to DNS. It names the
// pod that all lossy paths have in common, if another path is not lossy.
func checkLoss(s *Site) []Finding {
	all := s.queried()
	var findings []Finding
	var lossy []queried
	for _, q := range all {
		if q.lossy() {
			lossy = append(lossy, q)
		}
	}
	reported := map[*corev1.Pod]bool{}
	for _, q := range lossy {
		pod, other := q.server, q.asker
		if slices.ContainsFunc(all, func(o queried) bool { return o.address == q.address && o.asker != q.asker && !o.lossy() }) {
			pod, other = other, pod // other pods reach the server
		}
		if reported[pod] {
			continue
		}
		reported[pod] = true
		if a := s.facts.answer(q.server, dnsMetrics); pod == q.server && a != nil && a.Silent != "" {
			findings = append(findings, failed(podRef(pod), fmt.Sprintf("look for a CPU limit that is too low, which a LimitRange may set, and at the load of node %s: kubectl -n %s describe pod %s", pod.Spec.NodeName, pod.Namespace, pod.Name),
				"the process of DNS answers late or not at all: %d of %d queries had no reply, and its page %s cannot be read", q.lost, q.sent, dnsMetrics.path).
				because(q.String(), a.Silent).of(v1alpha1.ComponentDNS))
			continue
		}
		message := "packets between the pod and Pod %s are lost on the VLAN: %d of %d DNS queries had no reply"
		f := failed(podRef(pod), fmt.Sprintf("look for errors and drops at each hop of the path: the bridge and the uplink of node %s, the ports of the switch, its cables: ip -s link show", pod.Spec.NodeName),
			message, other.Name, q.lost, q.sent)
		if float64(q.lost) < minLossFailure*float64(q.sent) {
			f.Severity = Warn
		}
		for _, o := range all {
			if o.asker == pod || o.server == pod || o.address == q.address {
				f = f.because(o.String())
			}
		}
		findings = append(findings, f.of(observedComponent(componentOf(pod))))
	}
	return findings
}

// checkSilentDNS finds DNS servers that answer ARP requests but no queries on the VLAN: those of all our pods, or of some.
func checkSilentDNS(s *Site) []Finding {
	all := s.queried()
	var findings []Finding
	reported := map[netip.Addr]bool{}
	for _, q := range all {
		if q.replies == nil || *q.replies || reported[q.address] {
			continue
		}
		reported[q.address] = true
		var silent, answered, nodes []string
		for _, o := range all {
			switch {
			case o.address != q.address || o.replies == nil:
			case *o.replies:
				answered = append(answered, o.asker.Name)
			default:
				silent = append(silent, o.asker.Name)
				nodes = append(nodes, o.asker.Spec.NodeName)
			}
		}
		f := failed(podRef(q.server), "find what drops the packets: a filter of UDP port 53 (MultiNetworkPolicies of the pod, nftables rules of its node, ACLs of the switch), port isolation, or another host with the MAC address of the pod",
			"DNS server %s does not answer queries on the VLAN, although it answers ARP requests and is ready in the pod network: packets to %s:53 are dropped", q.address, q.address).
			because("queried by Pod " + strings.Join(silent, ", "))
		if len(answered) > 0 {
			f.Message = fmt.Sprintf("DNS server %s answers queries of Pod %s on the VLAN, but not those of Pod %s: packets between these are dropped", q.address, strings.Join(answered, ", "), strings.Join(silent, ", "))
			slices.Sort(nodes)
			f.Evidence = []string{fmt.Sprintf("the server runs on node %s, the pods without an answer on node %s", q.server.Spec.NodeName, strings.Join(slices.Compact(nodes), ", "))}
		}
		findings = append(findings, f.of(v1alpha1.ComponentDNS))
	}
	return findings
}

// probesMetric is the number of requests of xdsd that coredhcp has received. Earlier releases do not have it, and do not
// reply to these requests.
const probesMetric = "coredhcp_dhcp4_probes_total"

// checkSilentDHCP finds DHCP servers whose host is on the VLAN, and that do not reply to broadcasts of xdsd.
func checkSilentDHCP(s *Site) []Finding {
	replies := map[*corev1.Pod]bool{} // DHCP servers that reply to requests of xdsd
	for _, d := range s.metrics(dhcpMetrics) {
		replies[d.pod] = d.value[probesMetric] != nil
	}
	var findings []Finding
	reported := map[netip.Addr]int{}
	for _, x := range s.metrics(xdsdMetrics) {
		x.value.each("xdsd_vlan_dhcp", func(labels map[string]string, value float64) {
			a, err := netip.ParseAddr(labels["address"])
			component, pod, _ := s.owner(a)
			if err != nil || component != v1alpha1.ComponentDHCP || !replies[pod] || !s.settled(pod, queryGracePeriod) || value == 1 {
				return
			}
			if at, ok := reported[a]; ok {
				findings[at] = findings[at].because("sent by Pod " + x.pod.Name)
				return
			}
			reported[a] = len(findings)
			findings = append(findings, failed(podRef(pod), "find what drops the packets: a filter of UDP port 67 or of broadcasts (MultiNetworkPolicies of the pod, nftables rules of its node, ACLs, DHCP snooping or storm control of the switch)",
				"broadcast DHCP requests on the VLAN do not reach DHCP server %s, or its replies are lost, although its host is there: VMs get no address", a).
				because("sent by Pod "+x.pod.Name).of(v1alpha1.ComponentDHCP))
		})
	}
	return findings
}

// serviceGracePeriod is how long the Service and a pod of DNS must exist: kube-proxy or the network plugin write their rules
// some seconds later.
const serviceGracePeriod = 30*time.Second + queryGracePeriod

// noDNSService returns why the DNS Service is not checked, empty if it is.
func noDNSService(s *Site) string {
	if why := disabled(v1alpha1.ComponentDNS)(s); why != "" {
		return why
	}
	return noPods(xdsdMetrics, AtInfra)(s)
}

// serviceOf returns the Service of a component, nil if it does not exist.
func (s *Site) serviceOf(component string) *corev1.Service {
	for _, o := range all[corev1.Service](s, services, AtInfra) {
		if o.Name == s.Infra.Name+"-"+component {
			return o
		}
	}
	return nil
}

// checkDNSService finds nodes on which the cluster IP of our DNS Service does not answer, although pods of DNS are ready.
func checkDNSService(s *Site) []Finding {
	service, ready := s.settledService(v1alpha1.ComponentDNS)
	if service == nil {
		return nil
	}
	var answered, silent []*corev1.Pod
	address, policies := "", s.policiesIn(AtInfra)
	for _, x := range s.metrics(xdsdMetrics) {
		x.value.each("xdsd_dns_service", func(labels map[string]string, value float64) {
			switch {
			case !slices.Contains(service.Spec.ClusterIPs, labels["address"]) || s.deniesAll(policies, x.pod, ready, corev1.ProtocolUDP, 53):
			case value == 1:
				answered = append(answered, x.pod)
			default:
				silent, address = append(silent, x.pod), labels["address"]
			}
		})
	}
	if len(silent) == 0 {
		return nil
	}
	node := silent[0].Spec.NodeName
	f := failed(model.Ref{Kind: nodes.Kind, Name: node}, serviceRemedy(node),
		"cluster IP %s of Service %s does not answer DNS queries from node %s, although Pod %s is ready: kube-proxy or the network plugin does not forward them", address, service.Name, node, ready[0].Name)
	for _, p := range silent {
		f = f.because(fmt.Sprintf("queried by Pod %s on node %s: no answer", p.Name, p.Spec.NodeName))
	}
	for _, p := range answered {
		f = f.because(fmt.Sprintf("queried by Pod %s on node %s: answered", p.Name, p.Spec.NodeName))
	}
	return []Finding{f.of(v1alpha1.ComponentDNS)}
}

// serviceRemedy is what to do about a node that does not forward packets to cluster IPs.
func serviceRemedy(node string) string {
	return "see the log of kube-proxy, or of ovnkube-node on OVN-Kubernetes, on the node, and delete that pod if it hangs: kubectl get pods -A -o wide --field-selector spec.nodeName=" + node
}

// settledService returns the Service of a component, with those of its pods that have been ready for serviceGracePeriod. It
// returns nil if there is none, or if the Service is newer.
func (s *Site) settledService(component string) (*corev1.Service, []*corev1.Pod) {
	service := s.serviceOf(component)
	ready := slices.DeleteFunc(s.pods(component), func(p *corev1.Pod) bool { return !s.settled(p, serviceGracePeriod) })
	if service == nil || len(ready) == 0 || s.facts.Taken.Sub(service.CreationTimestamp.Time) < serviceGracePeriod {
		return nil, nil
	}
	return service, ready
}

// deniesAll reports whether NetworkPolicies deny the connections of a pod to a port of all given pods.
func (s *Site) deniesAll(policies policySet, from *corev1.Pod, servers []*corev1.Pod, protocol corev1.Protocol, port int32) bool {
	return !slices.ContainsFunc(servers, func(server *corev1.Pod) bool {
		source, target := s.podPeer(from), s.podPeer(server)
		return policies.deny(source, networkingv1.PolicyTypeEgress, target, protocol, port) == nil &&
			policies.deny(target, networkingv1.PolicyTypeIngress, source, protocol, port) == nil
	})
}

// checkProxyService finds cluster IPs of the proxy's Service that accept no connections of control, although pods of the
// proxy are ready.
func checkProxyService(s *Site) []Finding {
	service, ready := s.settledService(v1alpha1.ComponentProxy)
	if service == nil {
		return nil
	}
	var findings []Finding
	for _, r := range states[controlReport](s, controlState, AtSystem) {
		for _, silent := range r.value.Services {
			if silent.Infra != s.key() || !slices.Contains(service.Spec.ClusterIPs, silent.Address.Addr().String()) ||
				s.deniesAll(s.policiesIn(AtInfra, AtSystem), r.pod, ready, corev1.ProtocolTCP, int32(silent.Address.Port())) {
				continue
			}
			node := r.pod.Spec.NodeName
			f := failed(model.Ref{Kind: nodes.Kind, Name: node}, serviceRemedy(node),
				"cluster IP %s of Service %s accepts no connections from node %s, although Pod %s is ready: kube-proxy or the network plugin does not forward them, and pods cannot reach the hosted control plane", silent.Address, service.Name, node, ready[0].Name)
			findings = append(findings, f.because(fmt.Sprintf("connections of Pod %s fail since %s: %s", r.pod.Name, formatTime(silent.Since), silent.Error)).of(v1alpha1.ComponentProxy))
		}
	}
	return findings
}
