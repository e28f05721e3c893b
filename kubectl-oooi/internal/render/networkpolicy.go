package render

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/densityops/oooi/api/v1alpha1"
)

// networkPolicies returns a NetworkPolicy for each component, which admits only the ports that others use. The
// policies apply to the pod network, not to the VLAN, because a NetworkPolicy applies to a pod's first interface.
// They do not restrict egress, because no selector matches the address of the API server.
func networkPolicies(in *Input) ([]runtime.Object, error) {
	var list []runtime.Object
	spec := &in.Infra.Spec.InfraComponents
	if spec.Proxy.IsEnabled() {
		var serves []networkingv1.NetworkPolicyPort
		for _, p := range in.proxyPorts(in.proxyServer()) {
			serves = append(serves, policyPort(p.Protocol, p.Port))
		}
		observed := []int32{9901, 9902}
		if in.hasFloatingAddress() {
			observed = append(observed, holderPort)
		}
		list = append(list, in.networkPolicy(v1alpha1.ComponentProxy, observed, serves...))
	}
	if spec.DNS.IsEnabled() {
		list = append(list, in.networkPolicy(v1alpha1.ComponentDNS, []int32{8080, 8181, 9153, 9908},
			policyPort(corev1.ProtocolUDP, 53), policyPort(corev1.ProtocolTCP, 53)))
	}
	if spec.DHCP.IsEnabled() {
		list = append(list, in.networkPolicy(v1alpha1.ComponentDHCP, []int32{9903})) // it serves only the VLAN
	}
	return list, nil
}

// networkPolicy admits all pods to the observed ports, with health and metrics, and all sources to the served ports:
// clients may run in the network of a node, which no selector matches either.
func (in *Input) networkPolicy(component string, observed []int32, serves ...networkingv1.NetworkPolicyPort) runtime.Object {
	anyPod := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}}
	rule := networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{anyPod}}
	for _, port := range observed {
		rule.Ports = append(rule.Ports, policyPort(corev1.ProtocolTCP, port))
	}
	rules := []networkingv1.NetworkPolicyIngressRule{rule}
	if len(serves) > 0 { // a rule without ports would admit all ports
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{Ports: serves})
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
