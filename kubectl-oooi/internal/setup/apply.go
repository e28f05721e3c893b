package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	// Remember has the version of the plugin, and the flags to store for the next setup. Plan sets it, and Previous: the version
	// of the plugin in the previous setup; empty if it is unknown.
	Remember *Remembered
	Previous string
	// Wait means that Apply waits for each changed component before it changes the next one, and then until every component works.
	// Otherwise, Apply waits only for components that have a ready pod.
	Wait bool
	// Message is stored in the record.
	Message string

	history  *history // read before the plan is made
	previews bool     // nothing is applied, so that namespaces and CRDs may be missing
	staged   bool     // namespaces or CRDs were applied
}

// Apply submits every object to the API server as a dry run, and checks the new pods. Then it stores a record of the revision,
// applies one component after the other, and deletes the objects of earlier revisions that the plan does not contain. If a
// component does not work after the change, Apply restores the last working revision, and returns an error. Without changes, it writes
// nothing. If a check fails, it has applied at most namespaces and CRDs, without which dry runs fail. It returns ErrConcurrent if
// another setup began after the plan was made.
func (a *Applier) Apply(ctx context.Context, p *Plan) error {
	changes, err := a.compare(ctx, p)
	var r *rollout
	if err == nil {
		r, err = a.newRollout(ctx, p, changes)
	}
	if err == nil {
		err = r.check(ctx)
	}
	switch last := a.history.last(StatusDeployed); {
	case err != nil && a.staged:
		return errors.Join(err, errors.New("only namespaces and CustomResourceDefinitions were applied"))
	case err != nil:
		return errors.Join(err, errors.New("nothing was applied"))
	case slices.ContainsFunc(changes, (*ObjectChange).applied) || last == nil || !equality.Semantic.DeepEqual(last.Flags, a.Remember):
		err = r.deploy(ctx)
	}
	if err != nil || !a.Wait {
		return err
	}
	return a.waitForAll(ctx, p)
}

// readHistory reads the history once. If the user cannot read it, readHistory prints a warning, and the history is empty.
func (a *Applier) readHistory(ctx context.Context, infra types.NamespacedName) (err error) {
	if a.history != nil {
		return nil
	}
	if a.history, err = readHistory(ctx, a.Client, infra); apierrors.IsForbidden(err) {
		_, err = fmt.Fprintf(a.Out, "Warning: the flags of earlier setups are unknown: %v\n", err)
	}
	return err
}

// compare returns the changes that apply makes to the plan's objects, and then to obsolete objects. It returns an error for changes that
// setup or the API server rejects.
func (a *Applier) compare(ctx context.Context, p *Plan) ([]*ObjectChange, error) {
	if err := a.readHistory(ctx, client.ObjectKeyFromObject(p.Infra)); err != nil {
		return nil, err
	}
	namespace := inventory.Entry{APIVersion: "v1", Kind: "Namespace", Name: p.Infra.Namespace}
	definitions := []*ObjectChange{{Entry: namespace, rendered: namespace.Object()}}
	var all, others []*ObjectChange
	for _, o := range p.Objects {
		c := &ObjectChange{Entry: inventory.Of(o), Shared: p.shared(o), rendered: o}
		all = append(all, c)
		if isDefinition(o) {
			definitions = append(definitions, c)
		} else {
			others = append(others, c)
		}
	}
	for _, list := range [][]*ObjectChange{definitions, others} { // a deleted definition deletes its objects
		if err := cmp.Or(concurrently(ctx, list, a.read)...); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(a.checkOwnership(p, all), a.checkVersion(all), p.checkTermination(all)); err != nil {
		return nil, err
	}
	for _, list := range [][]*ObjectChange{definitions, others} {
		if err := errors.Join(concurrently(ctx, list, a.dryRun)...); err != nil {
			return nil, err
		}
		if err := a.stage(ctx, list); err != nil {
			return nil, err
		}
	}
	restartForTokens(all)
	obsolete, err := a.obsolete(ctx, p)
	for _, live := range obsolete {
		all = append(all, &ObjectChange{Entry: inventory.Of(live), Verb: Deleted, Live: live, Pods: pods(live)})
	}
	return all, err
}

// maxConcurrent is the number of concurrent requests while setup changes nothing.
const maxConcurrent = 8

// concurrently calls do for each change, and returns the errors.
func concurrently(ctx context.Context, changes []*ObjectChange, do func(context.Context, *ObjectChange) error) []error {
	errs := make([]error, len(changes))
	var group errgroup.Group
	group.SetLimit(maxConcurrent)
	for i, c := range changes {
		group.Go(func() error {
			errs[i] = do(ctx, c)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errorss
	return errs
}

// read sets the live object. If a namespace or CRD is being deleted, read waits until it is gone.
func (a *Applier) read(ctx context.Context, c *ObjectChange) (err error) {
	c.Live, err = current(ctx, a.Client, c.rendered)
	if live := c.Live; live != nil && live.GetDeletionTimestamp() != nil && !a.previews && isDefinition(live) {
		c.Live = nil
		return a.waitForDeletion(ctx, live)
	}
	return err
}

// dryRun sets the object after apply, and the verb.
func (a *Applier) dryRun(ctx context.Context, c *ObjectChange) (err error) {
	if c.Merged == nil { // checkOwnership keeps it
		c.Merged, err = a.merge(ctx, c.rendered, c.Live)
	}
	switch {
	case err != nil:
	case c.Live == nil:
		c.Verb = Created
	case sameContent(c.Live, c.Merged):
		c.Verb = Unchanged
	default:
		c.Verb = Configured
		if isWorkload(c.Live) && !equality.Semantic.DeepEqual(template(c.Live), template(c.Merged)) {
			c.Pods = pods(c.Live)
		}
	}
	return err
}

// merge returns the object after apply.
func (a *Applier) merge(ctx context.Context, o, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if live != nil && o.GetKind() == "Namespace" { // namespaces are used as they are
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
	return nil, explain(o, live, err)
}

// recreates reports whether setup deletes and creates an object if its immutable roleRef differs.
func recreates(o *unstructured.Unstructured) bool {
	return strings.HasSuffix(o.GetKind(), "RoleBinding")
}

// isDefinition reports whether dry runs of other objects fail if this object is missing.
func isDefinition(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Namespace" || o.GetKind() == "CustomResourceDefinition"
}

// stage applies the namespaces and CRDs among changes, and waits until the API server serves them.
func (a *Applier) stage(ctx context.Context, changes []*ObjectChange) error {
	var changed []*unstructured.Unstructured
	var lines strings.Builder
	for _, c := range changes {
		if !isDefinition(c.rendered) || c.Verb == Unchanged || a.previews {
			continue
		}
		a.staged = true
		if _, err := a.submit(ctx, c.rendered, c.Live); err != nil {
			return err
		}
		changed = append(changed, c.rendered)
		fmt.Fprintln(&lines, c.Entry, c.Verb)
	}
	if len(changed) == 0 {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := poll(within, io.Discard, a.served(changed)); err != nil {
		return fmt.Errorf("applying namespaces and CustomResourceDefinitions: %w", err)
	}
	_, err := fmt.Fprint(a.Out, lines.String())
	return err
}

// served returns the condition that namespaces exist and CRDs are established. It does not require that a CRD's names are
// accepted, including short names that another CRD may use.
func (a *Applier) served(definitions []*unstructured.Unstructured) condition {
	return func(ctx context.Context) (string, error) {
		for _, o := range definitions {
			live, err := current(ctx, a.Client, o)
			if err != nil || live == nil {
				return inventory.Of(o).String(), err
			}
			conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
			established := slices.ContainsFunc(conditions, func(c any) bool {
				is, _ := c.(map[string]any)
				return is["type"] == "Established" && is["status"] == "True"
			})
			if !established && o.GetKind() != "Namespace" {
				return inventory.Of(o).String() + " to be established", nil
			}
		}
		return "", nil
	}
}

// submit applies an object unless nothing would change, and returns the verb. live is the present object. It takes over fields of
// other managers: merge has returned an error for conflicts that Force does not allow.
func (a *Applier) submit(ctx context.Context, o, live *unstructured.Unstructured) (Verb, error) {
	send := func(options ...client.ApplyOption) (*unstructured.Unstructured, error) {
		sent := o.DeepCopy()
		options = append(options, client.FieldOwner(Manager), client.ForceOwnership)
		return sent, a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(sent), options...)
	}
	verb, err := Created, error(nil)
	if live != nil {
		var merged *unstructured.Unstructured
		merged, err = send(client.DryRunAll)
		switch {
		case err == nil && sameContent(live, merged):
			return Unchanged, nil
		case recreates(o) && apierrors.IsInvalid(err):
			err = client.IgnoreNotFound(a.Client.Delete(ctx, live))
		default:
			verb = Configured
		}
	}
	if err == nil {
		_, err = send()
	}
	if err != nil {
		return "", explain(o, live, err)
	}
	return verb, nil
}

// obsolete returns the objects of earlier revisions that the plan does not contain: objects with setup's labels and the Infra's
// annotation, except the plan's VM network. It includes a VM network that others use, which prune hands over. If the user cannot list
// objects in all namespaces, it searches the namespaces of the plan and of the last record.
func (a *Applier) obsolete(ctx context.Context, p *Plan) ([]*unstructured.Unstructured, error) {
	infra, wanted := client.ObjectKeyFromObject(p.Infra), entriesOf(p.infraObjects())
	found, err := inventory.Find(ctx, a.Client, infra, append(a.history.last("").entries(), wanted...), func(string) {})
	if err != nil {
		return nil, err
	}
	network := p.Infra.Spec.NetworkConfig.NetworkAttachment(p.Infra.Namespace)
	return slices.DeleteFunc(found, func(u *unstructured.Unstructured) bool {
		e := inventory.Of(u)
		return slices.ContainsFunc(wanted, e.Same) || e.Kind == read.AttachmentKind.Kind && e.Namespace == network.Namespace && e.Name == network.Name
	}), nil
}

// infraObjects returns the objects of the Infra, without objects that all Infras of a cluster share.
func (p *Plan) infraObjects() []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(p.Objects), p.shared)
}

// apply applies one object, unless it already matches or is kept. It reports whether the object changed.
func (r *rollout) apply(ctx context.Context, c *ObjectChange) (bool, error) {
	if c.Verb == Unchanged {
		return false, nil
	}
	live, err := current(ctx, r.Client, c.rendered)
	if err == nil && live != nil && c.Verb == Created { // another Infra has created it since then
		err = r.plan.checkOwner(c.rendered, live, r.Adopt)
	}
	if err != nil {
		return false, err
	}
	verb, err := r.submit(ctx, c.rendered, live)
	if err != nil || verb == Unchanged {
		return false, err
	}
	_, err = fmt.Fprintf(r.Out, "%s %s\n", c.Entry, verb)
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

// waitForDeletion waits until an object no longer exists, for at most 2 minutes and, for a workload, its pods' termination grace
// period.
func (a *Applier) waitForDeletion(ctx context.Context, live *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute+terminationTime(live))
	defer cancel()
	return inventory.Of(live).WaitForDeletion(ctx, a.Client)
}

// prune deletes obsolete objects. It keeps a VM network that another Infra or a VM uses, but removes oooi's labels.
func (a *Applier) prune(ctx context.Context, obsolete []*unstructured.Unstructured, infra types.NamespacedName) error {
	for _, o := range slices.Backward(obsolete) {
		e := inventory.Of(o)
		user, err := networkUser(ctx, a.Client, o, infra)
		switch {
		case err == nil && user == "":
			_, err = removeOwned(ctx, a.Client, a.Out, e, infra)
		case err == nil:
			if err = handOver(ctx, a.Client, e); err == nil {
				_, err = fmt.Fprintf(a.Out, "%s is kept, and no longer managed by setup: %s\n", e, user)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// current returns the live object; nil if the object or its kind does not exist.
func current(ctx context.Context, c client.Client, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := (&read.Reader{Client: c}).Object(ctx, o.GroupVersionKind(), client.ObjectKeyFromObject(o))
	if apierrors.IsNotFound(err) || errors.Is(err, read.ErrNotServed) {
		return nil, nil
	}
	return live, err
}

func isWorkload(o *unstructured.Unstructured) bool {
	return o.GetKind() == "StatefulSet" || o.GetKind() == "Deployment"
}
