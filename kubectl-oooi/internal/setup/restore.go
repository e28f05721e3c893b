package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// fail ends a rollout with an error: it restores the last deployed revision, if there is one.
func (r *rollout) fail(ctx, locked context.Context, end func(status, message string) error, good *Record, why error) error {
	if errors.Is(context.Cause(locked), errLockLost) {
		return errors.Join(why, errLockLost)
	}
	if good == nil || r.goal == untilApplied {
		return errors.Join(why, errors.New("the applied objects are kept; correct the cause and run setup again"), end(StatusFailed, why.Error()))
	}
	if _, err := fmt.Fprintf(r.Out, "restoring revision %d\n", good.Revision); err != nil {
		return err
	}
	if err := r.restore(context.WithoutCancel(ctx), good, r.sharedBefore(), errors.Is(ctx.Err(), context.Canceled)); err != nil {
		return errors.Join(why, fmt.Errorf("restoring revision %d: %w; run setup again", good.Revision, err), end(StatusPending, why.Error()))
	}
	return errors.Join(why, fmt.Errorf("rolled back to revision %d; correct the cause and run setup again", good.Revision),
		end(StatusFailed, why.Error()))
}

// sharedBefore returns the previous state of the shared objects that the rollout changes.
func (r *rollout) sharedBefore() []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	for _, c := range r.changes {
		if c.Shared && c.Live != nil && c.Verb != Unchanged && !isDefinition(c.Live) {
			list = append(list, withoutServerFields(c.Live))
		}
	}
	return list
}

// restore applies the objects of a record and some shared objects again, and deletes the Infra's StatefulSets that the record does
// not contain. After an interrupt its deadline is shorter.
func (a *Applier) restore(ctx context.Context, good *Record, shared []*unstructured.Unstructured, interrupted bool) error {
	within := restoreDeadline
	if interrupted {
		within = interruptDeadline
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	objects, err := good.objects()
	if err != nil {
		return err
	}
	var changes []*ObjectChange
	for _, o := range slices.Concat(shared, objects) {
		changes = append(changes, &ObjectChange{Entry: inventory.Of(o), rendered: o})
	}
	infra := &v1alpha1.Infra{ObjectMeta: metav1.ObjectMeta{Namespace: good.infra.Namespace, Name: good.infra.Name}}
	obsolete, err := a.obsolete(ctx, &Plan{Infra: infra, Objects: objects})
	if err != nil {
		return err
	}
	back := &rollout{
		Applier: &Applier{Client: a.Client, Out: a.Out}, infra: good.infra, changes: changes, obsolete: obsolete, goal: untilStable,
	}
	if interrupted || !a.Wait {
		back.goal = untilUnblocked
	}
	return back.roll(ctx)
}

// Recover waits until no other setup or teardown of an Infra or standalone ProxyServer runs. If the last setup was killed, Recover
// restores the last deployed revision. If this fails, it prints a warning, since the next revision may still work. It must be called
// before the plan is made, which depends on the objects in the cluster.
func (a *Applier) Recover(ctx context.Context, infra types.NamespacedName) error {
	h, err := waitIdle(ctx, a.Client, a.Out, infra)
	if err != nil {
		return err
	}
	a.history = h
	unfinished, good := h.last(""), h.last(StatusDeployed)
	switch {
	case unfinished == nil || unfinished.Status != StatusPending || good == nil:
		return nil
	case unfinished.Message == killed(commandTeardown): // no revision to restore
		return h.set(ctx, unfinished, StatusFailed, unfinished.Message)
	}
	if _, err := fmt.Fprintf(a.Out, "revision %d is unfinished; restoring revision %d\n", unfinished.Revision, good.Revision); err != nil {
		return err
	}
	err = a.restore(ctx, good, nil, false)
	if err != nil && ctx.Err() == nil {
		_, err = fmt.Fprintf(a.Out, "Warning: restoring revision %d: %v\n", good.Revision, err)
		return err
	}
	if err != nil {
		return fmt.Errorf("restoring revision %d: %w", good.Revision, err)
	}
	return h.set(ctx, unfinished, StatusFailed, unfinished.Message)
}
