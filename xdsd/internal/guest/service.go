package guest

import (
	"context"
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

// MetalLB's annotation of the pool, in the spelling of today and in that of releases up
// to 0.14.
var poolAnnotations = []string{"metallb.io/address-pool", "metallb.universe.tf/address-pool"}

// service is the applications' Service as it is to be. Its targets are ports by name, as
// the pods of every router have them.
func (w *Wanted) service() *corev1ac.ServiceApplyConfiguration {
	in := w.Apps.Service
	if in == nil {
		in = &v1alpha1.AppsIngressService{}
	}
	annotations, own := map[string]string{}, map[string]string{}
	maps.Copy(annotations, in.Annotations)
	maps.Copy(own, in.Labels)
	maps.Copy(annotations, w.annotations())
	maps.Copy(own, w.labels())
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
	return corev1ac.Service(w.Service.Name, w.Service.Namespace).WithLabels(own).WithAnnotations(annotations).WithSpec(spec)
}

// EnsureService applies the applications' Service and returns it. One that is there and
// not the Infra's is left alone.
func (c *Cluster) EnsureService(ctx context.Context, w *Wanted) (*corev1.Service, error) {
	there := &corev1.Service{}
	err := c.client.Get(ctx, w.Service, there)
	if client.IgnoreNotFound(err) != nil {
		return nil, fault(err, "reading Service "+w.Service.String())
	}
	if err == nil && there.Annotations[v1alpha1.AnnotationInfra] != w.Infra.String() {
		return nil, &Fault{v1alpha1.AppsIngressServiceForeign, fmt.Sprintf(
			"Service %s exists and is not managed by oooi; set another spec.appsIngress.service.name, delete it, or hand it over with the annotation %s: %s",
			w.Service, v1alpha1.AnnotationInfra, w.Infra)}
	}
	if there.DeletionTimestamp != nil {
		return nil, &Fault{v1alpha1.AppsIngressAddressNotAssigned, fmt.Sprintf("Service %s is being deleted, and will be created again", w.Service)}
	}
	wanted := w.service()
	if class := wanted.Spec.LoadBalancerClass; err == nil && ptr.Deref(class, "") != ptr.Deref(there.Spec.LoadBalancerClass, "") && there.Spec.Type == corev1.ServiceTypeLoadBalancer {
		return nil, &Fault{v1alpha1.AppsIngressServiceRejected, fmt.Sprintf(
			"Service %s has the load balancer class %q, which cannot be changed to %q: delete the Service, and it will be created again", w.Service, ptr.Deref(there.Spec.LoadBalancerClass, ""), ptr.Deref(class, ""))}
	}
	if err == nil && correctPorts(there, wanted.Spec.Ports) {
		if err := c.client.Update(ctx, there, client.FieldOwner(fieldManager)); err != nil {
			return nil, fault(err, "correcting the ports of Service "+w.Service.String())
		}
	}
	// Ours, so that whoever has changed a field of ours since has to give it back.
	err = c.client.Apply(ctx, wanted, client.FieldOwner(fieldManager), client.ForceOwnership)
	if apierrors.IsNotFound(err) && w.Service.Namespace != v1alpha1.DefaultAppsServiceNamespace {
		return nil, &Fault{v1alpha1.AppsIngressServiceRejected, fmt.Sprintf("the hosted cluster has no namespace %s: %s", w.Service.Namespace, namespaceHint)}
	}
	if err != nil {
		return nil, fault(err, "applying Service "+w.Service.String())
	}
	if err := c.client.Get(ctx, w.Service, there); err != nil {
		return nil, fault(err, "reading Service "+w.Service.String())
	}
	return there, nil
}

// namespaceHint says which field is wrong where the router's pods are elsewhere.
const namespaceHint = "spec.appsIngress.service.namespace is a namespace of the hosted cluster, not of the management cluster; " +
	"set it to the namespace of the router's pods, or omit it for " + v1alpha1.DefaultAppsServiceNamespace

// Unselected says that the Service selects no pods, so that nobody answers at its address; nil when it does, or
// when it is where the default router will be.
func (c *Cluster) Unselected(ctx context.Context, w *Wanted) *Fault {
	if w.Service.Namespace == v1alpha1.DefaultAppsServiceNamespace {
		return nil
	}
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	err := c.client.List(ctx, pods, client.InNamespace(w.Service.Namespace), client.MatchingLabels(w.selector()), client.Limit(1))
	if err != nil || len(pods.Items) > 0 {
		return nil //nolint:nilerr // without the right to look there is nothing to say
	}
	return &Fault{v1alpha1.AppsIngressNotAnnounced, fmt.Sprintf("no pod in namespace %s of the hosted cluster has the labels that Service %s selects, %s: %s",
		w.Service.Namespace, w.Service.Name, labels.FormatLabels(w.selector()), namespaceHint)}
}

// correctPorts leaves of a Service's ports those that are wanted, and reports whether that is
// a change. What is applied is merged with ports of others, by number, and the names in
// such a mixture can be anything.
func correctPorts(there *corev1.Service, wanted []corev1ac.ServicePortApplyConfiguration) bool {
	kept := there.Spec.Ports[:0:0]
	for _, p := range wanted {
		port := corev1.ServicePort{Name: *p.Name, Protocol: *p.Protocol, Port: *p.Port, TargetPort: *p.TargetPort}
		for _, old := range there.Spec.Ports {
			if old.Name == port.Name {
				port.NodePort, port.AppProtocol = old.NodePort, old.AppProtocol
			}
		}
		kept = append(kept, port)
	}
	foreign := slices.ContainsFunc(there.Spec.Ports, func(old corev1.ServicePort) bool {
		return !slices.ContainsFunc(kept, func(p corev1.ServicePort) bool { return p.Port == old.Port && p.Protocol == old.Protocol })
	})
	if foreign {
		there.Spec.Ports = kept
	}
	return foreign
}

// unauthorized tells a user who lacks a right from an object that admission refuses, by a policy, a
// webhook or a quota: the API has one status for both.
func unauthorized(err error) bool { return strings.Contains(err.Error(), `User "`) }

// fault says what an error of a hosted cluster's API server means.
func fault(err error, doing string) *Fault {
	reason, hint := v1alpha1.AppsIngressHostedClusterUnreachable, ""
	switch {
	case apierrors.IsUnauthorized(err):
		reason, hint = v1alpha1.AppsIngressKubeconfigRejected, ": renew the administrator's kubeconfig"
	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		reason, hint = v1alpha1.AppsIngressServiceRejected, ": the namespace is being deleted"
	case apierrors.IsForbidden(err) && !unauthorized(err):
		reason = v1alpha1.AppsIngressServiceRejected
	case apierrors.IsForbidden(err):
		reason, hint = v1alpha1.AppsIngressHostedClusterForbidden, ": grant it to the user of the administrator's kubeconfig"
	case apierrors.IsNotFound(err):
		reason, hint = v1alpha1.AppsIngressAddressNotAssigned, ": the hosted cluster's ingress is not installed yet"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		reason = v1alpha1.AppsIngressServiceRejected
	}
	return &Fault{reason, fmt.Sprintf("%s: %v%s", doing, err, hint)}
}
