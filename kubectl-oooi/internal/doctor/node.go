package doctor

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/internal/model"
)

func init() {
	register(
		Check{
			Code: "OOOI-NODE-001", Title: "the nodes of our pods are ready", Reads: slices.Concat(in(AtInfra, pods), in(Everywhere, nodes)),
			Run: checkNodes,
		},
		Check{
			Code: "OOOI-NODE-002", Title: "the nodes of our pods have enough memory, disk space and process IDs", After: []string{"OOOI-NODE-001"}, Reads: slices.Concat(in(AtInfra, pods), in(Everywhere, nodes)),
			Run: checkNodePressure,
		},
	)
}

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
	var findings []Finding
	for _, n := range all[corev1.Node](s, nodes, Everywhere) {
		why := unreadyNode(n)
		if why == "" {
			continue
		}
		for _, p := range byNode[n.Name] {
			findings = append(findings, failed(nodeRef(n), fmt.Sprintf("check the machine and its kubelet: kubectl describe node %[1]s; if the node will not return, delete it, and its pods start elsewhere: kubectl delete node %[1]s", n.Name),
				"the node of Pod %s is not ready: %s", p.Name, why).of(componentOf(p)))
		}
	}
	return findings
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
