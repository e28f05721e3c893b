package setup

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
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
)

// An ObjectChange is what applying a plan does to one object.
type ObjectChange struct {
	inventory.Entry
	Verb Verb
	// Live is the present object, nil for a created one. Merged is the object after the change, nil for a deleted one.
	Live, Merged *unstructured.Unstructured
	// Pods names the pods that the change replaces or deletes: "pod NAMESPACE/NAME" for each pod of a StatefulSet, and one
	// text for all pods of a Deployment.
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
	a.previews = true
	obsolete, err := a.compare(ctx, p)
	if err != nil {
		return nil, err
	}
	var deleted []*unstructured.Unstructured
	for _, live := range slices.Backward(obsolete) {
		user, err := networkUser(ctx, a.Client, live, client.ObjectKeyFromObject(p.Infra))
		if err != nil {
			return nil, err
		}
		if user == "" {
			deleted = append(deleted, live)
		}
	}
	return a.objectChanges(p, deleted), nil
}

// LastApplied returns the Infra or standalone ProxyServer, as it is in the cluster and as setup applied it in the last deployed
// revision, and the time of that revision. It is called after Preview. An object that does not exist, or no revision has, is nil.
func (a *Applier) LastApplied(p *Plan) (live, applied *unstructured.Unstructured, at time.Time) {
	if owner := p.owner(p.Objects); owner != nil {
		live = a.live[entryWithoutUID(owner)]
	}
	if good := a.history.last(StatusDeployed); good != nil {
		applied, at = p.owner(good.Objects), good.Created()
	}
	return live, applied, at
}

// objectChanges returns the changes of the plan's objects and of those that are deleted, after compare.
func (a *Applier) objectChanges(p *Plan, deleted []*unstructured.Unstructured) []ObjectChange {
	var list []ObjectChange
	for _, o := range p.Objects {
		list = append(list, a.objectChange(p, o))
	}
	for _, live := range deleted {
		list = append(list, ObjectChange{Entry: inventory.Of(live), Verb: Deleted, Live: live, Pods: pods(live)})
	}
	return list
}

// objectChange returns the change of an object of the plan, after compare.
func (a *Applier) objectChange(p *Plan, o *unstructured.Unstructured) ObjectChange {
	change := ObjectChange{Entry: inventory.Of(o), Verb: a.verb(o), Live: a.live[entryWithoutUID(o)], Merged: a.merged[entryWithoutUID(o)], Shared: p.shared(o)}
	if change.Verb == Configured {
		change.Pods = restarts(change.Live, change.Merged)
	}
	return change
}

// verb returns what apply does to an object of the plan, after compare.
func (a *Applier) verb(o *unstructured.Unstructured) Verb {
	switch live, merged := a.live[entryWithoutUID(o)], a.merged[entryWithoutUID(o)]; {
	case live == nil:
		return Created
	case sameContent(live, merged):
		return Unchanged
	}
	return Configured
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

// pods returns the name of a StatefulSet's pod, and for a Deployment one text for all pods.
func pods(workload *unstructured.Unstructured) []string {
	switch workload.GetKind() {
	case "Deployment":
		return []string{"the pods of " + inventory.Of(workload).String()}
	case "StatefulSet":
		return []string{fmt.Sprintf("pod %s/%s-0", workload.GetNamespace(), workload.GetName())}
	}
	return nil
}
