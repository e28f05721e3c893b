package doctor

import (
	"cmp"
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

func init() {
	register(Check{
		Code: "OOOI-NODE-003", Title: "our pods reach the API server from their nodes", After: []string{"OOOI-NODE-001", "OOOI-NET-006", "OOOI-POD-002"},
		Reads: append(pagesIn(AtInfra, xdsdState, dhcpState, dnsMetrics), pagesIn(AtSystem, controlState)...), NotApplicable: noServingPods(xdsdState, dhcpState),
		Run: checkReach,
	})
}

// reach is whether a pod reaches the API server of the management cluster.
type reach struct {
	pod       *corev1.Pod
	component string
	// address is what the pod cannot connect to, and reason why; both are empty if it can, and for DNS, which does not
	// report them.
	address, reason string
	// stale is set for DNS that does not follow the API server.
	stale bool
}

// dialError matches the error of a watch whose connection failed below TLS.
var dialError = regexp.MustCompile(`dial tcp (\S+:\d+): (.*(?:timeout|unreachable|no route to host|connection refused))`)

// reachOf returns whether a pod reaches the API server, by the errors of its watches.
func reachOf(pod *corev1.Pod, component string, watches []watchReport) reach {
	r := reach{pod: pod, component: component}
	for _, w := range watches {
		if m := dialError.FindStringSubmatch(w.Error); m != nil && !w.Connected {
			r.address, r.reason = m[1], m[2]
		}
	}
	return r
}

// checkReach finds nodes none of whose pods can connect to the API server, which doctor can: it has read the objects and
// pages.
func checkReach(s *Site) []Finding {
	var all []reach
	for _, x := range states[xdsdReport](s, xdsdState, AtInfra) {
		all = append(all, reachOf(x.pod, v1alpha1.ComponentProxy, x.value.Store.Resources))
	}
	for _, d := range states[dhcpReport](s, dhcpState, AtInfra) {
		if d.value.Kubevirt != nil {
			all = append(all, reachOf(d.pod, v1alpha1.ComponentDHCP, d.value.Kubevirt.Watches))
		}
	}
	for _, c := range states[controlReport](s, controlState, AtSystem) {
		all = append(all, reachOf(c.pod, componentControl, c.value.Store.Resources))
	}
	for _, d := range s.metrics(dnsMetrics) {
		synced, age := followed(d.value)
		all = append(all, reach{pod: d.pod, component: v1alpha1.ComponentDNS, stale: !synced || age > maxStaleness})
	}
	byNode := map[string][]reach{}
	for _, r := range all {
		byNode[r.pod.Spec.NodeName] = append(byNode[r.pod.Spec.NodeName], r)
	}
	var findings []Finding
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		findings = append(findings, apiUnreachable(node, byNode[node])...)
	}
	return findings
}

// apiUnreachable returns a finding for each of a node's pods if none of them reaches the API server, and there are several.
// Other checks find that a single pod does not.
func apiUnreachable(node string, pods []reach) []Finding {
	first := slices.IndexFunc(pods, func(r reach) bool { return r.address != "" })
	if first < 0 || len(pods) < 2 || slices.ContainsFunc(pods, func(r reach) bool { return r.address == "" && !r.stale }) {
		return nil
	}
	address, reason := pods[first].address, pods[first].reason
	slices.SortFunc(pods, func(a, b reach) int { return cmp.Compare(a.pod.Name, b.pod.Name) })
	var findings []Finding
	for _, r := range pods {
		findings = append(findings, failed(model.Ref{Kind: nodes.Kind, Name: node},
			"check kube-proxy or the network plugin on the node, and its connection to the API server: kubectl get pods -A -o wide --field-selector spec.nodeName="+node,
			"Pod %s, as all our pods on the node, does not reach the API server at %s, which answers doctor: %s", r.pod.Name, address, reason).of(r.component))
	}
	return findings
}
