package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// another reports whether there is another instance of an object's component in the plan, behind
// it: then the one has to be ready before the other is replaced.
func (p *Plan) another(o *unstructured.Unstructured) bool {
	after := false
	for _, other := range p.Objects {
		switch {
		case other == o:
			after = true
		case after && other.GetKind() == o.GetKind() && other.GetNamespace() == o.GetNamespace() &&
			other.GetLabels()[v1alpha1.LabelComponent] == o.GetLabels()[v1alpha1.LabelComponent]:
			return true
		}
	}
	return false
}

// holderLast puts the instance of the proxy that has the address behind the others: it moves once,
// to one that is up to date.
func (a *Applier) holderLast(ctx context.Context, p *Plan) error {
	var at []int // the places of the proxy's instances
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

// settled waits until an instance that was changed is ready.
func (a *Applier) settled(ctx context.Context, o *unstructured.Unstructured) error {
	what, said := inventory.Of(o), false
	for {
		_, result, err := judge(ctx, a.Client, o)
		if err != nil {
			return err
		}
		if result.Status == status.CurrentStatus {
			return nil
		}
		if !said {
			if _, err := fmt.Fprintf(a.Out, "waiting for %s before the next instance is replaced\n", what); err != nil {
				return err
			}
			said = true
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting for %s before the next instance is replaced: %w; the others stay as they were, run setup again", what, ctx.Err()), errors.New(result.Message))
		case <-time.After(300 * time.Millisecond):
		}
	}
}
