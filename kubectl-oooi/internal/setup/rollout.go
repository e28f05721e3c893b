package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// componentControl is the step with what there is once in a cluster.
const componentControl = "control"

// rolloutOrder is the order in which components change.
//
// Control is first: it serves no client, its Deployment keeps the old pods until the new ones are
// ready, and it judges the others. Then each component follows the one that it sends clients to:
// DHCP tells them the address of DNS, and DNS that of the proxy.
var rolloutOrder = []string{componentControl, v1alpha1.ComponentProxy, v1alpha1.ComponentDNS, v1alpha1.ComponentDHCP}

// How long a component may take until it is proven, and how long it may take to roll it back,
// which goes on when the time of the command is over.
const (
	proofDeadline    = 2 * time.Minute
	rollbackDeadline = 2 * time.Minute
	interruptedFor   = 15 * time.Second
)

// step is what changes at once: all components up to the next one that has pods replaced.
type step struct {
	component string
	objects   []*unstructured.Unstructured
	// replaced are the workloads among them that get other pods.
	replaced []*unstructured.Unstructured
	// retired are workloads of the component that others take the place of.
	retired []inventory.Entry
}

// rollout changes one component after the other.
type rollout struct {
	*Applier

	plan *Plan
	// live are the workloads as they were before, nil for those that were not there.
	live map[inventory.Entry]*unstructured.Unstructured
	// journal is what a rollout before has left unfinished; nil for nothing.
	unfinished *journal
	// proven were the components before, as far as control knew.
	proven map[string]bool
	infra  types.NamespacedName
	// changed are the components that were replaced and proven.
	changed []string
}

// bare is an entry without the UID.
func bare(o *unstructured.Unstructured) inventory.Entry {
	e := inventory.Of(o)
	e.UID = ""
	return e
}

func isWorkload(o *unstructured.Unstructured) bool {
	return o.GetKind() == "StatefulSet" || o.GetKind() == "Deployment"
}

// componentOf is the component that an object belongs to; empty for the Infra and what else all
// components have in common.
func (p *Plan) componentOf(o *unstructured.Unstructured) string {
	label := o.GetLabels()[v1alpha1.LabelComponent]
	switch {
	case p.shared(o):
		return componentControl
	case o.GetKind() == "ProxyServer":
		return v1alpha1.ComponentProxy
	case slices.Contains(rolloutOrder, label):
		return label
	}
	return ""
}

// newRollout finds out what would change. The API server has been asked already.
func (a *Applier) newRollout(ctx context.Context, p *Plan) (*rollout, error) {
	r := &rollout{
		Applier: a, plan: p, live: map[inventory.Entry]*unstructured.Unstructured{}, proven: map[string]bool{},
		infra: types.NamespacedName{Namespace: p.Infra.Namespace, Name: p.Infra.Name},
	}
	for _, o := range p.Objects {
		if !isWorkload(o) || a.leaves(p, o) {
			continue
		}
		there, err := a.current(ctx, o)
		if err != nil {
			return nil, err
		}
		r.live[bare(o)] = there
	}
	var err error
	r.unfinished, err = loadJournal(ctx, a.Client, r.infra)
	if err != nil {
		return nil, err
	}
	if !r.isNew() {
		for _, component := range rolloutOrder[1:] {
			why, err := r.unproven(ctx, component)
			r.proven[component] = err == nil && why == ""
		}
	}
	return r, ctx.Err()
}

// current reads an object as it is in the cluster; nil for none.
func (a *Applier) current(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(o.GroupVersionKind())
	err := a.Client.Get(ctx, client.ObjectKeyFromObject(o), there)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", inventory.Of(o), err)
	default:
		return there, nil
	}
}

// isNew reports whether the Infra has no workload yet: then nothing of it can break.
func (r *rollout) isNew() bool {
	for _, o := range r.plan.own() {
		if r.live[bare(o)] != nil {
			return false
		}
	}
	return true
}

// works reports whether a workload had a pod that was ready.
func (r *rollout) works(o *unstructured.Unstructured) bool {
	there := r.live[bare(o)]
	if there == nil {
		return false
	}
	ready, _, _ := unstructured.NestedInt64(there.Object, "status", "readyReplicas")
	return ready > 0
}

// replaces reports whether a workload gets other pods that have to be waited for. Without --wait
// these are only those that replace pods which work.
func (r *rollout) replaces(o *unstructured.Unstructured) bool {
	if !isWorkload(o) || r.leaves(r.plan, o) {
		return false
	}
	before, after := r.live[bare(o)], r.foreseen[bare(o)]
	switch {
	case before == nil:
		return r.OneByOne && !r.isNew()
	case after == nil || before.GetGeneration() == after.GetGeneration():
		return false
	}
	return r.OneByOne || r.works(o)
}

// steps are what changes at once, in order.
func (r *rollout) steps(ctx context.Context, gone []inventory.Entry) ([]step, error) {
	groups := map[string][]*unstructured.Unstructured{}
	for _, o := range r.plan.Objects {
		component := r.plan.componentOf(o)
		groups[component] = append(groups[component], o)
	}
	retired := map[string][]inventory.Entry{}
	for _, e := range gone {
		if e.Kind != "StatefulSet" {
			continue
		}
		there, err := r.current(ctx, e.Object())
		if err != nil {
			return nil, err
		}
		if there == nil {
			continue
		}
		component := there.GetLabels()[v1alpha1.LabelComponent]
		if len(groups[component]) == 0 || component == "" {
			component = "" // that is not wanted any more, whose address another may have
		}
		retired[component] = append(retired[component], e)
	}
	var list []step
	now := step{retired: retired[""]}
	for i, component := range rolloutOrder {
		objects := groups[component]
		if i == 1 { // the Infra's own begin
			objects = append(slices.Clone(groups[""]), objects...)
		}
		now.objects = append(now.objects, objects...)
		for _, o := range objects {
			if r.replaces(o) {
				now.replaced = append(now.replaced, o)
			}
		}
		now.retired = append(now.retired, retired[component]...)
		if len(now.replaced) > 0 {
			now.component = component
			list = append(list, now)
			now = step{}
		}
	}
	return append(list, now), nil
}

// roll changes one component after the other, each once the one before is proven. One that does
// not come up gets its pods of before.
func (r *rollout) roll(ctx context.Context, steps []step) error {
	for i, s := range steps {
		if len(s.replaced) == 0 {
			if err := r.change(ctx, s); err != nil {
				return err
			}
			continue
		}
		j, err := r.note(ctx, s)
		if err != nil {
			return err
		}
		deadline, cancel := context.WithTimeout(ctx, proofDeadline)
		err = r.change(deadline, s)
		if err == nil {
			err = r.prove(deadline, s)
		}
		cancel()
		if err != nil {
			return r.rollBack(ctx, s, j, steps[i+1:], err)
		}
		if err := j.drop(ctx, r.Client, r.infra); err != nil {
			return err
		}
		r.changed = append(r.changed, s.component)
	}
	return nil
}

// change applies what belongs to a step. Of several instances each is ready before the next is
// replaced.
func (r *rollout) change(ctx context.Context, s step) error {
	// An address must not be held by two.
	if err := r.retire(ctx, s.retired); err != nil {
		return err
	}
	for _, o := range s.objects {
		r.plan.setOwner(o)
		if _, err := r.apply(ctx, o, r.leaves(r.plan, o)); err != nil {
			return err
		}
		if slices.Contains(s.replaced, o) {
			if err := r.settled(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// settled waits until a workload is ready and its containers have stopped restarting.
func (r *rollout) settled(ctx context.Context, o *unstructured.Unstructured) error {
	w := &watch{Applier: r.Applier, workload: o}
	return poll(ctx, r.Out, w.unsettled)
}

// ready waits until a workload has the pods that it is to have, all of them ready.
func (r *rollout) ready(ctx context.Context, o *unstructured.Unstructured) error {
	w := &watch{Applier: r.Applier, workload: o}
	return poll(ctx, r.Out, w.missing)
}

// replaced waits until no pod keeps a workload from replacing its pods.
func (r *rollout) replaced(ctx context.Context, o *unstructured.Unstructured) error {
	return poll(ctx, r.Out, func(ctx context.Context) (string, error) {
		u, err := look(ctx, r.Client, o)
		if err != nil || u.missing == "" {
			return "", err
		}
		if u.seen && !slices.ContainsFunc(u.pods, u.wedgedBy) {
			return "", nil
		}
		return inventory.Of(o).String() + ": " + u.missing, u.unwedge(ctx, r.Client, r.Out)
	})
}

// prove waits until control has found the component of a step to work, if it did before, and its
// pods are still ready then.
func (r *rollout) prove(ctx context.Context, s step) error {
	if s.component != componentControl && !r.proven[s.component] || r.isNew() {
		return nil
	}
	var watches []*watch
	for _, o := range s.replaced {
		watches = append(watches, &watch{Applier: r.Applier, workload: o})
	}
	since := &renewals{client: r.Client, more: 1}
	if s.component == componentControl {
		since.more++ // it may be another leader, which has to judge all Infras
	}
	err := poll(ctx, r.Out, func(ctx context.Context) (string, error) {
		for _, w := range watches {
			if why, err := w.missing(ctx); err != nil || why != "" {
				return why, err
			}
		}
		if s.component != componentControl {
			if why, err := r.unproven(ctx, s.component); err != nil || why != "" {
				return why, err
			}
		}
		return since.missing(ctx)
	})
	if err == nil {
		_, err = fmt.Fprintf(r.Out, "%s works\n", s.component)
	}
	return err
}

// rollBack puts a component back to what it was, and says what became of the others.
func (r *rollout) rollBack(ctx context.Context, s step, j *journal, rest []step, why error) error {
	failed := s.component
	if errors.Is(context.Cause(ctx), errLockLost) {
		return fmt.Errorf("%s: %w", failed, errLockLost)
	}
	if !slices.ContainsFunc(s.replaced, r.works) && len(s.retired) == 0 && r.unfinished == nil {
		err := fmt.Errorf("%s: %w", failed, why)
		return errors.Join(err, r.outcome(failed+" did not work before this change either, and is kept as applied", rest, "correct the cause and run setup again"))
	}
	within, interrupted := rollbackDeadline, errors.Is(ctx.Err(), context.Canceled)
	if interrupted {
		within = interruptedFor
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	what, then := "does not work", "correct the cause and run setup again"
	if interrupted {
		what, then = "is not verified yet", "run setup again"
	}
	if _, err := fmt.Fprintf(r.Out, "%s %s; rolling it back\n", failed, what); err != nil {
		return err
	}
	if err := r.restore(back, j, !interrupted); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", failed, why), fmt.Errorf("rolling back %s: %w; run setup again", failed, err), r.outcome("", rest, then))
	}
	return errors.Join(fmt.Errorf("%s: %w", failed, why), r.outcome(failed+" is rolled back", rest, then))
}

// outcome says which components were changed and which were not, and what to do then.
func (r *rollout) outcome(failed string, rest []step, then string) error {
	var words []string
	if failed != "" {
		words = append(words, failed)
	}
	if len(r.changed) > 0 {
		words = append(words, "changed: "+strings.Join(r.changed, ", "))
	}
	var kept []string
	for _, s := range rest {
		if s.component != "" {
			kept = append(kept, s.component)
		}
	}
	if len(kept) > 0 {
		words = append(words, "unchanged: "+strings.Join(kept, ", "))
	}
	return errors.New(strings.Join(append(words, then), "; "))
}
