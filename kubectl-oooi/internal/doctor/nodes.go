package doctor

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

var nodesReady = Check{
	Code: "OOOI-NODE-001", Title: "the nodes of the pods are ready", Run: checkNodes,
	Reads: slices.Concat(site.In(site.AtInfra, site.Pods), site.In(site.AtSystem, site.Pods), site.In(site.Everywhere, site.Nodes)),
	About: "A node that is not ready, or under pressure, stops or evicts pods; a cordoned node gets no new pods. A pod with a fixed VLAN address starts on " +
		"another node only when Kubernetes knows that it no longer runs on the first one.",
}

// expectedNode are the conditions of a node with their status if it is healthy.
var expectedNode = []struct {
	kind     corev1.NodeConditionType
	status   corev1.ConditionStatus
	severity Severity
}{
	{corev1.NodeReady, corev1.ConditionTrue, Fail},
	{corev1.NodeMemoryPressure, corev1.ConditionFalse, Warn},
	{corev1.NodeDiskPressure, corev1.ConditionFalse, Warn},
	{corev1.NodePIDPressure, corev1.ConditionFalse, Warn},
}

func checkNodes(s *Site) []Finding {
	byNode := map[string][]*corev1.Pod{} // unscheduled pods by ""
	for _, p := range slices.Concat(s.componentPods(), s.ControlPods()) {
		byNode[p.Spec.NodeName] = append(byNode[p.Spec.NodeName], p)
	}
	nodes := site.All[corev1.Node](s.Site, site.Nodes, site.Everywhere)
	var findings []Finding
	for _, n := range nodes {
		for _, p := range byNode[""] {
			if !n.Spec.Unschedulable || !selects(p, n) {
				continue
			}
			f := failed(site.RefOf(site.Nodes, n), "allow pods on the node again: kubectl uncordon "+n.Name, "the node is cordoned, and oooi's pods wait for a node")
			if slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return !n.Spec.Unschedulable && selects(p, n) }) {
				f.Severity = Warn // the pods may wait for another reason
			}
			findings = append(findings, f.forComponent(componentOf(p)))
		}
		for _, c := range n.Status.Conditions {
			for _, e := range expectedNode {
				if c.Type != e.kind || c.Status == e.status {
					continue
				}
				f := failed(site.RefOf(site.Nodes, n), "correct the fault that its conditions name: kubectl describe node "+n.Name,
					"the node has condition %s=%s: %s", c.Type, c.Status, c.Message)
				f.Severity = e.severity
				for _, p := range byNode[n.Name] {
					findings = append(findings, f.forComponent(componentOf(p)))
				}
			}
		}
	}
	return findings
}

// selects reports whether a node has the labels in a pod's node selector.
func selects(p *corev1.Pod, n *corev1.Node) bool {
	return labels.Set(p.Spec.NodeSelector).AsSelector().Matches(labels.Set(n.Labels))
}
