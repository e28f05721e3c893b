package render

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// egressRules returns the NetworkPolicy's rules for connections of the proxy; nil if they are not restricted. On egress ports, they
// allow only addresses to which egress names may resolve, and the proxy's targets in the cluster: a second barrier if the resolver
// of xdsd serve fails. Other ports are unrestricted, because no selector matches the API server's addresses.
func (in *Input) egressRules() []networkingv1.NetworkPolicyEgressRule {
	server := in.Snapshot.ProxyServer(in.proxyKey())
	if server == nil || server.Egress == nil || in.ControlPlane == "" && !in.standalone() {
		return nil
	}
	var datagrams []int32
	if len(in.ntpServers()) > 0 {
		datagrams = []int32{v1alpha1.NTPPort}
	}
	ports := in.egressPorts()
	var forwarded []networkingv1.NetworkPolicyPort
	for _, port := range ports {
		forwarded = append(forwarded, policyPort(corev1.ProtocolTCP, port))
	}
	for _, port := range datagrams {
		forwarded = append(forwarded, policyPort(corev1.ProtocolUDP, port))
	}
	if len(forwarded) == 0 { // a rule without ports would allow all
		return nil
	}
	others := append(otherPorts(corev1.ProtocolUDP, datagrams), otherPorts(corev1.ProtocolTCP, ports)...)
	rules := []networkingv1.NetworkPolicyEgressRule{{Ports: others}, {Ports: forwarded}}
	to := &rules[1].To
	for _, namespace := range slices.Concat([]string{in.ControlPlane}, in.BackendControlPlanes, in.backendNamespaces()) {
		if namespace != "" {
			*to = append(*to, networkingv1.NetworkPolicyPeer{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			})
		}
	}
	for _, u := range server.Upstreams {
		for _, a := range u.Addresses {
			*to = append(*to, blockPeer(netip.PrefixFrom(a.Addr(), a.Addr().BitLen())))
		}
	}
	for _, block := range server.Egress.Blocks() {
		*to = append(*to, blockPeer(block.Prefix, block.Except...))
	}
	return rules
}

// egress returns the egress fields of the Infra and of its ProxyServer, without nil ones.
func (in *Input) egress() []*v1alpha1.Egress {
	return slices.DeleteFunc([]*v1alpha1.Egress{in.Infra.Spec.Egress, in.ProxySpec.Egress}, func(e *v1alpha1.Egress) bool { return e == nil })
}

// parentProxyCredentials returns the environment variable of Envoy with the credentials for the parent proxy; nil without credentials.
func (in *Input) parentProxyCredentials() []corev1.EnvVar {
	for _, e := range in.egress() {
		if e.ParentProxy != nil && e.ParentProxy.SecretRef != nil {
			return []corev1.EnvVar{{Name: model.AuthorizationVariable, ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: *e.ParentProxy.SecretRef, Key: "authorization"},
			}}}
		}
	}
	return nil
}

// ntpServers returns egress.ntp of the Infra and of its ProxyServer.
func (in *Input) ntpServers() []v1alpha1.NTPServer {
	var list []v1alpha1.NTPServer
	for _, e := range in.egress() {
		list = append(list, e.NTP...)
	}
	return list
}

// egressPorts returns the TCP ports of egress, sorted.
func (in *Input) egressPorts() []int32 {
	var ports []int32
	for _, e := range in.egress() {
		ports = append(ports, e.EffectivePorts()...)
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// otherPorts returns the ports of a protocol that are not in a sorted list.
func otherPorts(protocol corev1.Protocol, ports []int32) []networkingv1.NetworkPolicyPort {
	var list []networkingv1.NetworkPolicyPort
	first := int32(1)
	for _, port := range append(slices.Clone(ports), 65536) {
		if first < port {
			list = append(list, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt32(first)), EndPort: new(port - 1)})
		}
		first = port + 1
	}
	return list
}

func blockPeer(network netip.Prefix, except ...netip.Prefix) networkingv1.NetworkPolicyPeer {
	block := &networkingv1.IPBlock{CIDR: network.String()}
	for _, p := range except {
		block.Except = append(block.Except, p.String())
	}
	return networkingv1.NetworkPolicyPeer{IPBlock: block}
}
