package guest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// poolAnnotations are MetalLB's annotations that select a pool: the current one, and that of releases up to 0.14.
var poolAnnotations = []string{"metallb.io/address-pool", "metallb.universe.tf/address-pool"}

// service returns the desired Service. Its target ports are names, which the pods of every router have.
func (w *Wanted) service() *corev1ac.ServiceApplyConfiguration {
	in := w.Apps.Service
	if in == nil {
		in = &v1alpha1.AppsIngressService{}
	}
	annotations, objectLabels := map[string]string{}, map[string]string{}
	maps.Copy(annotations, in.Annotations)
	maps.Copy(objectLabels, in.Labels)
	maps.Copy(annotations, w.annotations())
	maps.Copy(objectLabels, w.labels())
	ports := w.Apps.EffectivePorts()
	port := func(name string, number int32) *corev1ac.ServicePortApplyConfiguration {
		return corev1ac.ServicePort().WithName(name).WithProtocol(corev1.ProtocolTCP).WithPort(number).WithTargetPort(intstr.FromString(name))
	}
	spec := corev1ac.ServiceSpec().WithType(corev1.ServiceTypeLoadBalancer).WithSelector(w.selector()).
		WithPorts(port("http", ports.HTTP), port("https", ports.HTTPS))
	if in.IPFamilyPolicy != nil {
		spec.WithIPFamilyPolicy(*in.IPFamilyPolicy)
	}
	if in.ExternalTrafficPolicy != "" {
		spec.WithExternalTrafficPolicy(in.ExternalTrafficPolicy)
	}
	if m := w.Apps.MetalLB; m != nil {
		if m.LoadBalancerClass != "" {
			spec.WithLoadBalancerClass(m.LoadBalancerClass)
		}
		if m.AddressPoolName != "" {
			for _, key := range poolAnnotations {
				annotations[key] = m.AddressPoolName
			}
		}
	}
	return corev1ac.Service(w.Service.Name, w.Service.Namespace).WithLabels(objectLabels).WithAnnotations(annotations).WithSpec(spec)
}

// EnsureService applies the apps Service and returns it. If the Service belongs to another Infra or client, is being
// deleted or has another load balancer class, EnsureService does not change it and returns an error. Every error is a
// *Fault.
func (c *Cluster) EnsureService(ctx context.Context, w *Wanted) (*corev1.Service, error) {
	existing := &corev1.Service{}
	err := c.client.Get(ctx, w.Service, existing)
	if client.IgnoreNotFound(err) != nil {
		return nil, apiFault(err, "reading Service "+w.Service.String())
	}
	if err == nil && existing.Annotations[v1alpha1.AnnotationInfra] != w.Infra.String() {
		return nil, &Fault{v1alpha1.AppsIngressServiceForeign, fmt.Sprintf(
			"Service %s exists and does not belong to Infra %s: set another spec.appsIngress.service.name, delete the Service, or hand it over with the "+
				"annotation %s: %s",
			w.Service, w.Infra, v1alpha1.AnnotationInfra, w.Infra)}
	}
	if existing.DeletionTimestamp != nil {
		return nil, &Fault{v1alpha1.AppsIngressAddressNotAssigned, fmt.Sprintf("Service %s is being deleted, and will be created again", w.Service)}
	}
	wanted := w.service()
	if class := wanted.Spec.LoadBalancerClass; err == nil && ptr.Deref(class, "") != ptr.Deref(existing.Spec.LoadBalancerClass, "") &&
		existing.Spec.Type == corev1.ServiceTypeLoadBalancer {
		return nil, &Fault{v1alpha1.AppsIngressServiceRejected, fmt.Sprintf(
			"Service %s has the load balancer class %q, which cannot be changed to %q: delete the Service, and it will be created again",
			w.Service, ptr.Deref(existing.Spec.LoadBalancerClass, ""), ptr.Deref(class, ""))}
	}
	if err == nil && correctPorts(existing, wanted.Spec.Ports) {
		if err := c.client.Update(ctx, existing, client.FieldOwner(fieldManager)); err != nil {
			return nil, apiFault(err, "correcting the ports of Service "+w.Service.String())
		}
	}
	// ForceOwnership reverts changes that other clients have made to our fields.
	err = c.client.Apply(ctx, wanted, client.FieldOwner(fieldManager), client.ForceOwnership)
	if apierrors.IsNotFound(err) && w.Service.Namespace != v1alpha1.DefaultAppsServiceNamespace {
		return nil, &Fault{v1alpha1.AppsIngressServiceRejected, fmt.Sprintf("the hosted cluster has no namespace %s: %s", w.Service.Namespace, namespaceHint)}
	}
	if err != nil {
		return nil, apiFault(err, "applying Service "+w.Service.String())
	}
	if err := c.client.Get(ctx, w.Service, existing); err != nil {
		return nil, apiFault(err, "reading Service "+w.Service.String())
	}
	return existing, nil
}

// namespaceHint explains which field to set if the router's pods are in another namespace.
const namespaceHint = "spec.appsIngress.service.namespace is a namespace of the hosted cluster, not of the management cluster; " +
	"set it to the namespace of the router's pods, or omit it for " + v1alpha1.DefaultAppsServiceNamespace

// SelectorFault returns a Fault if the Service selects no pods, so that its address has no endpoint. It returns nil if
// the pods cannot be listed, and in the namespace of the default router, whose pods may not exist yet.
func (c *Cluster) SelectorFault(ctx context.Context, w *Wanted) *Fault {
	if w.Service.Namespace == v1alpha1.DefaultAppsServiceNamespace {
		return nil
	}
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	err := c.client.List(ctx, pods, client.InNamespace(w.Service.Namespace), client.MatchingLabels(w.selector()), client.Limit(1))
	if err != nil || len(pods.Items) > 0 {
		return nil //nolint:nilerr // without the right to list pods the result is unknown
	}
	return &Fault{v1alpha1.AppsIngressNotAnnounced, fmt.Sprintf("no pod in namespace %s of the hosted cluster has the labels that Service %s selects, %s: %s",
		w.Service.Namespace, w.Service.Name, labels.FormatLabels(w.selector()), namespaceHint)}
}

// correctPorts removes the ports of a Service that are not wanted, and reports whether there were any. Apply merges
// ports by number, so that it would keep ports of other clients, with names that may conflict with ours.
func correctPorts(existing *corev1.Service, wanted []corev1ac.ServicePortApplyConfiguration) bool {
	kept := existing.Spec.Ports[:0:0]
	for _, p := range wanted {
		port := corev1.ServicePort{Name: *p.Name, Protocol: *p.Protocol, Port: *p.Port, TargetPort: *p.TargetPort}
		for _, old := range existing.Spec.Ports {
			if old.Name == port.Name {
				port.NodePort, port.AppProtocol = old.NodePort, old.AppProtocol
			}
		}
		kept = append(kept, port)
	}
	foreign := slices.ContainsFunc(existing.Spec.Ports, func(old corev1.ServicePort) bool {
		return !slices.ContainsFunc(kept, func(p corev1.ServicePort) bool { return p.Port == old.Port && p.Protocol == old.Protocol })
	})
	if foreign {
		existing.Spec.Ports = kept
	}
	return foreign
}

// isAuthorizationError reports whether a Forbidden error is caused by a missing right, in which case its message
// names the user. Policies, webhooks and quotas reject objects with the same status.
func isAuthorizationError(err error) bool { return strings.Contains(err.Error(), `User "`) }

// apiFault converts an error of a hosted cluster's API server. action is what was being done.
func apiFault(err error, action string) *Fault {
	reason, hint := v1alpha1.AppsIngressHostedClusterUnreachable, ""
	switch {
	case apierrors.IsUnauthorized(err):
		reason, hint = v1alpha1.AppsIngressKubeconfigRejected, ": renew the administrator's kubeconfig"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		reason, hint = v1alpha1.AppsIngressKubeconfigRejected,
			": the administrator's kubeconfig does not trust the API server's certificate; renew it, or correct the certificate"
	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		reason, hint = v1alpha1.AppsIngressServiceRejected, ": the namespace is being deleted"
	case apierrors.IsForbidden(err) && !isAuthorizationError(err):
		reason = v1alpha1.AppsIngressServiceRejected
	case apierrors.IsForbidden(err):
		reason, hint = v1alpha1.AppsIngressHostedClusterForbidden, ": grant this right to the user of the administrator's kubeconfig"
	case apierrors.IsNotFound(err):
		reason, hint = v1alpha1.AppsIngressAddressNotAssigned, ": the hosted cluster's ingress is not installed yet"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		reason = v1alpha1.AppsIngressServiceRejected
	}
	return &Fault{reason, fmt.Sprintf("%s: %v%s", action, err, hint)}
}
