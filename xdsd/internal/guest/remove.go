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

// Remove deletes what is ours in the hosted cluster as far as the caller says so of the
// Infra, "namespace/name", that an object belongs to, and of the object. It returns what
// it has deleted.
func (c *Cluster) Remove(ctx context.Context, which func(infra string, o client.Object) bool) ([]string, error) {
	var removed []string
	var faults []error
	for _, list := range []client.ObjectList{&rbacv1.RoleBindingList{}, &rbacv1.RoleList{}, &corev1.ServiceAccountList{}, &corev1.ServiceList{}} {
		if err := c.client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}); err != nil {
			return removed, errors.Join(append(faults, fault(err, fmt.Sprintf("listing %T", list)))...)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return removed, fmt.Errorf("reading %T: %w", list, err)
		}
		for _, item := range items {
			object, ok := item.(client.Object)
			if !ok { // which has no metadata
				continue
			}
			infra := object.GetAnnotations()[v1alpha1.AnnotationInfra]
			if infra == "" || !which(infra, object) || object.GetDeletionTimestamp() != nil {
				continue
			}
			what := fmt.Sprintf("%T %s/%s", object, object.GetNamespace(), object.GetName())
			uid := object.GetUID()
			if err := client.IgnoreNotFound(c.client.Delete(ctx, object, client.Preconditions{UID: &uid})); err != nil {
				faults = append(faults, fault(err, "deleting "+what))
				continue
			}
			removed = append(removed, what)
		}
	}
	return removed, errors.Join(faults...)
}

// Kept reports whether an object is one of those that are wanted.
func (w *Wanted) Kept(o client.Object) bool {
	_, isService := o.(*corev1.Service)
	name := w.readerName()
	if isService {
		name = w.Service.Name
	}
	return o.GetNamespace() == w.Service.Namespace && o.GetName() == name
}
