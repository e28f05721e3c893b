package setup

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// A Verb is what applying a plan does to an object, as kubectl prints it.
type Verb string

// Verbs of an ObjectChange.
const (
	Created    Verb = "created"
	Configured Verb = "configured"
	Unchanged  Verb = "unchanged"
	Deleted    Verb = "deleted"
	Recreated  Verb = "deleted and created again"
)

// An ObjectChange is what applying a plan does to one object.
type ObjectChange struct {
	inventory.Entry
	Verb Verb
	// Live is the present object, nil for a created one. Merged is the object after the change, nil for a deleted one.
	Live, Merged *unstructured.Unstructured
	// Pods names the pods that the change replaces or deletes: "pod NAMESPACE/NAME" for each pod of a StatefulSet, and for
	// each one that started with an edited object that is restored; and one text for all pods of a Deployment.
	Pods []string
	// Shared is set for objects that all Infras of a cluster share.
	Shared bool
}

// Preview returns what applying a plan does to each object, in the order in which it is applied, and then what it
// deletes. It changes nothing in the cluster. Objects whose kind or namespace does not exist yet are returned as
// rendered, without the API server's defaults. It returns an error if Apply would refuse the plan because of a
// downgrade, of objects that setup did not create or of an Infra that is being deleted, or if the API server refuses an
// object.
func (a *Applier) Preview(ctx context.Context, p *Plan) ([]ObjectChange, error) {
	if err := a.stampVersion(ctx, p); err != nil {
		return nil, err
	}
	if err := a.checkOwnership(ctx, p); err != nil {
		return nil, err
	}
	if err := a.checkTermination(ctx, p); err != nil {
		return nil, err
	}
	if err := a.reportHelm(); err != nil {
		return nil, err
	}
	before, err := a.previousObjects(ctx, p)
	if err != nil {
		return nil, err
	}
	return a.changes(ctx, p, &staging{}, before)
}

// changes is Preview for a plan that was checked. Objects that stage created for the check count as created. before are
// the objects of earlier setups.
func (a *Applier) changes(ctx context.Context, p *Plan, staged *staging, before []inventory.Entry) ([]ObjectChange, error) {
	all, errs := make([]ObjectChange, len(p.Objects)), make([]error, len(p.Objects))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, o := range p.Objects {
		group.Go(func() error {
			all[i], errs[i] = a.change(ctx, p, o, staged)
			return nil
		})
	}
	_ = group.Wait() // always nil
	for i, o := range p.Objects {
		change := &all[i]
		if errs[i] != nil {
			return nil, errs[i]
		}
		if err := a.classify(ctx, o, change, a.keepsExisting(p, o)); err != nil {
			return nil, err
		}
	}
	deleted, err := a.deleted(ctx, p, before)
	return slices.Concat(all, deleted), err
}

// change returns the present and the future state of an object of the plan.
func (a *Applier) change(ctx context.Context, p *Plan, o *unstructured.Unstructured, staged *staging) (ObjectChange, error) {
	change := ObjectChange{Entry: inventory.Of(o), Verb: Created, Shared: p.shared(o)}
	live, err := current(ctx, a.Client, o)
	if err != nil {
		return change, err
	}
	if live != nil && slices.ContainsFunc(staged.created, inventory.Of(o).Same) {
		live = nil
	}
	change.Live = live
	change.Merged, err = a.merged(ctx, o, live, a.keepsExisting(p, o))
	return change, err
}

// classify sets the verb of a change and the pods that it replaces.
func (a *Applier) classify(ctx context.Context, o *unstructured.Unstructured, change *ObjectChange, kept bool) error {
	if a.predicted[entryWithoutUID(o)] == nil && change.Merged != o && change.Merged != change.Live { // from a dry run, not reported yet
		if err := a.reportForeign(o, change.Merged); err != nil {
			return err
		}
	}
	switch live := change.Live; {
	case live == nil:
	case sameContent(live, change.Merged):
		change.Verb = Unchanged
	case !kept && recreated(o, live):
		change.Verb = Recreated
	default:
		change.Verb = Configured
		change.Pods = restarts(live, change.Merged)
	}
	edited, err := a.editedPods(ctx, change.Live, change.Merged)
	if err != nil {
		return err
	}
	for i := range edited {
		change.Pods = append(change.Pods, fmt.Sprintf("pod %s/%s", edited[i].Namespace, edited[i].Name))
	}
	return nil
}

// merged returns an object as it would be after apply: from the preflight, or by a dry run.
func (a *Applier) merged(ctx context.Context, o, live *unstructured.Unstructured, kept bool) (*unstructured.Unstructured, error) {
	if kept && live != nil {
		return live, nil
	}
	if predicted, ok := a.predicted[entryWithoutUID(o)]; ok {
		return predicted, nil
	}
	made, err := a.dryRun(ctx, o)
	if live == nil && (apierrors.IsNotFound(err) || meta.IsNoMatchError(err)) {
		return o, nil // its kind or its namespace does not exist yet
	}
	if err != nil {
		return nil, a.explain(o, err)
	}
	return made, nil
}

// sameContent reports whether two states of an object are equal, apart from managed fields and resourceVersion.
func sameContent(a, b *unstructured.Unstructured) bool {
	strip := func(u *unstructured.Unstructured) *unstructured.Unstructured {
		u = u.DeepCopy()
		u.SetManagedFields(nil)
		u.SetResourceVersion("")
		return u
	}
	return equality.Semantic.DeepEqual(strip(a).Object, strip(b).Object)
}

// restarts returns the names of the pods that a change of a workload replaces.
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

// pods returns the names of a workload's pods; for a Deployment, one text for all of them.
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

// deleted returns the objects that the inventory lists and the plan does not contain, in the order of their deletion.
func (a *Applier) deleted(ctx context.Context, p *Plan, before []inventory.Entry) ([]ObjectChange, error) {
	infra := client.ObjectKeyFromObject(p.Infra)
	var all []ObjectChange
	for _, e := range slices.Backward(before) {
		if slices.ContainsFunc(p.Objects, func(o *unstructured.Unstructured) bool { return inventory.Of(o).Same(e) }) {
			continue
		}
		live, err := current(ctx, a.Client, e.Object())
		if err != nil {
			return nil, err
		}
		user, err := networkUser(ctx, a.Client, e, infra)
		if err != nil {
			return nil, err
		}
		if live != nil && user == "" && (e.UID == "" || e.UID == live.GetUID()) {
			all = append(all, ObjectChange{Entry: e, Verb: Deleted, Live: live, Pods: pods(live)})
		}
	}
	return all, nil
}
