package guest

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Remove deletes the apps Services and the objects of readers for which matches returns true. It does not delete the
// objects of EnsureMetalLB. matches is called with each object and the Infra that it belongs to, "namespace/name".
// Remove continues if a deletion fails, and returns the deleted objects, also with an error.
func (c *Cluster) Remove(ctx context.Context, matches func(infra string, o client.Object) bool) ([]string, error) {
	var removed []string
	var faults []error
	for _, list := range []client.ObjectList{&rbacv1.RoleBindingList{}, &rbacv1.RoleList{}, &corev1.ServiceAccountList{}, &corev1.ServiceList{}} {
		if err := c.client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}); err != nil {
			return removed, errors.Join(append(faults, apiFault(err, fmt.Sprintf("listing %T", list)))...)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return removed, fmt.Errorf("reading %T: %w", list, err)
		}
		for _, item := range items {
			object, ok := item.(client.Object)
			if !ok { // an item without metadata
				continue
			}
			infra := object.GetAnnotations()[v1alpha1.AnnotationInfra]
			if infra == "" || !matches(infra, object) || object.GetDeletionTimestamp() != nil {
				continue
			}
			what := fmt.Sprintf("%T %s/%s", object, object.GetNamespace(), object.GetName())
			uid := object.GetUID()
			if err := client.IgnoreNotFound(c.client.Delete(ctx, object, client.Preconditions{UID: &uid})); err != nil {
				faults = append(faults, apiFault(err, "deleting "+what))
				continue
			}
			removed = append(removed, what)
		}
	}
	return removed, errors.Join(faults...)
}

// Includes reports whether an object is the Service or one of the reader's objects.
func (w *Wanted) Includes(o client.Object) bool {
	_, isService := o.(*corev1.Service)
	name := w.readerName()
	if isService {
		name = w.Service.Name
	}
	return o.GetNamespace() == w.Service.Namespace && o.GetName() == name
}
