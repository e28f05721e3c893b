package guest

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Remove deletes the apps Services and the objects of readers for which matches returns true. It does not delete the
// objects of EnsureMetalLB. matches is called with each object and the Infra that it belongs to, "namespace/name".
// Remove continues if a deletion fails, and returns the deleted objects as "Kind namespace/name", also with an error.
func (c *Cluster) Remove(ctx context.Context, matches func(infra string, o client.Object) bool) ([]string, error) {
	var removed []string
	var faults []error
	for _, kind := range []schema.GroupVersionKind{kindRoleBinding, kindRole, kindServiceAccount, kindService} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}); err != nil {
			return removed, errors.Join(append(faults, apiFault(fmt.Errorf("listing %ss of the hosted cluster: %w", kind.Kind, err)))...)
		}
		for i := range list.Items {
			object := &list.Items[i]
			object.SetGroupVersionKind(kind)
			infra := object.Annotations[v1alpha1.AnnotationInfra]
			if infra == "" || !matches(infra, object) || object.DeletionTimestamp != nil {
				continue
			}
			what := describe(object)
			if err := client.IgnoreNotFound(c.client.Delete(ctx, object, client.Preconditions{UID: &object.UID})); err != nil {
				faults = append(faults, apiFault(fmt.Errorf("deleting %s: %w", what, err)))
				continue
			}
			removed = append(removed, what)
		}
	}
	return removed, errors.Join(faults...)
}

// Includes reports whether an object has the namespace and name of the apps Service or, for other kinds, of the
// reader's ServiceAccount, Role and RoleBinding.
func (w *Wanted) Includes(o client.Object) bool {
	name := w.readerName()
	if o.GetObjectKind().GroupVersionKind() == kindService {
		name = w.Service.Name
	}
	return o.GetNamespace() == w.Service.Namespace && o.GetName() == name
}
