package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

func init() {
	register(
		Check{
			Code: "OOOI-SVC-001", Title: "endpoints of our Services are our pods", After: []string{"OOOI-POD-002"}, Reads: in(AtInfra, services, endpointSlices, pods),
			Run: checkEndpoints,
		},
		Check{
			Code: "OOOI-SVC-003", Title: "the API server reaches our pods on each node", After: []string{"OOOI-NODE-001", "OOOI-POD-002", "OOOI-NET-007"},
			Reads:         slices.Concat(in(AtInfra, pods, networkPolicies, namespaces), pagesIn(AtInfra, nodePages...)),
			NotApplicable: noServingPods(nodePages...), Run: checkSilentNodes,
		},
	)
}

// nodePages are a page of each component.
var nodePages = []page{dnsMetrics, dhcpState, xdsdState, envoyMetrics}

// minSilentPods is how many pods of a node must be silent: other checks find a single one.
const minSilentPods = 2

// checkSilentNodes finds nodes none of whose pods answers the API server, although they are ready: their kubelet reaches
// them on the node itself. Pods that NetworkPolicies isolate are omitted.
func checkSilentNodes(s *Site) []Finding {
	type state struct {
		silent   map[*corev1.Pod]string // why the pod did not answer
		answered bool
	}
	byNode := map[string]*state{}
	policies := s.policiesIn(AtInfra)
	for _, p := range nodePages {
		for _, pod := range s.servingPods(p, AtInfra) {
			n := byNode[pod.Spec.NodeName]
			if n == nil {
				n = &state{silent: map[*corev1.Pod]string{}}
				byNode[pod.Spec.NodeName] = n
			}
			a := s.facts.answer(pod, p)
			switch {
			case a == nil:
			case a.Silent == "":
				n.answered = true
			case policies.deny(s.podPeer(pod), networkingv1.PolicyTypeIngress, policyPeer{unknown: true}, corev1.ProtocolTCP, int32(p.port)) == nil: //nolint:gosec // a port
				n.silent[pod] = a.Silent
			}
		}
	}
	var findings []Finding
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		n := byNode[node]
		if n.answered || len(n.silent) < minSilentPods {
			continue
		}
		f := failed(model.Ref{Kind: nodes.Kind, Name: node}, "check the network plugin on the node, its forwarding (sysctl net.ipv4.ip_forward, or net.ipv4.conf.IFACE.forwarding of the pod network's and the uplink's interfaces, must be 1; a policy DROP of chain FORWARD, which Docker and firewalld set: 'iptables -S FORWARD', 'nft list ruleset') and the path from the API server to its pods: firewalls between the nodes, routes or tunnels of the pod network",
			"none of our pods on the node answers the API server, although their kubelet reaches them: the path to the pods of the node is interrupted")
		for _, pod := range slices.SortedFunc(maps.Keys(n.silent), func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) }) {
			f = f.because(fmt.Sprintf("Pod %s, %s: %s", pod.Name, pod.Status.PodIP, n.silent[pod]))
		}
		findings = append(findings, f)
	}
	return findings
}

// checkEndpoints finds ready endpoints of our Services that no pod of the component has, as of an EndpointSlice that
// another client created.
func checkEndpoints(s *Site) []Finding {
	component := map[string]string{} // of our Services, by "namespace/name"
	for _, service := range all[corev1.Service](s, services, AtInfra) {
		if service.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && s.owns(service.Labels) {
			component[service.Namespace+"/"+service.Name] = service.Labels[v1alpha1.LabelComponent]
		}
	}
	var findings []Finding
	for _, u := range s.list(endpointSlices, AtInfra) {
		slice, ok := objects.Decode[objects.EndpointSlice](u).(*objects.EndpointSlice)
		if !ok || component[slice.Service()] == "" {
			continue
		}
		c := component[slice.Service()]
		for _, e := range slice.Endpoints {
			for _, address := range e.Addresses {
				mine := func(p *corev1.Pod) bool {
					return p.Status.PodIP == address || slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == address })
				}
				if e.Conditions.IsReady() && !slices.ContainsFunc(s.pods(c), mine) {
					findings = append(findings, failed(refTo(u), fmt.Sprintf("delete it, unless another tool needs it: kubectl -n %s delete endpointslice %s; 'kubectl get endpointslice -o yaml --show-managed-fields' shows who wrote it", u.GetNamespace(), u.GetName()),
						"endpoint %s of Service %s is not a pod of %s: part of the connections to the Service go elsewhere", address, slice.Service(), c).of(c))
				}
			}
		}
	}
	return findings
}
