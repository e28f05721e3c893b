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

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// Manager is the name of the field manager with which setup creates, applies and updates objects.
const Manager = "kubectl-oooi"

// Applier applies a plan to a cluster, or previews it. It must be used for one call of Apply or Preview only.
type Applier struct {
	Client client.Client
	// Out receives one line for each object that changes, one line whenever Apply waits for something else, and
	// warnings.
	Out io.Writer
	// Force takes over conflicting fields of other field managers.
	Force bool
	// Adopt takes over objects that setup did not create, for which Apply and Preview otherwise return an error. It
	// does not affect namespaces, and shared objects of a Helm release: these are always left unchanged.
	Adopt bool
	// AllowDowngrade replaces objects that a newer version of the plugin applied, for which Apply and Preview otherwise
	// return an error.
	AllowDowngrade bool
	// Remember has the version of the plugin, and the flags to store for the next setup. If it is nil, Apply stores no
	// flags, and allows a downgrade.
	Remember *Remembered
	// Wait waits for each component that changes before the next one changes. Without it, Apply waits only for components that
	// have a ready pod.
	Wait bool
	// Message is stored in the record.
	Message string

	previews  bool              // namespaces and CRDs may be missing, as stage was not called
	unmanaged []inventory.Entry // objects of a Helm release or of other owners, which are left unchanged
	releases  map[string]int    // number of objects by Helm release, "namespace/name"
	// live and merged are the objects before and after apply, by entryWithoutUID. Those in merged without a UID are created, or
	// deleted and created again.
	live, merged map[inventory.Entry]*unstructured.Unstructured
}

// keepsExisting reports whether an object of the plan is left unchanged if it exists.
func (a *Applier) keepsExisting(p *Plan, o *unstructured.Unstructured) bool {
	return slices.Contains(p.Kept, o.GetKind()) || slices.ContainsFunc(a.unmanaged, inventory.Of(o).Same)
}

// Apply submits every object to the API server as a dry run, and checks the new pods. Then it stores a record of the revision,
// applies one component after the other, and deletes the objects of earlier revisions that the plan does not contain. If a
// component does not work after the change, Apply restores the last revision that worked, and returns an error. If nothing
// changes, it writes nothing. If a check fails, it deletes the namespaces and CRDs that it created for the checks. It returns
// ErrConcurrent if another setup began meanwhile: the plan is outdated.
func (a *Applier) Apply(ctx context.Context, p *Plan) error {
	h, err := readHistory(ctx, a.Client, client.ObjectKeyFromObject(p.Infra))
	if err != nil {
		return err
	}
	if err := a.checkPlan(ctx, p, h); err != nil {
		return err
	}
	staged, err := a.stage(ctx, p)
	var r *rollout
	if err == nil {
		r, err = a.prepare(ctx, p, h)
	}
	if err != nil {
		return errors.Join(err, a.unstage(context.WithoutCancel(ctx), staged), errors.New("nothing was applied"))
	}
	last := h.last(StatusDeployed)
	if !a.changes(p) && len(r.obsolete) == 0 && last != nil && (a.Remember == nil || last.Flags.same(a.Remember)) {
		return nil
	}
	return r.deploy(ctx)
}

// prepare submits the objects as a dry run, and checks the new pods.
func (a *Applier) prepare(ctx context.Context, p *Plan, h *history) (*rollout, error) {
	if err := a.reportHelm(); err != nil {
		return nil, err
	}
	if err := a.preflight(ctx, p); err != nil {
		return nil, err
	}
	obsolete, err := a.obsolete(ctx, p, h)
	if err != nil {
		return nil, err
	}
	r, err := a.newRollout(ctx, p, h, obsolete)
	if err == nil {
		err = r.check(ctx)
	}
	return r, err
}

// checkPlan returns an error for a downgrade, for objects that setup did not create, and for an Infra that is being deleted.
func (a *Applier) checkPlan(ctx context.Context, p *Plan, h *history) error {
	if err := a.stampVersion(ctx, p, h); err != nil {
		return err
	}
	if err := a.checkOwnership(ctx, p); err != nil {
		return err
	}
	return a.checkTermination(ctx, p)
}

// manager returns the library that applies objects.
func (a *Applier) manager() *ssa.ResourceManager {
	poller := polling.NewStatusPoller(a.Client, a.Client.RESTMapper(), polling.Options{})
	m := ssa.NewResourceManager(a.Client, poller, ssa.Owner{Field: Manager, Group: v1alpha1.GroupName})
	m.SetConcurrency(atOnce)
	return m
}

// obsolete returns the objects of earlier revisions that the plan does not contain: those with the labels of setup and the
// annotation of the Infra. A network for VMs that others use is among them; prune hands it over. A user who may not list objects in
// all namespaces finds those in the namespaces of the plan and of the last record. h is nil without the right to read records.
func (a *Applier) obsolete(ctx context.Context, p *Plan, h *history) ([]*unstructured.Unstructured, error) {
	infra := client.ObjectKeyFromObject(p.Infra)
	wanted := p.infraEntries()
	known := slices.Clone(wanted)
	if h != nil {
		known = append(known, h.last("").entries()...)
	}
	found, err := inventory.Find(ctx, a.Client, infra, known, func(string) {})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(u *unstructured.Unstructured) bool {
		e := inventory.Of(u)
		return slices.ContainsFunc(wanted, e.Same) || a.isVMNetwork(p, e)
	}), nil
}

// isVMNetwork reports whether an entry is the VMs' network of the plan, which setup may have created.
func (a *Applier) isVMNetwork(p *Plan, e inventory.Entry) bool {
	network := p.Infra.Spec.NetworkConfig.NetworkAttachment(p.Infra.Namespace)
	return e.Kind == read.AttachmentKind.Kind && e.Namespace == network.Namespace && e.Name == network.Name
}

// infraObjects returns the objects of the Infra, without those that all Infras of a cluster share.
func (p *Plan) infraObjects() []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(p.Objects), p.shared)
}

// infraEntries returns the inventory entries of infraObjects.
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

// isDefinition reports whether dry runs of other objects fail without an object.
func isDefinition(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Namespace" || o.GetKind() == "CustomResourceDefinition"
}

// stage applies the CRDs of the plan, and the namespaces that do not exist, without which dry runs of other objects fail. It
// returns those that it created.
func (a *Applier) stage(ctx context.Context, p *Plan) (created []inventory.Entry, err error) {
	definitions := []*unstructured.Unstructured{namespaceOf(p)}
	for _, o := range p.Objects {
		if isDefinition(o) && !a.keepsExisting(p, o) {
			definitions = append(definitions, o)
		}
	}
	var apply []*unstructured.Unstructured
	for _, o := range definitions {
		live, err := a.currentOrDeleted(ctx, o)
		if err != nil {
			return created, err
		}
		switch {
		case live == nil:
			created = append(created, inventory.Of(o))
		case o.GetKind() == "Namespace":
			continue
		default:
			if _, err := a.dryRun(ctx, o, live, false); err != nil { // a conflict
				return created, err
			}
		}
		apply = append(apply, o.DeepCopy())
	}
	set, err := a.manager().ApplyAll(ctx, apply, ssa.DefaultApplyOptions())
	if err != nil {
		return created, fmt.Errorf("applying namespaces and CustomResourceDefinitions: %w", err)
	}
	for _, o := range apply {
		if err := a.waitEstablished(ctx, o); err != nil {
			return created, err
		}
	}
	for _, change := range set.Entries {
		if change.Action != ssa.UnchangedAction {
			of := change.ObjMetadata // Namespaces and CRDs have no namespace
			if _, err := fmt.Fprintf(a.Out, "%s %s %s\n", of.GroupKind.Kind, of.Name, change.Action); err != nil {
				return created, err
			}
		}
	}
	return created, nil
}

// waitEstablished waits for at most 30 seconds until a CRD has the condition Established.
func (a *Applier) waitEstablished(ctx context.Context, crd *unstructured.Unstructured) error {
	if crd.GetKind() != "CustomResourceDefinition" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return poll(ctx, io.Discard, func(ctx context.Context) (string, error) {
		live, err := current(ctx, a.Client, crd)
		if err != nil {
			return "", err
		}
		if live != nil {
			conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
			for _, c := range conditions {
				if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
					return "", nil
				}
			}
		}
		return "the API server to serve CustomResourceDefinition " + crd.GetName(), nil
	})
}

// namespaceOf returns the Infra's namespace, which may not exist in a new cluster.
func namespaceOf(p *Plan) *unstructured.Unstructured {
	return inventory.Entry{APIVersion: "v1", Kind: "Namespace", Name: p.Infra.Namespace}.Object()
}

// unstage deletes what stage created, except CRDs that are in use.
func (a *Applier) unstage(ctx context.Context, created []inventory.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var errs []error
	for _, e := range slices.Backward(created) {
		live, err := current(ctx, a.Client, e.Object())
		if err != nil || live == nil || e.Kind == "CustomResourceDefinition" && a.inUse(ctx, e) {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, client.IgnoreNotFound(a.Client.Delete(ctx, live)))
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

// atOnce is the number of concurrent requests while setup changes nothing.
const atOnce = 8

// preflight reads each object, submits the new one to the API server as a dry run, and records both. The error lists all
// refusals.
func (a *Applier) preflight(ctx context.Context, p *Plan) error {
	live, merged, errs := make([]*unstructured.Unstructured, len(p.Objects)), make([]*unstructured.Unstructured, len(p.Objects)), make([]error, len(p.Objects))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, o := range p.Objects {
		group.Go(func() error {
			if live[i], errs[i] = current(ctx, a.Client, o); errs[i] == nil {
				merged[i], errs[i] = a.dryRun(ctx, o, live[i], a.keepsExisting(p, o))
			}
			return nil
		})
	}
	_ = group.Wait() // always nil
	a.live, a.merged = map[inventory.Entry]*unstructured.Unstructured{}, map[inventory.Entry]*unstructured.Unstructured{}
	for i, o := range p.Objects {
		a.live[entryWithoutUID(o)], a.merged[entryWithoutUID(o)] = live[i], merged[i]
	}
	return errors.Join(errs...)
}

// dryRun returns an object as it will be after apply. The result has no UID if the object is created, or deleted and created
// again.
func (a *Applier) dryRun(ctx context.Context, o, live *unstructured.Unstructured, kept bool) (*unstructured.Unstructured, error) {
	if live != nil && (kept || o.GetKind() == "Namespace") {
		return live, nil
	}
	options := []client.ApplyOption{client.FieldOwner(Manager), client.DryRunAll}
	if a.Force {
		options = append(options, client.ForceOwnership)
	}
	merged := o.DeepCopy()
	err := a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(merged), options...)
	switch {
	case err == nil && live == nil:
		merged.SetUID("")
		return merged, nil
	case err == nil:
		return merged, nil
	case live != nil && recreates(o) && apierrors.IsInvalid(err):
		return o, nil
	case live == nil && (apierrors.IsNotFound(err) || meta.IsNoMatchError(err)) && a.previews:
		return o, nil
	}
	return nil, a.explain(o, live, err)
}

// recreates reports whether setup deletes an object and creates it again if a field that cannot be changed differs: nothing
// misses it meanwhile.
func recreates(o *unstructured.Unstructured) bool {
	return slices.Contains([]string{"RoleBinding", "ClusterRoleBinding"}, o.GetKind())
}

// changes reports whether apply would change an object of the plan.
func (a *Applier) changes(p *Plan) bool {
	return slices.ContainsFunc(p.Objects, func(o *unstructured.Unstructured) bool { return a.verb(o) != Unchanged })
}

// apply applies one object, unless it matches already or is kept. It reports whether the object changed.
func (r *rollout) apply(ctx context.Context, o *unstructured.Unstructured) (bool, error) {
	if r.merged != nil && r.verb(o) == Unchanged { // nil in a rollback
		return false, nil
	}
	if r.plan != nil && r.verb(o) == Created { // another Infra may have created it since the preflight
		if live, err := current(ctx, r.Client, o); err != nil {
			return false, err
		} else if live != nil {
			if other, err := r.otherOwner(ctx, o, live); err != nil || other != "" {
				return false, errors.Join(err, r.plan.nameTaken(o, other))
			}
		}
	}
	change, err := r.manager().Apply(ctx, o, ssa.ApplyOptions{Force: recreates(o), WaitInterval: pollInterval, WaitTimeout: time.Minute})
	if err != nil {
		return false, r.explain(o, nil, err)
	}
	if change.Action == ssa.UnchangedAction {
		return false, nil
	}
	verb := Verb(change.Action)
	if r.merged != nil && r.verb(o) == Recreated {
		verb = Recreated
	}
	_, err = fmt.Fprintf(r.Out, "%s %s\n", entryWithoutUID(o), verb)
	return true, err
}

// removeOwned deletes an object of an Infra, and prints it. It reports false without an error if the object does not
// exist or no longer belongs to the Infra.
func removeOwned(ctx context.Context, c client.Client, out io.Writer, e inventory.Entry, infra types.NamespacedName) (bool, error) {
	live, err := current(ctx, c, e.Object())
	if err != nil || live == nil || !inventory.Owned(live, infra) {
		return false, err
	}
	removed, err := e.Delete(ctx, c)
	if err != nil || !removed {
		return false, err
	}
	_, err = fmt.Fprintf(out, "%s %s\n", e, Deleted)
	return true, err
}

// waitForDeletion waits for at most 2 minutes until an object no longer exists, and for a workload in addition for the
// time that its pods may take to end.
func (a *Applier) waitForDeletion(ctx context.Context, live *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute+terminationTime(live))
	defer cancel()
	return inventory.Of(live).WaitForDeletion(ctx, a.Client)
}

// prune deletes obsolete objects. A network for VMs that another Infra or a VM uses is kept, without oooi's labels.
func (a *Applier) prune(ctx context.Context, obsolete []*unstructured.Unstructured, infra types.NamespacedName) error {
	for _, o := range slices.Backward(obsolete) {
		e := inventory.Of(o)
		user, err := networkUser(ctx, a.Client, o, infra)
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

// explain adds the object to an error of the API server, and the remedy if there is one. For a conflict it names each field, its
// value in live and its manager.
func (a *Applier) explain(o, live *unstructured.Unstructured, err error) error {
	what := entryWithoutUID(o).String()
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("applying %s: %s; use --force-conflicts to take over the fields", what, conflicts(live, err))
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot "): // RBAC, and not admission
		return fmt.Errorf("applying %s: %w; setup requires this permission, see docs/reference/setup.md", what, err)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("applying %s: the cluster does not serve this API: %w", what, err)
	case apierrors.IsInvalid(err) && o.GetKind() == "StatefulSet" && (strings.Contains(err.Error(), "immutable") || strings.Contains(err.Error(), "updates to statefulset spec")):
		return fmt.Errorf("applying %s: %w; delete the StatefulSet without its pods, and run setup again: kubectl -n %s delete statefulset %s --cascade=orphan", what, err, o.GetNamespace(), o.GetName())
	default:
		return fmt.Errorf("applying %s: %w", what, err)
	}
}

// current returns the present state of an object; nil if the object or its kind does not exist.
func current(ctx context.Context, c client.Client, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := (&read.Reader{Client: c}).Object(ctx, o.GroupVersionKind(), client.ObjectKeyFromObject(o))
	if apierrors.IsNotFound(err) || errors.Is(err, read.ErrNotServed) {
		return nil, nil
	}
	return live, err
}

// currentOrDeleted is current for an object that may be being deleted: it then waits until the object no longer exists.
func (a *Applier) currentOrDeleted(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := current(ctx, a.Client, o)
	if live == nil || live.GetDeletionTimestamp() == nil {
		return live, err
	}
	return nil, a.waitForDeletion(ctx, live)
}

// entryWithoutUID returns the inventory entry of an object without its UID.
func entryWithoutUID(o *unstructured.Unstructured) inventory.Entry {
	e := inventory.Of(o)
	e.UID = ""
	return e
}

func isWorkload(o *unstructured.Unstructured) bool {
	return o.GetKind() == "StatefulSet" || o.GetKind() == "Deployment"
}
