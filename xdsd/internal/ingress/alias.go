package ingress

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/densityops/oooi/api/v1alpha1"
)

// aliasName is the name of the Service that stands for a source: it begins like the Ingress's and
// ends with what stands for the source, and stays as long as the two do.
func aliasName(v *v1alpha1.VirtualIngress, s source, suffix string) string {
	end := "-" + digest(v.Name+suffix, s.key())
	begin := strings.ReplaceAll(v.Name+suffix, ".", "-")
	begin = strings.TrimRight(begin[:min(len(begin), validation.DNS1035LabelMaxLength-len(end))], "-")
	if begin == "" || begin[0] < 'a' { // a Service's name begins with a letter
		begin = strings.TrimRight("v"+begin[:min(len(begin), validation.DNS1035LabelMaxLength-len(end)-1)], "-")
	}
	return begin + end
}

// digest tells texts apart, in ten letters.
func digest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\n")))
	return hex.EncodeToString(sum[:5])
}

// alias is the Service of a fixed name that stands for the one that was found.
func alias(v *v1alpha1.VirtualIngress, b *backend) *corev1.Service {
	out := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Namespace, Name: b.alias, OwnerReferences: []metav1.OwnerReference{ownerOf(v)},
			Annotations: map[string]string{
				v1alpha1.AnnotationVirtualIngress: v.Namespace + "/" + v.Name,
				v1alpha1.AnnotationAliasOf:        b.source.namespace + "/" + b.service.Name,
			},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
			PublishNotReadyAddresses: b.service.Spec.PublishNotReadyAddresses,
			// The API server's defaults, so that nobody else sets them.
			SessionAffinity: corev1.ServiceAffinityNone, InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		},
	}
	if !mirrors(v, b) {
		out.Spec.Selector = b.service.Spec.Selector
	}
	for _, p := range b.service.Spec.Ports {
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP // it is part of the key by which ports are told apart
		}
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port, TargetPort: p.TargetPort,
		})
	}
	return out
}

// mirrors reports whether an alias has copies of the endpoints, for it cannot select the pods: the
// Service does not, or is of another namespace.
func mirrors(v *v1alpha1.VirtualIngress, b *backend) bool {
	return b.source.namespace != v.Namespace || len(b.service.Spec.Selector) == 0
}

// mirror is the copy of endpoints for an alias. Of what the original says, hints are left out,
// which are for the original's clients, and references to objects of another namespace.
func mirror(v *v1alpha1.VirtualIngress, aliasName string, in *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Namespace, Name: fmt.Sprintf("%s-%s", aliasName, digest(in.Namespace, in.Name, string(in.AddressType))),
			Labels: map[string]string{discoveryv1.LabelServiceName: aliasName, discoveryv1.LabelManagedBy: manager},
			Annotations: map[string]string{
				v1alpha1.AnnotationVirtualIngress: v.Namespace + "/" + v.Name,
				v1alpha1.AnnotationAliasOf:        in.Namespace + "/" + in.Labels[discoveryv1.LabelServiceName],
			},
			OwnerReferences: []metav1.OwnerReference{ownerOf(v)},
		},
		AddressType: in.AddressType, Ports: in.Ports, Endpoints: []discoveryv1.Endpoint{},
	}
	for i := range in.Endpoints {
		e := &in.Endpoints[i]
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: e.Addresses, Conditions: e.Conditions, Hostname: e.Hostname, NodeName: e.NodeName, Zone: e.Zone,
		})
	}
	return out
}
