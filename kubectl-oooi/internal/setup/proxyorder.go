package setup

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// moveHolderLast orders the proxy's StatefulSets so that the replica with the floating address is replaced last: the
// address then moves once, to a replica that is up to date.
func (a *Applier) moveHolderLast(ctx context.Context, p *Plan) error {
	var at []int // indices of the proxy's StatefulSets in p.Objects
	var sets []*unstructured.Unstructured
	for i, o := range p.Objects {
		if o.GetKind() == "StatefulSet" && o.GetLabels()[v1alpha1.LabelComponent] == v1alpha1.ComponentProxy {
			at, sets = append(at, i), append(sets, o)
		}
	}
	if len(sets) < 2 {
		return nil
	}
	r := &read.Reader{Client: a.Client}
	lease, err := r.Lease(ctx, p.Infra.Namespace, render.FloatingLease(p.Infra))
	if err != nil || lease == nil || lease.Spec.HolderIdentity == nil {
		return err
	}
	if n := slices.IndexFunc(sets, func(o *unstructured.Unstructured) bool { return o.GetName()+"-0" == *lease.Spec.HolderIdentity }); n >= 0 {
		holder := sets[n]
		sets = append(slices.Delete(sets, n, n+1), holder)
	}
	for n, i := range at {
		p.Objects[i] = sets[n]
	}
	return nil
}
