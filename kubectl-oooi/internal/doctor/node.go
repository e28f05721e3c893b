package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/densityops/oooi/internal/model"
)

func init() {
	register(
		Check{
			Code: "OOOI-NODE-001", Title: "the nodes of our pods are ready", Reads: slices.Concat(in(AtInfra, pods), in(AtSystem, pods), in(Everywhere, nodes), optional(pagesIn(AtInfra, nodePages...)), optional(pagesIn(AtSystem, controlState))),
			Run: checkNodes,
		},
		Check{
			Code: "OOOI-NODE-002", Title: "the nodes of our pods have enough memory, disk space and process IDs", After: []string{"OOOI-NODE-001"}, Reads: slices.Concat(in(AtInfra, pods), in(Everywhere, nodes)),
			Run: checkNodePressure,
		},
		Check{
			Code: "OOOI-NODE-004", Title: "taints do not prevent our pods from being scheduled", After: []string{"OOOI-NODE-001"}, Reads: slices.Concat(in(AtInfra, pods), in(AtSystem, pods), in(Everywhere, nodes)),
			Run: checkTaints,
		},
	)
}

// checkTaints finds pods that the scheduler cannot place because of taints, with the taints that they do not tolerate. A
// taint that Kubernetes sets, such as for a node that is not ready, ends with its cause.
func checkTaints(s *Site) []Finding {
	var findings []Finding
	for _, p := range slices.Concat(s.controlPods(), s.componentPods()) {
		at := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "untolerated taint")
		})
		if at < 0 {
			continue
		}
		byTaint := map[string][]string{} // names of nodes
		remedy := ""
		for _, n := range all[corev1.Node](s, nodes, Everywhere) {
			for i := range n.Spec.Taints {
				taint := &n.Spec.Taints[i]
				if taint.Effect == corev1.TaintEffectPreferNoSchedule || slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), taint, false) }) {
					continue
				}
				byTaint[taint.ToString()] = append(byTaint[taint.ToString()], n.Name)
				switch {
				case remedy != "":
				case taint.Key == corev1.TaintNodeUnschedulable:
					remedy = "let the node take pods again: kubectl uncordon " + n.Name
				case strings.HasPrefix(taint.Key, "node.kubernetes.io/"):
					remedy = "correct the cause, for which Kubernetes sets the taint: kubectl describe node " + n.Name
				default:
					remedy = fmt.Sprintf("remove the taint from a node that is on the VLAN: kubectl taint node %s %s:%s-", n.Name, taint.Key, taint.Effect)
				}
			}
		}
		if len(byTaint) == 0 {
			continue // removed since
		}
		f := failed(podRef(p), remedy, "no node takes the pod: it does not tolerate %s", strings.Join(slices.Sorted(maps.Keys(byTaint)), ", ")).of(componentOf(p))
		for _, taint := range slices.Sorted(maps.Keys(byTaint)) {
			names := byTaint[taint]
			text := strings.Join(names[:min(len(names), maxNames)], ", ")
			if more := len(names) - maxNames; more > 0 {
				text += fmt.Sprintf(" and %d more", more)
			}
			f = f.because("taint " + taint + ": node " + text)
		}
		findings = append(findings, f.because("scheduler: "+p.Status.Conditions[at].Message))
	}
	return findings
}

// maxNames limits the names in one line of evidence.
const maxNames = 5

// podsByNode returns the Infra's pods of enabled components by the name of their node.
func (s *Site) podsByNode() map[string][]*corev1.Pod {
	byNode := map[string][]*corev1.Pod{}
	for _, p := range s.componentPods() {
		byNode[p.Spec.NodeName] = append(byNode[p.Spec.NodeName], p)
	}
	return byNode
}

// checkNodes finds nodes that are not ready. The pods on such a node may run or not: its kubelet does not report them.
func checkNodes(s *Site) []Finding {
	byNode := s.podsByNode()
	control, lost := s.controlPods(), map[string]string{} // why nodes are not ready
	for _, n := range all[corev1.Node](s, nodes, Everywhere) {
		if why := unreadyNode(n); why != "" {
			lost[n.Name] = why
		}
	}
	if !slices.ContainsFunc(control, func(p *corev1.Pod) bool { return lost[p.Spec.NodeName] == "" }) { // else others run elsewhere
		for _, p := range control {
			byNode[p.Spec.NodeName] = append(byNode[p.Spec.NodeName], p)
		}
	}
	answering := s.answeringPods()
	var findings []Finding
	for _, n := range all[corev1.Node](s, nodes, Everywhere) {
		why := lost[n.Name]
		if why == "" {
			continue
		}
		const machine = "if the node will not return, power off the machine, since its pods may still have their addresses on the VLAN, and then delete the node, so that they start elsewhere: kubectl delete node "
		remedy := fmt.Sprintf("log in to the machine and restart its kubelet, which does not report: systemctl restart kubelet; its log: journalctl -u kubelet; %s%s", machine, n.Name)
		if !silentKubelet(n) {
			remedy = fmt.Sprintf("correct what the message says on the machine: kubectl describe node %[1]s, and journalctl -u kubelet on it; %[2]s%[1]s", n.Name, machine)
		}
		running := slices.ContainsFunc(byNode[n.Name], func(p *corev1.Pod) bool { return answering[p.UID] })
		for _, p := range byNode[n.Name] {
			f := failed(nodeRef(n), remedy, "the node of our pods is not ready: %s", why)
			if running {
				f.Message += "; pods of ours on it still answer"
			}
			evidence := "Pod " + p.Name + " is on it"
			if answering[p.UID] {
				evidence += ", and answers the API server"
			}
			findings = append(findings, f.because(evidence).of(componentOf(p))) // those of one node are merged
		}
	}
	return findings
}

// controlPods returns the pods of control.
func (s *Site) controlPods() []*corev1.Pod {
	return slices.DeleteFunc(all[corev1.Pod](s, pods, AtSystem), func(p *corev1.Pod) bool { return componentOf(p) != componentControl })
}

// answeringPods returns the pods that returned a page, by UID. The API server requests pages without the kubelet.
func (s *Site) answeringPods() map[types.UID]bool {
	answering := map[types.UID]bool{}
	for _, p := range nodePages {
		for _, answer := range s.pageBodies(p, AtInfra) {
			answering[answer.pod.UID] = true
		}
	}
	for _, answer := range s.pageBodies(controlState, AtSystem) {
		answering[answer.pod.UID] = true
	}
	return answering
}

// silentKubelet reports whether the kubelet of a node no longer reports its state.
func silentKubelet(n *corev1.Node) bool {
	return !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionUnknown
	})
}

func nodeRef(n *corev1.Node) model.Ref { return model.Ref{Kind: nodes.Kind, Name: n.Name} }

// unreadyNode returns why a node is not ready, empty if it is.
func unreadyNode(n *corev1.Node) string {
	reported := false
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady:
			reported = true
			if c.Status != corev1.ConditionTrue {
				return fmt.Sprintf("%s: %s", c.Reason, c.Message)
			}
		case c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue:
			return fmt.Sprintf("its pod network is unavailable: %s: %s", c.Reason, c.Message)
		}
	}
	if !reported {
		return "its kubelet has not reported"
	}
	return ""
}

// checkNodePressure finds nodes on which the kubelet evicts pods.
func checkNodePressure(s *Site) []Finding {
	byNode := s.podsByNode()
	resources := map[corev1.NodeConditionType]string{corev1.NodeMemoryPressure: "memory", corev1.NodeDiskPressure: "disk space", corev1.NodePIDPressure: "process IDs"}
	var findings []Finding
	for _, n := range all[corev1.Node](s, nodes, Everywhere) {
		if len(byNode[n.Name]) == 0 {
			continue
		}
		for _, c := range n.Status.Conditions {
			if what := resources[c.Type]; what != "" && c.Status == corev1.ConditionTrue {
				f := warned(nodeRef(n), "free "+what+" on the node, or move pods to other nodes: kubectl describe node "+n.Name, "the node is short of %s: the kubelet evicts pods, which may be ours", what)
				for _, p := range byNode[n.Name] {
					f = f.because("Pod " + p.Name + " runs on it")
				}
				findings = append(findings, f.because(fmt.Sprintf("%s: %s", c.Reason, c.Message)))
			}
		}
	}
	return findings
}
