package setup

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// missingNodes rejects a node placement for which no node is suitable. If the present StatefulSets have this placement, it adds a warning
// instead: the change does not affect where pods run.
func (c *change) missingNodes() {
	placement := c.Infra.Spec.NodePlacement
	if placement == nil {
		return
	}
	errs := validation.ValidateLabels(placement.Selector(), field.NewPath("spec", "nodePlacement", "nodeSelector"))
	for _, err := range errs {
		c.refuse("%v", err)
	}
	if len(errs) > 0 || !c.discovered {
		return
	}
	if why := c.live.Unread(site.Nodes, ""); why != "" {
		c.warn("%s; setup does not check whether spec.nodePlacement selects nodes", why)
		return
	}
	report := c.refuse
	if c.placedBefore(placement) {
		report = c.warn
	}
	selector, selected := labels.Set(placement.Selector()), 0
	var suitable, taints []string
	for _, node := range site.All[corev1.Node](c.is, site.Nodes, site.Everywhere) {
		if !selector.AsSelector().Matches(labels.Set(node.Labels)) {
			continue
		}
		selected++
		if untolerated := untoleratedTaints(node, placement.Tolerations); len(untolerated) > 0 {
			taints = append(taints, untolerated...)
		} else {
			suitable = append(suitable, node.Name)
		}
	}
	slices.Sort(taints)
	switch {
	case selected == 0 && len(selector) > 0:
		report("spec.nodePlacement.nodeSelector: no node has the labels %q; label the nodes that have the VLAN, or correct the field", selector.String())
	case len(suitable) == 0 && len(taints) > 0:
		report("spec.nodePlacement.tolerations: pods do not tolerate the taints of the selected nodes: %s; add tolerations, or select other nodes",
			strings.Join(slices.Compact(taints), ", "))
	case len(suitable) == 1 && c.hasReplicas():
		c.warn("spec.nodePlacement: pods can run only on node %s, so all replicas of a component fail with it; select more nodes", suitable[0])
	}
}

// placedBefore reports whether the Infra has StatefulSets and all of them have a placement.
func (c *change) placedBefore(placement *v1alpha1.NodePlacement) bool {
	sets := site.All[appsv1.StatefulSet](c.is, site.StatefulSets, site.AtInfra)
	sets = slices.DeleteFunc(sets, func(s *appsv1.StatefulSet) bool { return !c.is.Owns(s.Labels) })
	return len(sets) > 0 && !slices.ContainsFunc(sets, func(s *appsv1.StatefulSet) bool {
		pod := s.Spec.Template.Spec
		return !equality.Semantic.DeepEqual(pod.NodeSelector, placement.Selector()) || !equality.Semantic.DeepEqual(pod.Tolerations, placement.Tolerations)
	})
}

// untoleratedTaints returns the taints that keep pods from a node. It ignores taints by which Kubernetes describes a node's present
// condition, such as node.kubernetes.io/unschedulable.
func untoleratedTaints(node *corev1.Node, tolerations []corev1.Toleration) (list []string) {
	for _, taint := range node.Spec.Taints {
		tolerated := slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Logger{}, &taint, true) })
		if !tolerated && taint.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			list = append(list, taint.ToString())
		}
	}
	return list
}

// hasReplicas reports whether a component has several replicas.
func (c *change) hasReplicas() bool {
	dhcp, dns, proxy := c.Infra.Spec.InfraComponents.DHCP, c.Infra.Spec.InfraComponents.DNS, c.Infra.Spec.InfraComponents.Proxy
	return dhcp.IsEnabled() && len(dhcp.Instances) > 1 || dns.IsEnabled() && len(dns.Instances) > 1 || proxy.IsEnabled() && len(proxy.Instances) > 1
}
