package guest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// poolAnnotations are MetalLB's annotations that select a pool: the current one, and the one of releases up to 0.14.
var poolAnnotations = []string{"metallb.io/address-pool", "metallb.universe.tf/address-pool"}

// service returns the desired Service. Its target ports are names, which the pods of every router have.
func (w *Wanted) service() *unstructured.Unstructured {
	in := cmp.Or(w.Apps.Service, &v1alpha1.AppsIngressService{})
	numbers := w.Apps.EffectivePorts()
	port := func(name string, number int32) any {
		return map[string]any{"name": name, "protocol": "TCP", "port": int64(number), "targetPort": name}
	}
	selector := map[string]any{}
	for key, value := range w.selector() {
		selector[key] = value
	}
	fields := map[string]any{
		"type": "LoadBalancer", "selector": selector, "ports": []any{port("http", numbers.HTTP), port("https", numbers.HTTPS)},
		"ipFamilyPolicy": string(ptr.Deref(in.IPFamilyPolicy, "")), "externalTrafficPolicy": string(in.ExternalTrafficPolicy),
	}
	annotations := labels.Merge(in.Annotations, nil)
	if m := w.Apps.MetalLB; m != nil {
		fields["loadBalancerClass"] = m.LoadBalancerClass
		if m.AddressPoolName != "" {
			for _, key := range poolAnnotations {
				annotations[key] = m.AddressPoolName
			}
		}
	}
	service := object(kindService, w.Service.Namespace, w.Service.Name, spec(fields))
	service.SetLabels(in.Labels)
	service.SetAnnotations(annotations)
	return service
}

// EnsureService applies the apps Service and returns it. If the Service belongs to another Infra or client, or is being
// deleted, EnsureService does not change it and returns an error. Every error is a *Fault.
func (c *Cluster) EnsureService(ctx context.Context, w *Wanted) (*corev1.Service, error) {
	wanted := w.service()
	existing, err := c.existing(ctx, w, wanted)
	if err == nil && existing != nil {
		err = c.removeForeignPorts(ctx, existing, wanted)
	}
	if err == nil {
		err = c.apply(ctx, w, wanted)
	}
	switch {
	case errors.Is(err, errForeign):
		return nil, &Fault{v1alpha1.AppsIngressServiceForeign, fmt.Sprintf(
			"%v; set another spec.appsIngress.service.name, delete the Service, or hand it over with the annotation %s: %s",
			err, v1alpha1.AnnotationInfra, w.Infra)}
	case apierrors.IsNotFound(err) && w.Service.Namespace != v1alpha1.DefaultAppsServiceNamespace:
		return nil, &Fault{v1alpha1.AppsIngressServiceRejected, fmt.Sprintf("the hosted cluster lacks namespace %s: %s", w.Service.Namespace, namespaceHint)}
	case err != nil:
		return nil, apiFault(err)
	}
	service := &corev1.Service{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(wanted.Object, service); err != nil {
		return nil, apiFault(fmt.Errorf("reading the applied Service: %w", err))
	}
	return service, nil
}

// removeForeignPorts replaces the ports of a Service if some are not wanted. Apply merges ports by number, so that it would keep
// ports of other clients, with names that may conflict with the Service's.
func (c *Cluster) removeForeignPorts(ctx context.Context, existing, wanted *unstructured.Unstructured) error {
	ports, _, _ := unstructured.NestedSlice(wanted.Object, "spec", "ports")
	now, _, _ := unstructured.NestedSlice(existing.Object, "spec", "ports") // the API server returns valid Services
	number := func(port any) string {
		fields, _ := port.(map[string]any)
		return fmt.Sprint(fields["port"], fields["protocol"])
	}
	isForeign := func(port any) bool {
		return !slices.ContainsFunc(ports, func(p any) bool { return number(p) == number(port) })
	}
	if !slices.ContainsFunc(now, isForeign) {
		return nil
	}
	corrected := existing.DeepCopy()
	err := unstructured.SetNestedSlice(corrected.Object, ports, "spec", "ports")
	if err == nil {
		err = c.client.Patch(ctx, corrected, client.MergeFrom(existing), fieldManager)
	}
	if err != nil {
		return fmt.Errorf("correcting the ports of %s: %w", describe(wanted), err)
	}
	return nil
}

// namespaceHint explains which field to set if the router's pods are in another namespace.
const namespaceHint = "spec.appsIngress.service.namespace is a namespace of the hosted cluster, not of the management cluster; " +
	"set it to the namespace of the router's pods, or omit it for " + v1alpha1.DefaultAppsServiceNamespace

// SelectorFault returns a Fault if the Service selects no pods, so that its address lacks an endpoint. It returns nil
// if the pods cannot be listed, and in the namespace of the default router, whose pods may not exist yet.
func (c *Cluster) SelectorFault(ctx context.Context, w *Wanted) *Fault {
	if w.Service.Namespace == v1alpha1.DefaultAppsServiceNamespace {
		return nil
	}
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(kindPod.GroupVersion().WithKind("PodList"))
	err := c.client.List(ctx, pods, client.InNamespace(w.Service.Namespace), client.MatchingLabels(w.selector()), client.Limit(1))
	if err != nil || len(pods.Items) > 0 {
		return nil //nolint:nilerr // without permission to list pods the result is unknown
	}
	return &Fault{v1alpha1.AppsIngressNotAnnounced, fmt.Sprintf("no pod in namespace %s of the hosted cluster has the labels that Service %s selects, %s: %s",
		w.Service.Namespace, w.Service.Name, labels.FormatLabels(w.selector()), namespaceHint)}
}

// isAuthorizationError reports whether a Forbidden error is caused by a missing permission, in which case its message
// names the user. Policies, webhooks and quotas reject objects with the same status.
func isAuthorizationError(err error) bool { return strings.Contains(err.Error(), `User "`) }

// apiFault converts an error of a request to a hosted cluster's API server.
func apiFault(err error) *Fault {
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
		reason, hint = v1alpha1.AppsIngressHostedClusterForbidden, "; grant this permission to the user of the administrator's kubeconfig"
	case errors.Is(err, errDeleting):
		reason = v1alpha1.AppsIngressAddressNotAssigned
	case apierrors.IsNotFound(err):
		reason, hint = v1alpha1.AppsIngressAddressNotAssigned, ": the hosted cluster's ingress is not installed yet"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		reason = v1alpha1.AppsIngressServiceRejected
	}
	return &Fault{reason, err.Error() + hint}
}
