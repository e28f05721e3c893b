package render

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// networkPolicy returns the NetworkPolicy of a component. It admits all pods to the observed ports, with health and metrics, and
// all sources to the ports of the Service: clients may run in the network of a node, which no selector matches. The policy
// applies to the pod network, not to the VLAN, because a NetworkPolicy applies to a pod's first interface. It does not restrict
// egress, because no selector matches the address of the API server.
func (in *Input) networkPolicy(component string, w *workload) runtime.Object {
	rules := []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}}}
	for _, port := range w.observed {
		rules[0].Ports = append(rules[0].Ports, policyPort(corev1.ProtocolTCP, port))
	}
	if len(w.ports) > 0 { // a rule without ports would admit all ports
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{})
		for _, p := range w.ports {
			rules[1].Ports = append(rules[1].Ports, policyPort(p.Protocol, p.Port))
		}
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: in.meta(component, in.name(component)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: in.labels(component)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     rules,
		},
	}
}

func policyPort(protocol corev1.Protocol, port int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt32(port))}
}
