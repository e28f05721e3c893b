package read

import (
	"context"
	"errors"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Leases returns the Lease objects with a label of a namespace, of all with "".
func (r *Reader) Leases(ctx context.Context, namespace, label string) ([]*coordinationv1.Lease, error) {
	var list []*coordinationv1.Lease
	var broken error
	err := r.In(ctx, coordinationv1.SchemeGroupVersion.WithKind("Lease"), namespace, func(u *unstructured.Unstructured) {
		lease := &coordinationv1.Lease{}
		if err := convert(u, lease); err != nil {
			broken = errors.Join(broken, err)
			return
		}
		list = append(list, lease)
	}, client.HasLabels{label})
	return list, errors.Join(err, broken)
}
