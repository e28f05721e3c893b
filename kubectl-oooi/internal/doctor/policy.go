package doctor

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/densityops/oooi/api/v1alpha1"
)

// matches reports whether a selector selects a set of labels. An invalid selector selects nothing.
func matches(selector *metav1.LabelSelector, set labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(set)
}

// admits reports whether a rule admits the proxy's pods to the API server's port.
func (s *Site) admits(r networkingv1.NetworkPolicyIngressRule) bool {
	const apiServer = 6443
	port := len(r.Ports) == 0
	for _, p := range r.Ports {
		last := p.EndPort
		switch {
		case p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP:
		case p.Port == nil || p.Port.StrVal != "": // a named port may be the API server's
			port = true
		case last == nil:
			port = port || p.Port.IntVal == apiServer
		default:
			port = port || p.Port.IntVal <= apiServer && apiServer <= *last
		}
	}
	if !port {
		return false
	}
	if len(r.From) == 0 {
		return true
	}
	namespace := labels.Set{corev1.LabelMetadataName: s.Infra.Namespace}
	pod := labels.Set{
		labelPartOf: partOf, v1alpha1.LabelInfra: s.Infra.Name, v1alpha1.LabelComponent: v1alpha1.ComponentProxy, v1alpha1.LabelProxyServer: s.Infra.Name,
	}
	for _, from := range r.From {
		if from.IPBlock != nil || from.NamespaceSelector == nil {
			continue // selects pods of the policy's own namespace
		}
		if matches(from.NamespaceSelector, namespace) && (from.PodSelector == nil || matches(from.PodSelector, pod)) {
			return true
		}
	}
	return false
}
