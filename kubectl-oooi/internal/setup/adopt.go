package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// owned refuses a plan with objects that exist and that setup has not created, unless Adopt allows them. What Helm
// has installed of the base is left to it; a namespace that somebody else has created is used as it is.
func (a *Applier) owned(ctx context.Context, p *Plan) error {
	known, err := inventory.Load(ctx, a.Client, types.NamespacedName{Namespace: p.Infra.Namespace, Name: p.Infra.Name})
	if err != nil {
		return err
	}
	a.releases = map[string]int{}
	objects := slices.DeleteFunc(slices.Clone(p.Objects), func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Infra" || o.GetKind() == "ProxyServer" || slices.Contains(p.Kept, o.GetKind()) // which the user asks setup to apply
	})
	there := make([]*unstructured.Unstructured, len(objects))
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, o := range objects {
		group.Go(func() (err error) {
			there[i], err = a.current(each, o)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err //nolint:wrapcheck // it is current's
	}
	var errs []error
	for i, o := range objects {
		live := there[i]
		if live == nil {
			continue
		}
		why := foreign(o, live, known)
		switch release := live.GetAnnotations()[helmRelease]; {
		case release != "" && p.shared(o):
			a.releases[live.GetAnnotations()[helmNamespace]+"/"+release]++
			a.left = append(a.left, inventory.Of(o))
		case why == "" || o.GetKind() == "Namespace" && live.GetDeletionTimestamp() != nil: // it is created anew
		case o.GetKind() == "Namespace":
			a.left = append(a.left, inventory.Of(o))
		case !a.Adopt:
			errs = append(errs, fmt.Errorf("%s exists and %s: delete or rename it, or take it over with --adopt; teardown then deletes it", inventory.Of(o), why))
		}
	}
	if len(errs) > 0 {
		return errors.Join(append(errs, errors.New("nothing was applied"))...)
	}
	return nil
}

// foreign says why an object in the cluster is not one that setup has created in the place of want; empty for
// one that it has, or that somebody has applied out of what setup prints.
func foreign(want, live *unstructured.Unstructured, known []inventory.Entry) string {
	ours, theirs := want.GetAnnotations()[v1alpha1.AnnotationInfra], live.GetAnnotations()[v1alpha1.AnnotationInfra]
	switch {
	case slices.ContainsFunc(known, func(e inventory.Entry) bool { return e.Same(inventory.Of(want)) && e.UID == live.GetUID() }):
		return ""
	case theirs != "" && ours != theirs:
		return "belongs to Infra " + theirs
	case live.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy:
		return ""
	case want.GetKind() != "Namespace" && slices.ContainsFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == Manager }):
		return "" // somebody has taken our label off
	default:
		return "was not created by setup"
	}
}

// inhabitant says why a namespace of ours must not be deleted: an object of others is in it, or may be; empty for
// none.
func inhabitant(ctx context.Context, c client.Client, namespace string) (string, error) {
	for _, kind := range []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("Deployment"), appsv1.SchemeGroupVersion.WithKind("StatefulSet"), appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
		corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), corev1.SchemeGroupVersion.WithKind("Service"),
		corev1.SchemeGroupVersion.WithKind("ServiceAccount"), corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		err := c.List(ctx, list, client.InNamespace(namespace))
		if apierrors.IsForbidden(err) {
			return "listing " + kind.Kind + ", which may exist in it", nil
		}
		if err != nil {
			return "", fmt.Errorf("looking for objects of others in namespace %s: %w", namespace, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if o.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy && !slices.Contains(inEachNamespace, kind.Kind+" "+o.Name) {
				return kind.Kind + " " + namespace + "/" + o.Name + " exists in it and is not managed by setup", nil
			}
		}
	}
	return "", nil
}

// inEachNamespace is what Kubernetes and OpenShift create in every namespace.
var inEachNamespace = []string{
	"ConfigMap kube-root-ca.crt", "ConfigMap openshift-service-ca.crt", "ServiceAccount default", "ServiceAccount builder", "ServiceAccount deployer",
}
