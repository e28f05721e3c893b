package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

func init() {
	register(Check{
		Code: "OOOI-NODE-003", Title: "our pods reach the API server from their nodes", After: []string{"OOOI-NODE-001", "OOOI-NET-006", "OOOI-POD-002"},
		Reads: append(pagesIn(AtInfra, xdsdState, dhcpState, dnsMetrics), slices.Concat(optional(in(AtInfra, egressFirewalls)), in(AtSystem, pods), pagesIn(AtSystem, controlState), logReads(AtSystem))...), NotApplicable: noServingPods(xdsdState, dhcpState),
		Run: checkReach,
	})
}

// reach is whether a pod reaches the API server of the management cluster.
type reach struct {
	pod       *corev1.Pod
	component string
	// address is what the pod cannot connect to, and reason why; both are empty if it can, and if it does not say so.
	address, reason string
	// unknown is set for a pod that does not follow the API server, and does not say that it cannot connect, such as DNS and
	// a pod that has just started.
	unknown bool
}

// dialError matches the error of a watch whose connection failed below TLS, and lostConnection that of one that ended, or the
// reason for which a watch of coredns failed.
var (
	dialError      = regexp.MustCompile(`dial tcp (\S+:\d+): (.*(?:timeout|unreachable|no route to host|connection refused))`)
	lostConnection = regexp.MustCompile(`timeout|timed out|deadline exceeded|connection lost|awaiting headers|reset by peer|EOF|^Unreachable$`)
)

// reachOf returns whether a pod reaches the API server, by the errors of its watches.
func reachOf(pod *corev1.Pod, component string, watches []watchReport) reach {
	r := reach{pod: pod, component: component}
	for _, w := range watches {
		if w.Connected {
			continue
		}
		if m := dialError.FindStringSubmatch(w.Error); m != nil {
			r.address, r.reason = m[1], m[2]
		}
		r.unknown = r.unknown || !w.Missing && (w.Error == "" || lostConnection.MatchString(w.Error))
	}
	return r
}

// failedRequest matches the error of a request to an API server that had no answer, also with escaped quotation marks.
var failedRequest = regexp.MustCompile(`https://([^/"\\\s]+)/[^"\\\s]*\\?": ([^"\\]*(?:timeout|exceeded|unreachable|no route to host|connection refused)[^"\\]*)`)

// recentEnd is how long the error of a container that ended says what fails now: it is restarted after a backoff.
const recentEnd = time.Minute

// lostAPIServer returns the address of the API server to which a container of a pod that is not ready had no connection when it
// ended recently, and the error; empty if it ended for another reason.
func (s *Site) lostAPIServer(pod *corev1.Pod) (address, reason string) {
	for _, c := range crashes(pod, s.facts.Taken) {
		if status.PodReady(pod) || s.facts.Taken.Sub(c.last.FinishedAt.Time) > recentEnd {
			continue
		}
		lines := quotable(c.last.Message)
		if l := s.facts.logs[logKey{pod.Namespace, pod.Name, c.Name}]; l != nil {
			lines = append(slices.DeleteFunc(slices.Clone(l.Lines), func(line string) bool { return !strings.Contains(line, "/leases/"+render.ControlName) }), lines...)
		}
		for _, line := range lines {
			if m := failedRequest.FindStringSubmatch(line); m != nil {
				address, reason = m[1], strings.TrimSpace(strings.TrimSuffix(m[2], ", restarting"))
			}
		}
	}
	return address, reason
}

// checkReach finds nodes with several pods that cannot connect to the API server, which doctor can: it has read the objects
// and pages.
func checkReach(s *Site) []Finding {
	var all []reach
	for _, x := range states[xdsdReport](s, xdsdState, AtInfra) {
		all = append(all, reachOf(x.pod, v1alpha1.ComponentProxy, x.value.Store.Resources))
	}
	for _, d := range states[dhcpReport](s, dhcpState, AtInfra) {
		if d.value.Kubevirt == nil {
			continue
		}
		watches := slices.Clone(d.value.Kubevirt.Watches)
		for _, l := range d.value.Leasedb {
			watches = append(watches, watchReport{Connected: l.Addresses.Synced && l.Failure == "", Error: l.Failure})
		}
		all = append(all, reachOf(d.pod, v1alpha1.ComponentDHCP, watches))
	}
	for _, c := range states[controlReport](s, controlState, AtSystem) {
		all = append(all, reachOf(c.pod, componentControl, c.value.Store.Resources))
	}
	for _, pod := range s.servingPods(controlState, AtSystem) {
		if address, reason := s.lostAPIServer(pod); address != "" {
			all = append(all, reach{pod: pod, component: componentControl, address: address, reason: reason})
		}
	}
	for _, d := range s.metrics(dnsMetrics) {
		synced, age := followed(d.value)
		r := reachOf(d.pod, v1alpha1.ComponentDNS, failedWatches(d.value))
		r.unknown = r.unknown || !synced || age > maxStaleness
		all = append(all, r)
	}
	byNode := map[string][]reach{}
	for _, r := range all {
		byNode[r.pod.Spec.NodeName] = append(byNode[r.pod.Spec.NodeName], r)
	}
	var findings []Finding
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		findings = append(findings, s.apiUnreachable(node, byNode[node])...)
	}
	return findings
}

// firewallRemedy returns the beginning of a remedy for pods in the Infra's namespace that do not reach a host outside of the
// cluster network: the EgressFirewall of the namespace; empty if there is none.
func (s *Site) firewallRemedy() string {
	for _, u := range s.list(egressFirewalls, AtInfra) {
		return fmt.Sprintf("check that %s allows egress to the API server and to the upstream resolvers: kubectl -n %s get egressfirewall %s -o yaml; otherwise ", refTo(u), u.GetNamespace(), u.GetName())
	}
	return ""
}

// apiUnreachable returns a finding for a node if several of its pods do not reach the API server. Other checks find that a
// single pod does not. A pod notices after up to 15 seconds that its connections are dead, and 10 later that it cannot connect.
func (s *Site) apiUnreachable(node string, pods []reach) []Finding {
	silent := slices.DeleteFunc(slices.Clone(pods), func(r reach) bool { return r.address == "" && !r.unknown })
	certain := slices.IndexFunc(silent, func(r reach) bool { return r.address != "" })
	if certain < 0 || len(silent) < 2 {
		return nil
	}
	address := silent[certain].address
	slices.SortFunc(silent, func(a, b reach) int { return cmp.Compare(a.pod.Name, b.pod.Name) })
	f := failed(model.Ref{Kind: nodes.Kind, Name: node},
		s.firewallRemedy()+"check kube-proxy or the network plugin on the node, filters of the egress of its pods ('nft list ruleset' on the node), and its connection to the API server: kubectl get pods -A -o wide --field-selector spec.nodeName="+node,
		"our pods on the node do not reach the API server at %s, which answers doctor: they serve what they last knew", address)
	for _, r := range silent {
		f = f.because(fmt.Sprintf("Pod %s: %s", r.pod.Name, cmp.Or(r.reason, "does not follow the API server")))
	}
	if reached := len(pods) - len(silent); reached > 0 {
		f = f.because(fmt.Sprintf("pods of ours on the node that have not lost their connections, or not noticed yet, which takes up to 25 seconds: %d", reached))
	}
	var findings []Finding
	for _, r := range silent {
		findings = append(findings, f.of(r.component)) // equal ones are merged
	}
	return findings
}
