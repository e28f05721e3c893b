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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Manager is the name of the field manager with which setup creates, applies and updates objects.
const Manager = "kubectl-oooi"

// Applier applies a plan to a cluster, or previews it. It must be used for one call of Apply or Preview only.
type Applier struct {
	Client client.Client
	// Out receives one line for each object that changes, one line whenever Apply waits for something else, and
	// warnings.
	Out io.Writer
	// Force takes over conflicting fields of other field managers. It removes the fields that they added to the spec of an
	// Infra or ProxyServer, and those that they added to pod specs other than by server-side apply.
	Force bool
	// Adopt takes over objects that setup did not create, for which Apply and Preview otherwise return an error. It
	// does not affect namespaces, and shared objects of a Helm release: these are always left unchanged.
	Adopt bool
	// DryRun submits all objects as a dry run. Existing objects are not changed. Namespaces and CRDs that do not exist
	// are created for it, and deleted again, except CRDs of which another client has created objects.
	DryRun bool
	// Changes is the result of Apply with DryRun, in the order of Preview; nil without DryRun.
	Changes []ObjectChange
	// OneByOne waits for each component that changes before the next one changes. Without it, Apply waits only for
	// components that had a ready pod.
	OneByOne bool
	// AllowDowngrade replaces objects that a newer version of the plugin applied, for which Apply and Preview otherwise
	// return an error.
	AllowDowngrade bool
	// AllowLoss applies a change although its pods would be away for long, because the API server takes long to admit them.
	AllowLoss bool
	// Remember has the version of the plugin, and the flags to store for the next setup. If it is nil, Apply stores no
	// flags, and allows a downgrade.
	Remember *Remembered

	unmanaged []inventory.Entry                              // objects of a Helm release or of other owners, which are left unchanged
	predicted map[inventory.Entry]*unstructured.Unstructured // results of dry runs, by entryWithoutUID
	releases  map[string]int                                 // number of objects by Helm release, "namespace/name"
	restored  string                                         // the component of an unfinished rollout that was rolled back
}

// keepsExisting reports whether an object of the plan is left unchanged if it exists.
func (a *Applier) keepsExisting(p *Plan, o *unstructured.Unstructured) bool {
	return slices.Contains(p.Kept, o.GetKind()) || slices.ContainsFunc(a.unmanaged, inventory.Of(o).Same)
}

// Apply submits every object to the API server as a dry run, then applies one component after the other, and deletes
// objects of the inventory that the plan does not contain. If a component does not work after the change, Apply
// restores its previous objects if these worked, and returns an error. If a check fails or is interrupted, it deletes
// the namespaces and CRDs that it created for the checks, and restores the CRDs that it updated. With DryRun it only
// sets Changes.
func (a *Applier) Apply(ctx context.Context, p *Plan) error {
	if err := a.stampVersion(ctx, p); err != nil {
		return err
	}
	if err := a.checkOwnership(ctx, p); err != nil {
		return err
	}
	staged := &staging{}
	err := a.stage(ctx, staged, namespaceOf(p)) // of the lock
	if err == nil && !a.DryRun {
		var unlock func()
		if ctx, unlock, err = a.lock(ctx, p); unlock != nil {
			defer unlock()
		}
	}
	if err == nil {
		err = a.checkTermination(ctx, p) // a teardown deletes the Infra while it has the lock
	}
	if err == nil {
		err = a.stage(ctx, staged, p.Objects...)
	}
	if err == nil {
		err = a.reportHelm()
	}
	if err == nil && !a.DryRun {
		err = a.restoreUnfinished(ctx, p)
	}
	if err == nil {
		err = a.preflight(ctx, p)
	}
	var before, obsolete []inventory.Entry
	wanted := p.infraEntries()
	if err == nil {
		before, err = a.previousObjects(ctx, p)
		obsolete = slices.DeleteFunc(slices.Clone(before), func(e inventory.Entry) bool { return slices.ContainsFunc(wanted, e.Same) })
	}
	if err == nil {
		err = a.checkFinalizers(ctx, p, obsolete)
	}
	var rollout *rollout
	if err == nil && !a.DryRun {
		rollout, err = a.prepareRollout(ctx, p)
	}
	if err == nil && a.DryRun {
		a.Changes, err = a.changes(ctx, p, staged, before)
	}
	if err != nil || a.DryRun {
		return errors.Join(err, a.unstage(context.WithoutCancel(ctx), staged))
	}
	if err := rollout.announce(ctx, obsolete); err != nil {
		return err
	}
	infra := client.ObjectKeyFromObject(p.Infra)
	// The inventory is saved before the first object is applied, so that teardown finds the objects of an interrupted
	// setup. Entries of objects that exist keep their UIDs, unless setup creates them again.
	for i, e := range wanted {
		if at := slices.IndexFunc(before, e.Same); at >= 0 && !a.recreates(e) {
			wanted[i] = before[at]
		}
	}
	if err := inventory.Save(ctx, a.Client, infra, slices.Concat(wanted, obsolete), Manager); err != nil {
		return err
	}
	if err := a.rememberFirst(ctx, infra); err != nil {
		return err
	}
	if err := a.moveHolderLast(ctx, p); err != nil {
		return err
	}
	steps, err := rollout.steps(ctx, obsolete)
	if err != nil {
		return err
	}
	if err := rollout.roll(ctx, steps); err != nil {
		return err
	}
	// Control needs this Role to clean up after apps ingress was disabled, so wait for that before the Role is deleted.
	if slices.ContainsFunc(obsolete, func(e inventory.Entry) bool { return e.Kind == "Role" && e.Name == render.ControlRole(p.Infra) }) {
		if _, err := waitForCleanup(ctx, a.Client, a.Out, infra); err != nil {
			return err
		}
	}
	if err := a.prune(ctx, obsolete, infra); err != nil {
		return err
	}
	if err := inventory.Save(ctx, a.Client, infra, p.infraEntries(), Manager); err != nil {
		return err
	}
	return a.remember(ctx, infra)
}

// previousObjects returns the objects that earlier setups created for the Infra: those of the inventory, with all
// StatefulSets that have the labels of setup or, if it does not exist, all objects that have them. The VMs' network is
// not among the latter, because it may be in use. It prints a warning for each object of the inventory that the plan
// does not contain and that does not belong to the Infra, and omits it.
func (a *Applier) previousObjects(ctx context.Context, p *Plan) ([]inventory.Entry, error) {
	infra := client.ObjectKeyFromObject(p.Infra)
	listed, err := inventory.Load(ctx, a.Client, infra)
	if err != nil {
		return nil, err
	}
	if len(listed) > 0 {
		wanted := p.infraEntries()
		var kept, obsolete []inventory.Entry
		for _, e := range listed {
			if slices.ContainsFunc(wanted, e.Same) {
				kept = append(kept, e)
			} else {
				obsolete = append(obsolete, e)
			}
		}
		var printed error
		obsolete, err := inventory.Owned(ctx, a.Client, infra, obsolete, func(text string) {
			_, err := fmt.Fprintf(a.Out, "Warning: %s\n", text)
			printed = errors.Join(printed, err)
		})
		if err := errors.Join(err, printed); err != nil {
			return nil, err
		}
		workloads, err := inventory.Workloads(ctx, a.Client, infra)
		return inventory.Merge(append(kept, obsolete...), workloads), err
	}
	found, err := inventory.Find(ctx, a.Client, infra, namespacesOf(infra.Namespace, p.infraEntries()), func(string) {})
	network := p.Infra.Spec.NetworkConfig.NetworkAttachment(p.Infra.Namespace)
	return slices.DeleteFunc(found, func(e inventory.Entry) bool {
		return e.Kind == read.AttachmentKind.Kind && e.Namespace == network.Namespace && e.Name == network.Name
	}), err
}

// infraObjects returns the objects of the Infra, without those that all Infras of a cluster share.
func (p *Plan) infraObjects() []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	for _, o := range p.Objects {
		if !p.shared(o) {
			list = append(list, o)
		}
	}
	return list
}

// infraEntries returns the inventory entries of infraObjects, with the UIDs of those that were applied.
func (p *Plan) infraEntries() []inventory.Entry {
	var list []inventory.Entry
	for _, o := range p.infraObjects() {
		list = append(list, inventory.Of(o))
	}
	return list
}

// shared reports whether an object exists once per cluster: CRDs, control, its namespace, and xdsd ingress.
func (p *Plan) shared(o *unstructured.Unstructured) bool {
	ours := o.GetKind() == "Infra" || o.GetKind() == "ProxyServer"
	return !ours && o.GetAnnotations()[v1alpha1.AnnotationInfra] != keyOf(p.Infra)
}

// Annotations that Helm sets on each object of a release.
const (
	helmRelease   = "meta.helm.sh/release-name"
	helmNamespace = "meta.helm.sh/release-namespace"
)

// reportHelm prints the Helm releases whose objects are left unchanged. If setup applied them too, setup and Helm would
// overwrite each other's changes.
func (a *Applier) reportHelm() error {
	for _, release := range slices.Sorted(maps.Keys(a.releases)) {
		if _, err := fmt.Fprintf(a.Out, "%[2]d objects of control are managed by Helm release %[1]s and left unchanged; upgrade the release together with kubectl-oooi\n", release, a.releases[release]); err != nil {
			return err
		}
	}
	return nil
}

// staging is what stage changed, for unstage to revert.
type staging struct {
	created  []inventory.Entry            // namespaces and CRDs that did not exist
	previous []*unstructured.Unstructured // CRDs that were updated, as they were before
}

// stage applies the namespaces and CRDs among the objects, without which dry runs of other objects fail, and adds them
// to staged. A dry run only creates missing ones.
func (a *Applier) stage(ctx context.Context, staged *staging, objects ...*unstructured.Unstructured) error {
	for _, o := range objects {
		if o.GetKind() != "Namespace" && o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		before, err := a.currentOrDeleted(ctx, o)
		if err != nil {
			return err
		}
		if before != nil && (o.GetKind() == "Namespace" || a.DryRun) {
			continue
		}
		applied := o.DeepCopy()
		if err := a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), a.owner()...); err != nil {
			return a.explain(o, err)
		}
		switch {
		case before == nil:
			staged.created = append(staged.created, inventory.Of(applied))
		case before.GetResourceVersion() != applied.GetResourceVersion():
			staged.previous = append(staged.previous, restorable(o, before))
		}
		if o.GetKind() == "CustomResourceDefinition" {
			if err := a.waitEstablished(ctx, applied); err != nil {
				return err
			}
		}
		a.predict(o, applied)
	}
	return nil
}

// restorable returns the object to apply in place of o to restore an object's previous spec, and its previous values
// of o's labels and annotations.
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

// namespaceOf returns the Infra's namespace, which may not exist in a new cluster.
func namespaceOf(p *Plan) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	u.SetName(p.Infra.Namespace)
	return u
}

// waitEstablished waits for at most 30 seconds until a CRD has the condition Established.
func (a *Applier) waitEstablished(ctx context.Context, crd *unstructured.Unstructured) error {
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
			return fmt.Errorf("waiting for the API server to serve CustomResourceDefinition %s: %w", crd.GetName(), contextError(ctx))
		case <-time.After(50 * time.Millisecond):
		}
		if err := a.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return fmt.Errorf("reading CustomResourceDefinition %s: %w", crd.GetName(), err)
		}
	}
}

// unstage deletes what stage created and restores what it updated.
func (a *Applier) unstage(ctx context.Context, staged *staging) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var errs []error
	for _, e := range slices.Backward(staged.created) {
		if e.Kind == "CustomResourceDefinition" && a.inUse(ctx, e) {
			continue
		}
		if _, err := e.Delete(ctx, a.Client); err != nil {
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

// inUse reports whether objects of a CRD exist, or may exist. Another client may have created some since the CRD was
// created, and they would be deleted with it.
func (a *Applier) inUse(ctx context.Context, e inventory.Entry) bool {
	crd := e.Object()
	if err := a.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
		return false
	}
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	found, err := findFirst(ctx, a.Client, kind)
	return err != nil || found != nil
}

// findFirst returns one object of a kind of oooi; nil if there is none, or if the API server does not serve the kind.
func findFirst(ctx context.Context, c client.Client, kind string) (*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
	err := c.List(ctx, list, client.Limit(1))
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing %s objects: %w", kind, err)
	case len(list.Items) == 0:
		return nil, nil
	}
	return &list.Items[0], nil
}

// predict records the result of a dry run of o, or the object itself if it was applied.
func (a *Applier) predict(o, as *unstructured.Unstructured) {
	if a.predicted == nil {
		a.predicted = map[inventory.Entry]*unstructured.Unstructured{}
	}
	a.predicted[entryWithoutUID(o)] = as
}

// recreates reports whether apply deletes the object of an entry and creates it again, by the result of its dry run.
func (a *Applier) recreates(e inventory.Entry) bool {
	e.UID = ""
	predicted := a.predicted[e]
	return predicted != nil && predicted.GetUID() == ""
}

// atOnce is the number of concurrent requests while setup changes nothing.
const atOnce = 8

// preflight submits each object to the API server as a dry run, and records the results. The error lists all refusals.
func (a *Applier) preflight(ctx context.Context, p *Plan) error {
	objects := slices.DeleteFunc(slices.Clone(p.Objects), func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Namespace" || o.GetKind() == "CustomResourceDefinition" || a.keepsExisting(p, o)
	})
	predicted, errs := make([]*unstructured.Unstructured, len(objects)), make([]error, len(objects))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, o := range objects {
		group.Go(func() error {
			var err error
			if predicted[i], err = a.dryRun(ctx, o); err != nil {
				errs[i] = a.explain(o, err)
			}
			return nil
		})
	}
	_ = group.Wait() // always nil
	for i, o := range objects {
		if errs[i] == nil {
			a.predict(o, predicted[i])
			errs[i] = a.reportForeign(o, predicted[i])
		}
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, a.notApplied())
	}
	return nil
}

// apply applies one object, unless it matches already or is kept, and sets its UID. It returns an error if another Infra
// has created the object since the preflight.
func (a *Applier) apply(ctx context.Context, p *Plan, o *unstructured.Unstructured) error {
	before, err := current(ctx, a.Client, o)
	if err != nil {
		return err
	}
	if before != nil {
		other, err := a.otherOwner(ctx, o, before)
		if err != nil {
			return err
		}
		if other != "" {
			return p.nameTaken(o, other)
		}
	}
	predicted, checked := a.predicted[entryWithoutUID(o)]
	asIs := before != nil && checked && equality.Semantic.DeepEqual(predicted.Object, before.Object)
	if asIs || before != nil && a.keepsExisting(p, o) {
		o.SetUID(before.GetUID())
		return nil
	}
	verb := Configured
	switch {
	case before == nil:
		verb = Created
	case recreated(o, before):
		verb = Recreated
		err = a.deleteRecreated(ctx, before)
	case a.Force && (isWorkload(o) || isFromFile(o)):
		err = a.claimForeign(ctx, o)
	}
	if err != nil {
		return err
	}
	made := o.DeepCopy()
	if err := a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(made), a.owner()...); err != nil {
		return a.explain(o, err)
	}
	o.SetUID(made.GetUID())
	if before != nil && before.GetResourceVersion() == made.GetResourceVersion() {
		return nil
	}
	_, err = fmt.Fprintf(a.Out, "%s %s\n", inventory.Of(o), verb)
	return err
}

// removeOwned deletes an object of an Infra, and prints it. It reports false without an error if the object does not
// exist or does not belong to the Infra.
func removeOwned(ctx context.Context, c client.Client, out io.Writer, e inventory.Entry, infra types.NamespacedName) (bool, error) {
	removed, err := e.DeleteOwned(ctx, c, infra)
	if err != nil || !removed {
		return false, err
	}
	_, err = fmt.Fprintf(out, "%s %s\n", e, Deleted)
	return true, err
}

// retire deletes the StatefulSets among the entries, and waits until their pods have ended.
func (a *Applier) retire(ctx context.Context, obsolete []inventory.Entry, infra types.NamespacedName) error {
	for _, e := range obsolete {
		if e.Kind != "StatefulSet" {
			continue
		}
		removed, err := e.DeleteOwned(ctx, a.Client, infra)
		if err != nil {
			return err
		}
		if !removed {
			continue
		}
		if err := a.waitForDeletion(ctx, e); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(a.Out, "%s deleted\n", e); err != nil {
			return err
		}
	}
	return nil
}

// waitForDeletion waits for at most 2 minutes until an object no longer exists, and for a workload in addition for the
// time that its pods may take to end.
func (a *Applier) waitForDeletion(ctx context.Context, e inventory.Entry) error {
	live, err := current(ctx, a.Client, e.Object())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute+terminationTime(live))
	defer cancel()
	return e.WaitForDeletion(ctx, a.Client)
}

// prune deletes obsolete objects. A network for VMs that another Infra or a VM uses is kept, without oooi's labels.
func (a *Applier) prune(ctx context.Context, obsolete []inventory.Entry, infra types.NamespacedName) error {
	for _, e := range slices.Backward(obsolete) {
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
		if _, err := removeOwned(ctx, a.Client, a.Out, e, infra); err != nil {
			return err
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

// explain adds the object to an error of the API server, and the remedy if there is one.
func (a *Applier) explain(o *unstructured.Unstructured, err error) error {
	what := inventory.Of(o).String()
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("applying %s: %s; use --force-conflicts to take over the fields", what, strings.TrimPrefix(err.Error(), "Apply failed with "))
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot "): // RBAC, and not admission
		return fmt.Errorf("applying %s: %w; setup requires this permission, see docs/reference/setup.md", what, err)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("applying %s: the cluster does not serve this API: %w", what, err)
	case nullField(err) != "":
		field := nullField(err)
		return fmt.Errorf("applying %s: the file has no %s, but another client has changed items of it, which the API server does not remove; remove them and run setup again: kubectl -n %s patch %s %s --type=json --patch='[{\"op\":\"remove\",\"path\":\"/%s\"}]'",
			what, field, o.GetNamespace(), strings.ToLower(o.GetKind()), o.GetName(), strings.ReplaceAll(field, ".", "/"))
	case apierrors.IsInvalid(err) && o.GetKind() == "StatefulSet" && (strings.Contains(err.Error(), "immutable") || strings.Contains(err.Error(), "updates to statefulset spec")):
		return fmt.Errorf("applying %s: %w; delete the StatefulSet without its pods, and run setup again: kubectl -n %s delete statefulset %s --cascade=orphan", what, err, o.GetNamespace(), o.GetName())
	default:
		return fmt.Errorf("applying %s: %w", what, err)
	}
}

// nullField returns the field that the API server refuses because it is null; empty if there is none. Server-side apply
// makes a list null if it removes the last item, and another manager has set fields of the item.
func nullField(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	for _, c := range status.Status().Details.Causes {
		if strings.HasPrefix(c.Message, `Invalid value: "null"`) {
			return c.Field
		}
	}
	return ""
}
