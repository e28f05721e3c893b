package guest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Remove deletes the apps Services and the objects of readers for which matches returns true. It does not delete the
// objects of EnsureMetalLB. matches is called with each object and the Infra that it belongs to, "namespace/name".
// Remove continues if a deletion fails, and returns the deleted objects as "Kind namespace/name", also with an error.
func (c *Cluster) Remove(ctx context.Context, matches func(infra string, o client.Object) bool) ([]string, error) {
	var removed []string
	var faults []error
	for _, list := range []client.ObjectList{&rbacv1.RoleBindingList{}, &rbacv1.RoleList{}, &corev1.ServiceAccountList{}, &corev1.ServiceList{}} {
		if err := c.client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}); err != nil {
			return removed, errors.Join(append(faults, apiFault(err, "listing "+strings.TrimSuffix(typeName(list), "List")+"s of the hosted cluster"))...)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return removed, fmt.Errorf("reading the %s of the hosted cluster: %w", typeName(list), err)
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
			what := fmt.Sprintf("%s %s/%s", typeName(object), object.GetNamespace(), object.GetName())
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

// typeName returns the name of the type that a pointer refers to, which is the object's kind.
func typeName(object any) string { return reflect.TypeOf(object).Elem().Name() }

// Includes reports whether an object has the namespace and name of the apps Service or, for other kinds, of the
// reader's ServiceAccount, Role and RoleBinding.
func (w *Wanted) Includes(o client.Object) bool {
	_, isService := o.(*corev1.Service)
	name := w.readerName()
	if isService {
		name = w.Service.Name
	}
	return o.GetNamespace() == w.Service.Namespace && o.GetName() == name
}
