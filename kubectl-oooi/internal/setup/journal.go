package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// A journal has the previous objects of a component. It is stored in the cluster while the component changes, so that
// the next setup can restore them if this one is killed.
type journal struct {
	Component string `json:"component"`
	// Joined is the component before it, whose previous objects are also in the journal; empty for none.
	Joined string `json:"joined,omitempty"`
	// NotWorking is set if the component did not work before.
	NotWorking bool `json:"notWorking,omitempty"`
	// Backends are those of the ProxyServer that had a healthy endpoint before.
	Backends []string `json:"backends,omitempty"`
	// Before are the previous objects, in the order in which they are applied.
	Before []map[string]any `json:"before,omitempty"`
	// Absent are the objects that did not exist.
	Absent []inventory.Entry `json:"absent,omitempty"`
}

// components returns Joined and Component.
func (j *journal) components() []string {
	if j.Joined != "" {
		return []string{j.Joined, j.Component}
	}
	return []string{j.Component}
}

// covers reports whether the journal, which may be nil, has the previous objects of a component.
func (j *journal) covers(component string) bool {
	return j != nil && slices.Contains(j.components(), component)
}

// journalKey is the key of the journal in its ConfigMap.
const journalKey = "rollout.yaml"

// journalName returns the namespace and name of the ConfigMap with the journal of an Infra. It is not in the Infra's
// namespace: setup applies the objects in it with the rights of the user who runs setup, so that users who may write it
// have these rights, too.
func journalName(infra types.NamespacedName) client.ObjectKey {
	return client.ObjectKey{Namespace: render.SystemNamespace, Name: infra.Namespace + "." + infra.Name + "-oooi-rollout"}
}

// loadJournal returns the journal that an earlier setup left; nil if there is none, or if reading it is forbidden.
func loadJournal(ctx context.Context, c client.Client, infra types.NamespacedName) (*journal, error) {
	m := &corev1.ConfigMap{}
	switch err := c.Get(ctx, journalName(infra), m); {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s: %w", journalName(infra), err)
	}
	j := &journal{}
	if err := yaml.Unmarshal([]byte(m.Data[journalKey]), j); err != nil {
		return nil, fmt.Errorf("decoding key %s of ConfigMap %s: %w; delete the ConfigMap and run setup again", journalKey, journalName(infra), err)
	}
	return j, nil
}

// save stores the journal in the cluster. It prints a warning if that is forbidden, or if the namespace of control does
// not exist.
func (j *journal) save(ctx context.Context, a *Applier, infra types.NamespacedName) error {
	text, err := yaml.Marshal(j)
	if err != nil {
		return fmt.Errorf("encoding the journal of %s: %w", j.Component, err)
	}
	m := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{journalKey: string(text)}}}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	m.SetNamespace(journalName(infra).Namespace)
	m.SetName(journalName(infra).Name)
	m.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelInfra: infra.Name})
	err = a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(m), client.FieldOwner(Manager), client.ForceOwnership)
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		_, err := fmt.Fprintf(a.Out, "Warning: the next setup cannot roll back %s if this one is killed: %v\n", j.Component, err)
		return err
	case err != nil:
		return fmt.Errorf("writing ConfigMap %s: %w", journalName(infra), err)
	}
	return nil
}

// removeJournal deletes the journal of an Infra from the cluster, if there is one.
func removeJournal(ctx context.Context, c client.Client, infra types.NamespacedName) error {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: journalName(infra).Namespace, Name: journalName(infra).Name}}
	if err := c.Delete(ctx, m); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return fmt.Errorf("deleting ConfigMap %s: %w", journalName(infra), err)
	}
	return nil
}

// find returns an object of the journal; nil if it has none, or if j is nil.
func (j *journal) find(e inventory.Entry) *unstructured.Unstructured {
	if j == nil {
		return nil
	}
	for _, fields := range j.Before {
		if o := (&unstructured.Unstructured{Object: fields}); entryWithoutUID(o).Same(e) {
			return o
		}
	}
	return nil
}

// record stores the journal of a step before its objects change. joined is the journal of the step before, if both are
// rolled back together. Objects in the journal of an unfinished rollout are taken from there, because it is unknown
// whether their present state works.
func (r *rollout) record(ctx context.Context, s step, joined *journal) (*journal, error) {
	j := &journal{Component: s.component, NotWorking: r.notWorking(s), Backends: r.backends}
	if joined != nil {
		j.Joined, j.Before, j.Absent = joined.Component, joined.Before, joined.Absent
	}
	add := func(o *unstructured.Unstructured) error {
		if recorded := r.unfinished.find(entryWithoutUID(o)); recorded != nil {
			j.Before = append(j.Before, recorded.Object)
			return nil
		}
		live, err := current(ctx, r.Client, o)
		if err != nil {
			return err
		}
		if live == nil || r.unfinished != nil && slices.ContainsFunc(r.unfinished.Absent, entryWithoutUID(o).Same) {
			j.Absent = append(j.Absent, entryWithoutUID(o))
			return nil
		}
		j.Before = append(j.Before, withoutServerFields(live).Object)
		return nil
	}
	for _, o := range s.objects {
		if kind := o.GetKind(); r.keepsExisting(r.plan, o) || kind == "Namespace" || kind == "CustomResourceDefinition" {
			continue
		}
		if err := add(o); err != nil {
			return nil, err
		}
	}
	for _, e := range s.retired {
		if err := add(e.Object()); err != nil {
			return nil, err
		}
	}
	if u := r.unfinished; u != nil && u.Joined != "" && u.Component == s.component && j.Joined == "" {
		j.Joined = u.Joined
		for _, fields := range u.Before {
			if e := entryWithoutUID(&unstructured.Unstructured{Object: fields}); j.find(e) == nil {
				j.Before = append(j.Before, fields)
			}
		}
		for _, e := range u.Absent {
			if !slices.ContainsFunc(j.Absent, e.Same) {
				j.Absent = append(j.Absent, e)
			}
		}
	}
	err := j.save(ctx, r.Applier, r.infra)
	return j, err
}

// notWorking reports whether the component of a step did not work before the change, or before the unfinished rollout
// of it.
func (r *rollout) notWorking(s step) bool {
	switch {
	case r.unfinished != nil && r.unfinished.Component == s.component:
		return r.unfinished.NotWorking
	case s.component == componentControl:
		return !slices.ContainsFunc(s.replaced, r.works)
	case len(s.live) > 0:
		return false
	default:
		return !r.workedBefore[s.component]
	}
}

// withoutServerFields returns a copy of an object without fields that the API server and controllers set, so that it
// can be applied.
func withoutServerFields(o *unstructured.Unstructured) *unstructured.Unstructured {
	c := o.DeepCopy()
	delete(c.Object, "status")
	for _, field := range []string{"managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink"} {
		unstructured.RemoveNestedField(c.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(c.Object, "metadata", "annotations", "deployment.kubernetes.io/revision")
	unstructured.RemoveNestedField(c.Object, "spec", "template", "metadata", "creationTimestamp")
	return c
}

// normalized returns the fields of an object with the types that decoding JSON gives, so that numbers compare equal.
func normalized(o *unstructured.Unstructured) map[string]any {
	fields := map[string]any{}
	text, err := json.Marshal(o.Object)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		return nil // impossible: the object was decoded from JSON
	}
	return fields
}

// matches reports whether an object is in the state that a journal recorded.
func matches(live, recorded *unstructured.Unstructured) bool {
	return equality.Semantic.DeepEqual(normalized(withoutServerFields(live)), normalized(recorded))
}

// restoreUnfinished restores the component that an earlier setup left unfinished, if it worked before and does not
// serve now: the checks of this setup take some time, and may fail. A component that serves is left to the rollout.
// If the component cannot be restored, restoreUnfinished prints a warning: this setup may still make it work.
func (a *Applier) restoreUnfinished(ctx context.Context, p *Plan) error {
	r := &rollout{Applier: a, plan: p, infra: client.ObjectKeyFromObject(p.Infra)}
	j, err := loadJournal(ctx, a.Client, r.infra)
	if err != nil || j == nil || j.NotWorking {
		return err
	}
	broken, err := r.broken(ctx, j)
	if err != nil || !broken {
		return err
	}
	if _, err := fmt.Fprintf(a.Out, "an earlier setup left %s unfinished, and it does not serve; rolling it back\n", j.Component); err != nil {
		return err
	}
	back, cancel := context.WithTimeout(ctx, rollbackDeadline)
	defer cancel()
	if _, err := r.restore(back, j, true); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("rolling back %s, which an earlier setup left unfinished: %w", j.Component, err)
		}
		_, err = fmt.Fprintf(a.Out, "Warning: rolling back %s, which an earlier setup left unfinished: %v\n", j.Component, err)
		return err
	}
	a.restored = j.Component
	_, err = fmt.Fprintf(a.Out, "%s is rolled back\n", j.Component)
	return err
}

// broken reports whether no workload of the journal's component has a ready pod, and at least one differs from its
// recorded state, so that restoring it may help.
func (r *rollout) broken(ctx context.Context, j *journal) (bool, error) {
	recorded := map[inventory.Entry]*unstructured.Unstructured{} // nil for those that did not exist
	for _, fields := range j.Before {
		o := &unstructured.Unstructured{Object: fields}
		recorded[entryWithoutUID(o)] = o
	}
	for _, e := range j.Absent {
		recorded[e] = nil
	}
	differs := false
	for e, before := range recorded {
		if e.Kind != "StatefulSet" {
			continue // a Deployment keeps its pods until new ones are ready
		}
		live, err := current(ctx, r.Client, e.Object())
		if err != nil {
			return false, err
		}
		if live != nil && live.GetDeletionTimestamp() != nil {
			live = nil
		}
		of := live
		if of == nil {
			of = before
		}
		if of == nil || of.GetLabels()[v1alpha1.LabelComponent] != j.Component {
			continue
		}
		if hasReadyPod(live) {
			return false, nil
		}
		differs = differs || live == nil || before == nil || !matches(live, before)
	}
	return differs, nil
}

// restore applies the previous objects of a journal. It waits until the workloads are ready, or without wait only until
// no pod blocks their rollout. It then deletes the journal, unless the component worked before and is not ready yet: the
// next setup still needs it. It reports whether it deleted the journal.
func (r *rollout) restore(ctx context.Context, j *journal, wait bool) (done bool, err error) {
	for _, e := range j.Absent {
		if e.Kind != "StatefulSet" {
			continue // only a StatefulSet occupies an address that a previous workload needs
		}
		removed, err := e.DeleteOwned(ctx, r.Client, r.infra)
		if err == nil && removed {
			err = r.waitForDeletion(ctx, e)
		}
		if err != nil {
			return false, err
		}
	}
	entries, err := inventory.Load(ctx, r.Client, r.infra)
	if err != nil {
		return false, err
	}
	var workloads []*unstructured.Unstructured
	for _, fields := range j.Before {
		o := &unstructured.Unstructured{Object: fields}
		live, err := r.currentOrDeleted(ctx, o)
		if err != nil {
			return false, err
		}
		if live != nil && matches(live, o) {
			if isWorkload(o) {
				workloads = append(workloads, o)
			}
			continue // applying it would take over fields of other managers
		}
		if live != nil && o.GetKind() != "ConfigMap" && recreated(live, o) {
			continue // setup created it again: a field that cannot be changed differs
		}
		made := o.DeepCopy()
		if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(made), client.FieldOwner(Manager), client.ForceOwnership); err != nil {
			return false, r.explain(o, err)
		}
		if at := slices.IndexFunc(entries, inventory.Of(made).Same); at >= 0 {
			entries[at].UID = made.GetUID() // a retired object was created again
		}
		if isWorkload(o) {
			workloads = append(workloads, o)
		}
	}
	if err := inventory.Save(ctx, r.Client, r.infra, entries, Manager); err != nil {
		return false, err
	}
	var errs []error
	for _, o := range workloads {
		errs = append(errs, r.deleteUnready(ctx, o))
	}
	for _, o := range workloads {
		until := r.waitReady
		if !wait {
			until = r.waitUnblocked
		}
		errs = append(errs, until(ctx, o))
	}
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	for _, o := range workloads {
		if wait || j.NotWorking {
			break
		}
		if u, err := readWorkload(ctx, r.Client, o); err != nil || u.missing != "" {
			return false, err
		}
	}
	return true, removeJournal(ctx, r.Client, r.infra)
}
