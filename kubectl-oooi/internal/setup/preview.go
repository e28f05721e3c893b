package setup

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// Verb says what applying a plan does to an object, in kubectl's words.
type Verb string

// Verbs of an ObjectChange.
const (
	Created    Verb = "created"
	Configured Verb = "configured"
	Unchanged  Verb = "unchanged"
	Deleted    Verb = "deleted"
)

// ObjectChange is what applying a plan does to one object.
type ObjectChange struct {
	inventory.Entry
	Verb Verb
	// Live is the object as it is in the cluster, nil for none, and Merged as it would be, nil for a deleted one.
	Live, Merged *unstructured.Unstructured
	// Restarts names the pods that end, to start with another configuration or not at all.
	Restarts []string
}

// Preview returns what applying a plan does to each object, in the order in which it is applied, and then what it
// deletes. It writes nothing: an object of a kind or in a namespace that does not exist yet is as the plan has it.
func (a *Applier) Preview(ctx context.Context, p *Plan) ([]ObjectChange, error) {
	if err := a.stamp(ctx, p); err != nil {
		return nil, err
	}
	if err := a.owned(ctx, p); err != nil {
		return nil, err
	}
	if err := a.reportHelm(); err != nil {
		return nil, err
	}
	return a.changes(ctx, p, staging{})
}

// changes is Preview for a plan that was checked. Those that were staged for the check are created.
func (a *Applier) changes(ctx context.Context, p *Plan, staged staging) ([]ObjectChange, error) {
	var all []ObjectChange
	for _, o := range p.Objects {
		live, err := a.current(ctx, o)
		if err != nil {
			return nil, err
		}
		if live != nil && slices.ContainsFunc(staged.created, inventory.Of(o).Same) {
			live = nil
		}
		change := ObjectChange{Entry: inventory.Of(o), Verb: Created, Live: live}
		p.setOwner(o)
		if change.Merged, err = a.merged(ctx, o, live, a.leaves(p, o)); err != nil {
			return nil, err
		}
		p.knowOwner(o, live)
		switch {
		case live == nil:
		case sameContent(live, change.Merged):
			change.Verb = Unchanged
		default:
			change.Verb = Configured
			change.Restarts = restarts(live, change.Merged)
		}
		all = append(all, change)
	}
	deleted, err := a.deleted(ctx, p)
	return append(all, deleted...), err
}

// merged is an object as the API server would have it.
func (a *Applier) merged(ctx context.Context, o, live *unstructured.Unstructured, kept bool) (*unstructured.Unstructured, error) {
	if kept && live != nil {
		return live, nil
	}
	if foreseen, ok := a.foreseen[bare(o)]; ok {
		return foreseen, nil
	}
	made := o.DeepCopy()
	err := a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(made), append(a.owner(), client.DryRunAll)...)
	if live == nil && (apierrors.IsNotFound(err) || meta.IsNoMatchError(err)) {
		return o, nil // its kind or its namespace is yet to be created
	}
	if err != nil {
		return nil, a.explain(o, err)
	}
	return made, a.reportForeign(made)
}

// sameContent reports whether two states of an object differ in nothing but who has set it.
func sameContent(a, b *unstructured.Unstructured) bool {
	strip := func(u *unstructured.Unstructured) *unstructured.Unstructured {
		u = u.DeepCopy()
		u.SetManagedFields(nil)
		u.SetResourceVersion("")
		return u
	}
	return equality.Semantic.DeepEqual(strip(a).Object, strip(b).Object)
}

// restarts names the pods that a change of a workload replaces.
func restarts(live, merged *unstructured.Unstructured) []string {
	template := func(u *unstructured.Unstructured) any {
		t, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "template")
		return t
	}
	if !isWorkload(live) || equality.Semantic.DeepEqual(template(live), template(merged)) {
		return nil
	}
	return pods(live)
}

// pods names the pods of a workload.
func pods(workload *unstructured.Unstructured) []string {
	switch workload.GetKind() {
	case "Deployment":
		return []string{"the pods of " + inventory.Of(workload).String()}
	case "StatefulSet":
		replicas, found, _ := unstructured.NestedInt64(workload.Object, "spec", "replicas")
		if !found {
			replicas = 1
		}
		var names []string
		for i := range replicas {
			names = append(names, fmt.Sprintf("pod %s/%s-%d", workload.GetNamespace(), workload.GetName(), i))
		}
		return names
	default:
		return nil
	}
}

// deleted is what the inventory lists and the plan does not have, in the order in which it is deleted.
func (a *Applier) deleted(ctx context.Context, p *Plan) ([]ObjectChange, error) {
	infra := types.NamespacedName{Namespace: p.Infra.Namespace, Name: p.Infra.Name}
	before, err := inventory.Load(ctx, a.Client, infra)
	if err != nil {
		return nil, err
	}
	var all []ObjectChange
	for _, e := range slices.Backward(before) {
		if slices.ContainsFunc(p.Objects, func(o *unstructured.Unstructured) bool { return inventory.Of(o).Same(e) }) {
			continue
		}
		live, err := a.current(ctx, e.Object())
		if err != nil {
			return nil, err
		}
		user, err := networkUser(ctx, a.Client, e, infra)
		if err != nil {
			return nil, err
		}
		if live != nil && user == "" && (e.UID == "" || e.UID == live.GetUID()) {
			all = append(all, ObjectChange{Entry: e, Verb: Deleted, Live: live, Restarts: pods(live)})
		}
	}
	return all, nil
}
