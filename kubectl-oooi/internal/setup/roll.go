package setup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
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

// settled waits until an instance that was changed is ready.
func (a *Applier) settled(ctx context.Context, o *unstructured.Unstructured) error {
	what, said := inventory.Of(o), false
	for {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(o.GroupVersionKind())
		if err := a.Client.Get(ctx, client.ObjectKeyFromObject(o), u); err != nil {
			return fmt.Errorf("reading %s: %w", what, err)
		}
		result, err := status.Compute(u)
		if err != nil {
			return fmt.Errorf("judging %s: %w", what, err)
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
