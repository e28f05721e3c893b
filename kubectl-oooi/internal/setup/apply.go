package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Manager is the field manager of what setup applies.
const Manager = "kubectl-oooi"

// Applier applies plans to a cluster.
type Applier struct {
	Client client.Client
	// Out has a line for every object that changes.
	Out io.Writer
	// Force takes over fields that somebody else has set.
	Force bool
	// Adopt takes over objects that setup has not created.
	Adopt bool
	// DryRun has the cluster check everything, and changes nothing that stays.
	DryRun bool
	// Changes are what a dry run has found.
	Changes []ObjectChange
	// OneByOne waits for every component that changes before the next one changes. Else only a
	// component that works is waited for.
	OneByOne bool
	// AllowDowngrade replaces what a newer version of the plugin has applied.
	AllowDowngrade bool
	// Remember is what the next setup keeps; nil for nothing.
	Remember *Remembered

	left     []inventory.Entry                              // what somebody else has installed and looks after
	foreseen map[inventory.Entry]*unstructured.Unstructured // objects as the API server would have them, by bare
	releases map[string]int                                 // of Helm, "namespace/name", with the number of objects in it
}

// leaves reports whether an object stays as it is, if it is there.
func (a *Applier) leaves(p *Plan, o *unstructured.Unstructured) bool {
	return slices.Contains(p.Kept, o.GetKind()) || slices.ContainsFunc(a.left, inventory.Of(o).Same)
}

// Apply checks every object on the server, then applies all, and removes what a plan before had
// and this one has not. When it is refused or interrupted before the first object is applied,
// nothing is left behind.
func (a *Applier) Apply(ctx context.Context, p *Plan) error {
	if err := a.stamp(ctx, p); err != nil {
		return err
	}
	if err := a.owned(ctx, p); err != nil {
		return err
	}
	staged, err := a.stage(ctx, p)
	if err == nil && !a.DryRun {
		var unlock func()
		if ctx, unlock, err = a.lock(ctx, p); unlock != nil {
			defer unlock()
		}
	}
	if err == nil {
		err = a.reportHelm()
	}
	if err == nil {
		err = a.preflight(ctx, p)
	}
	var rollout *rollout
	if err == nil && !a.DryRun {
		rollout, err = a.prepare(ctx, p)
	}
	if err == nil && a.DryRun {
		a.Changes, err = a.changes(ctx, p, staged)
	}
	if err != nil || a.DryRun {
		return errors.Join(err, a.unstage(context.WithoutCancel(ctx), staged))
	}
	infra := types.NamespacedName{Namespace: p.Infra.Namespace, Name: p.Infra.Name}
	before, err := inventory.Load(ctx, a.Client, infra)
	if err != nil {
		return err
	}
	var wanted []inventory.Entry
	for _, o := range p.own() {
		wanted = append(wanted, inventory.Of(o))
	}
	gone := slices.DeleteFunc(slices.Clone(before), func(e inventory.Entry) bool { return slices.ContainsFunc(wanted, e.Same) })
	// First of all, so that an interrupted run is known of. What is there keeps its UID.
	for i, e := range wanted {
		if at := slices.IndexFunc(before, e.Same); at >= 0 {
			wanted[i] = before[at]
		}
	}
	if err := inventory.Save(ctx, a.Client, infra, slices.Concat(wanted, gone), Manager); err != nil {
		return err
	}
	if err := a.rememberFirst(ctx, infra); err != nil {
		return err
	}
	if err := a.holderLast(ctx, p); err != nil {
		return err
	}
	steps, err := rollout.steps(ctx, gone)
	if err != nil {
		return err
	}
	if err := rollout.roll(ctx, steps); err != nil {
		return err
	}
	// Control cleans up after applications that are not wanted any more by rights that go now.
	if slices.ContainsFunc(gone, func(e inventory.Entry) bool { return e.Kind == "Role" && e.Name == render.ControlRole(p.Infra) }) {
		if err := cleaned(ctx, a.Client, a.Out, infra); err != nil {
			return err
		}
	}
	if err := a.prune(ctx, gone, infra); err != nil {
		return err
	}
	wanted = wanted[:0]
	for _, o := range p.own() {
		wanted = append(wanted, inventory.Of(o))
	}
	if err := inventory.Save(ctx, a.Client, infra, wanted, Manager); err != nil {
		return err
	}
	return a.remember(ctx, infra)
}

// own are the objects that belong to the Infra; the others there are once in a cluster.
func (p *Plan) own() []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	for _, o := range p.Objects {
		if !p.shared(o) {
			list = append(list, o)
		}
	}
	return list
}

// shared objects are those of the base.
func (p *Plan) shared(o *unstructured.Unstructured) bool {
	ours := o.GetKind() == "Infra" || o.GetKind() == "ProxyServer"
	return !ours && o.GetAnnotations()[v1alpha1.AnnotationInfra] != keyOf(p.Infra)
}

// helmRelease is on every object that Helm has made, and helmNamespace.
const (
	helmRelease   = "meta.helm.sh/release-name"
	helmNamespace = "meta.helm.sh/release-namespace"
)

// reportHelm says what Helm has installed of the base, which is left to it: the two would set it back and forth.
func (a *Applier) reportHelm() error {
	for _, release := range slices.Sorted(maps.Keys(a.releases)) {
		if _, err := fmt.Fprintf(a.Out, "%[2]d objects of control are managed by Helm release %[1]s and left unchanged; upgrade the release together with kubectl-oooi\n", release, a.releases[release]); err != nil {
			return err
		}
	}
	return nil
}

// staging is what stage has changed, for unstage to take back.
type staging struct {
	created  []inventory.Entry            // namespaces and CRDs that did not exist
	previous []*unstructured.Unstructured // CRDs that were updated, as they were before
}

// stage applies what other objects are checked against: namespaces and CRDs. A dry run only creates those that do not exist.
func (a *Applier) stage(ctx context.Context, p *Plan) (staging, error) {
	var staged staging
	for _, o := range append([]*unstructured.Unstructured{namespaceOf(p)}, p.Objects...) {
		if o.GetKind() != "Namespace" && o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		before := &unstructured.Unstructured{}
		before.SetGroupVersionKind(o.GroupVersionKind())
		err := a.Client.Get(ctx, client.ObjectKey{Name: o.GetName()}, before)
		if err == nil && before.GetDeletionTimestamp() != nil {
			if err = a.gone(ctx, inventory.Of(before)); err == nil {
				err = apierrors.NewNotFound(schema.GroupResource{}, o.GetName())
			}
		}
		if err == nil && (o.GetKind() == "Namespace" || a.DryRun) {
			continue
		}
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return staged, fmt.Errorf("reading %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		applied := o.DeepCopy()
		if err := a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), a.owner()...); err != nil {
			return staged, a.explain(o, err)
		}
		switch {
		case missing:
			staged.created = append(staged.created, inventory.Of(applied))
		case before.GetResourceVersion() != applied.GetResourceVersion():
			staged.previous = append(staged.previous, restorable(o, before))
		}
		if o.GetKind() == "CustomResourceDefinition" {
			if err := a.established(ctx, applied); err != nil {
				return staged, err
			}
		}
		a.foresee(o, applied)
	}
	return staged, nil
}

// restorable is what to apply in place of o to restore an object's previous spec, and its previous values of o's labels
// and annotations.
func restorable(o, before *unstructured.Unstructured) *unstructured.Unstructured {
	previous := func(keys, values map[string]string) map[string]string {
		kept := map[string]string{}
		for key := range keys {
			if value, ok := values[key]; ok {
				kept[key] = value
			}
		}
		return kept
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": before.Object["spec"]}}
	u.SetGroupVersionKind(before.GroupVersionKind())
	u.SetName(before.GetName())
	u.SetLabels(previous(o.GetLabels(), before.GetLabels()))
	u.SetAnnotations(previous(o.GetAnnotations(), before.GetAnnotations()))
	return u
}

// namespaceOf is the Infra's namespace, which may be missing in a new cluster.
func namespaceOf(p *Plan) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	u.SetName(p.Infra.Namespace)
	return u
}

// established waits until the API server serves what a CRD defines.
func (a *Applier) established(ctx context.Context, crd *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		status, _ := crd.Object["status"].(map[string]any)
		conditions, _ := status["conditions"].([]any)
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the API of CustomResourceDefinition %s: %w", crd.GetName(), ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
		if err := a.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return fmt.Errorf("reading CustomResourceDefinition %s: %w", crd.GetName(), err)
		}
	}
}

// unstage deletes what stage created and restores what it updated.
func (a *Applier) unstage(ctx context.Context, staged staging) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var errs []error
	for _, e := range slices.Backward(staged.created) {
		if e.Kind == "CustomResourceDefinition" && a.inUse(ctx, e) {
			continue
		}
		if _, err := e.Remove(ctx, a.Client); err != nil {
			errs = append(errs, err)
		}
	}
	for _, crd := range staged.previous {
		err := a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner(Manager), client.ForceOwnership)
		if err != nil {
			errs = append(errs, fmt.Errorf("restoring the previous %s: %w", inventory.Of(crd), err))
		}
	}
	return errors.Join(errs...)
}

// inUse reports whether there are objects of a CRD that was just made: somebody else's, who was
// as quick. They would go with it.
func (a *Applier) inUse(ctx context.Context, e inventory.Entry) bool {
	crd := e.Object()
	if err := a.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
		return false
	}
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(group + "/v1alpha1")
	list.SetKind(kind)
	err := a.Client.List(ctx, list, client.Limit(1))
	return err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) || len(list.Items) > 0
}

// foresee notes how the API server would have an object, or has it.
func (a *Applier) foresee(o, as *unstructured.Unstructured) {
	if a.foreseen == nil {
		a.foreseen = map[inventory.Entry]*unstructured.Unstructured{}
	}
	a.foreseen[bare(o)] = as
}

// atOnce is how many requests are under way at a time while nothing is changed.
const atOnce = 10

// preflight has the API server check every object as it would be applied.
func (a *Applier) preflight(ctx context.Context, p *Plan) error {
	var owner, others []*unstructured.Unstructured
	for _, o := range p.Objects {
		switch {
		case o.GetKind() == "Namespace" || o.GetKind() == "CustomResourceDefinition" || a.leaves(p, o):
		case p.isOwner(o):
			owner = append(owner, o)
		default:
			others = append(others, o)
		}
	}
	var errs []error
	for _, objects := range [][]*unstructured.Unstructured{owner, others} { // whose owner is known then, if it is there
		foreseen, refused := make([]*unstructured.Unstructured, len(objects)), make([]error, len(objects))
		var group errgroup.Group
		group.SetLimit(atOnce)
		for i, o := range objects {
			group.Go(func() error {
				p.setOwner(o)
				foreseen[i] = o.DeepCopy()
				if err := a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(foreseen[i]), append(a.owner(), client.DryRunAll)...); err != nil {
					refused[i] = a.explain(o, err)
				}
				return nil
			})
		}
		_ = group.Wait()
		errs = append(errs, refused...)
		for i, o := range objects {
			if refused[i] != nil {
				continue
			}
			a.foresee(o, foreseen[i])
			if foreseen[i].GetResourceVersion() != "" { // it is there
				p.knowOwner(o, foreseen[i])
			}
			errs = append(errs, a.reportForeign(foreseen[i]))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, errors.New("nothing was applied"))
	}
	return nil
}

// apply applies one object, unless it is kept as it is, and takes its identity down in it.
//
// It reports whether that replaces pods.
func (a *Applier) apply(ctx context.Context, o *unstructured.Unstructured, kept bool) (bool, error) {
	before := &unstructured.Unstructured{}
	before.SetGroupVersionKind(o.GroupVersionKind())
	err := a.Client.Get(ctx, client.ObjectKeyFromObject(o), before)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading %s: %w", inventory.Of(o), err)
	}
	foreseen, checked := a.foreseen[bare(o)]
	asIs := err == nil && checked && equality.Semantic.DeepEqual(foreseen.Object, before.Object) &&
		equality.Semantic.DeepEqual(o.GetOwnerReferences(), before.GetOwnerReferences()) // of an owner that was not there yet it was not foreseen
	if asIs || err == nil && kept {
		o.SetUID(before.GetUID())
		return false, nil
	}
	if a.Force && isWorkload(o) {
		if err := a.claimForeign(ctx, o); err != nil {
			return false, err
		}
	}
	made := o.DeepCopy()
	if err := a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(made), a.owner()...); err != nil {
		return false, a.explain(o, err)
	}
	o.SetUID(made.GetUID())
	var what string
	switch {
	case err != nil:
		what = "created"
	case before.GetResourceVersion() != made.GetResourceVersion():
		what = "configured"
	default:
		return false, nil
	}
	_, err = fmt.Fprintf(a.Out, "%s %s\n", inventory.Of(o), what)
	return o.GetKind() == "StatefulSet" && before.GetGeneration() != 0 && before.GetGeneration() != made.GetGeneration(), err
}

// retire ends workloads, and waits until their pods are gone.
func (a *Applier) retire(ctx context.Context, gone []inventory.Entry) error {
	for _, e := range gone {
		if e.Kind != "StatefulSet" {
			continue
		}
		removed, err := e.Remove(ctx, a.Client)
		if err != nil {
			return err
		}
		if !removed {
			continue
		}
		if err := a.gone(ctx, e); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(a.Out, "%s deleted\n", e); err != nil {
			return err
		}
	}
	return nil
}

// gone waits until an object that is being deleted is gone, for others to take its place.
func (a *Applier) gone(ctx context.Context, e inventory.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return e.Gone(ctx, a.Client)
}

// prune removes the rest of what is not wanted any more.
func (a *Applier) prune(ctx context.Context, gone []inventory.Entry, infra types.NamespacedName) error {
	for _, e := range slices.Backward(gone) {
		user, err := networkUser(ctx, a.Client, e, infra)
		if err != nil {
			return err
		}
		if user != "" {
			if err := handOver(ctx, a.Client, e); err != nil {
				return err
			}
			if _, err := fmt.Fprintf(a.Out, "%s is kept, and no longer managed by setup: %s\n", e, user); err != nil {
				return err
			}
			continue
		}
		removed, err := e.Remove(ctx, a.Client)
		if err != nil {
			return err
		}
		if removed {
			if _, err := fmt.Fprintf(a.Out, "%s deleted\n", e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *Applier) owner() []client.ApplyOption {
	options := []client.ApplyOption{client.FieldOwner(Manager)}
	if a.Force {
		options = append(options, client.ForceOwnership)
	}
	return options
}

// explain says what an API server has against an object, and what to do about it.
func (a *Applier) explain(o *unstructured.Unstructured, err error) error {
	what := inventory.Of(o).String()
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("%s: conflict with another field manager: %s; use --force-conflicts to take over the fields", what, strings.TrimPrefix(err.Error(), "Apply failed with "))
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: %w; setup requires this permission, see docs/reference/setup.md", what, err)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%s: the cluster does not serve this API: %w", what, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}
