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

// A Verb is the effect of a plan on an object, as kubectl prints it.
type Verb string

// Verbs of an ObjectChange.
const (
	Created    Verb = "created"
	Configured Verb = "configured"
	Unchanged  Verb = "unchanged"
	Deleted    Verb = "deleted"
)

// An ObjectChange is the effect of a plan on one object.
type ObjectChange struct {
	inventory.Entry
	Verb Verb
	// Live is the object before the change; nil if it is created. Merged is the object after the change; nil if it is deleted.
	Live, Merged *unstructured.Unstructured
	// Pods names the pods that the change replaces or deletes: "pod NAMESPACE/NAME" for each pod of a StatefulSet, and one
	// text for all pods of a Deployment.
	Pods []string
	// Shared is set for objects that all Infras of a cluster share.
	Shared bool

	rendered *unstructured.Unstructured // to apply; nil for a deleted object
	restart  bool                       // the pods' tokens belong to a deleted ServiceAccount
}

// applied reports whether a rollout applies or deletes the object.
func (c *ObjectChange) applied() bool {
	return c.Verb == Deleted || c.Verb != Unchanged && !isDefinition(c.rendered)
}

// ofWorkload reports whether the change applies a workload.
func (c *ObjectChange) ofWorkload() bool { return c.Verb != Deleted && isWorkload(c.rendered) }

// Preview returns the changes to each object, in the order in which a plan is applied, and then deletions. It changes nothing in
// the cluster. Objects whose kind or namespace does not exist yet are returned as rendered, without the API server's defaults. It
// returns an error if Apply would reject the plan because of a downgrade, objects that setup did not create or an Infra that is being
// deleted, or if the API server rejects an object.
func (a *Applier) Preview(ctx context.Context, p *Plan) ([]*ObjectChange, error) {
	a.previews = true
	changes, err := a.compare(ctx, p)
	if err != nil {
		return nil, err
	}
	if last, good := a.history.last(""), a.history.last(StatusDeployed); last != nil && last.Status == StatusPending && good != nil {
		if _, err := fmt.Fprintf(a.Out, "Warning: revision %d is unfinished; setup restores revision %d first\n", last.Revision, good.Revision); err != nil {
			return nil, err
		}
	}
	list := slices.Clone(changes[:len(p.Objects)])
	for _, c := range slices.Backward(changes[len(p.Objects):]) {
		user, err := networkUser(ctx, a.Client, c.Live, client.ObjectKeyFromObject(p.Infra))
		if err != nil {
			return nil, err
		}
		if user == "" {
			list = append(list, c)
		}
	}
	return list, nil
}

// LastApplied returns the live Infra or standalone ProxyServer, the one in the last deployed revision, and that revision's time. An
// object that does not exist, or that no revision contains, is nil. LastApplied must be called after Preview.
func (a *Applier) LastApplied(p *Plan, changes []*ObjectChange) (live, applied *unstructured.Unstructured, at time.Time) {
	if good := a.history.last(StatusDeployed); good != nil {
		applied, at = p.owner(good.Objects), good.Created()
	}
	return p.ownerOf(changes), applied, at
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

// restartForTokens marks the workloads whose ServiceAccount is created again: the API server rejects tokens of the deleted one.
func restartForTokens(changes []*ObjectChange) {
	created := map[client.ObjectKey]bool{}
	for _, c := range changes {
		if c.Kind == "ServiceAccount" && c.Verb == Created {
			created[client.ObjectKey{Namespace: c.Namespace, Name: c.Name}] = true
		}
	}
	for _, c := range changes {
		name, _, _ := unstructured.NestedString(c.rendered.Object, "spec", "template", "spec", "serviceAccountName")
		if c.ofWorkload() && c.Live != nil && created[client.ObjectKey{Namespace: c.Namespace, Name: name}] {
			c.restart, c.Pods = len(c.Pods) == 0, pods(c.Live)
		}
	}
}

// template returns the pod template of a workload.
func template(workload *unstructured.Unstructured) any {
	t, _, _ := unstructured.NestedFieldNoCopy(workload.Object, "spec", "template")
	return t
}

// pods returns the names of a StatefulSet's pods, or one text for all pods of a Deployment.
func pods(workload *unstructured.Unstructured) []string {
	switch workload.GetKind() {
	case "Deployment":
		return []string{"the pods of " + inventory.Of(workload).String()}
	case "StatefulSet":
		return []string{fmt.Sprintf("pod %s/%s-0", workload.GetNamespace(), workload.GetName())}
	}
	return nil
}
