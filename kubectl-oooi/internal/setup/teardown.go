package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Teardown deletes an Infra and everything that setup created for it. Plan must be called before DryRun and Run. Run,
// and the Plan before it, must be called by the function that is passed to WithLock.
type Teardown struct {
	Client client.Client
	// Out receives a line for each deleted object, for what teardown waits for, and warnings.
	Out   io.Writer
	Infra types.NamespacedName
	// Kind is the kind that the user named: "Infra", or "ProxyServer" for one without an Infra; empty for either of
	// them.
	Kind string
	// Leases also deletes DHCP leases.
	Leases bool
	// CRDs also deletes the CRDs if no other Infra or ProxyServer exists. The CRD of VirtualIngress is kept while
	// VirtualIngresses exist, because their Ingresses would be deleted with them.
	CRDs bool
	// VirtualIngress also deletes the VirtualIngress controller, and with CRDs all VirtualIngresses.
	VirtualIngress bool
	// Notes has a line for each object that is kept, with the reason, and a warning for each object of the inventory that
	// does not belong to the Infra, and for each kind of which the objects could not be listed in all namespaces. Plan
	// sets it.
	Notes []string

	own, leases, shared, crds []inventory.Entry
	kept                      []inventory.Entry
	apps                      bool // control has to clean up apps ingress in the hosted cluster
	keepsIngress              bool // the VirtualIngress controller is kept
}

// Plan returns the objects to delete, in the order of their deletion, and sets Notes. It changes nothing in the
// cluster. It returns an error if the Infra and all objects that setup created for it do not exist, if Kind is set and
// is not the kind of the object that setup deployed, or if the cluster cannot be read.
func (t *Teardown) Plan(ctx context.Context) ([]inventory.Entry, error) {
	t.Notes, t.own, t.leases, t.shared, t.crds, t.kept, t.apps, t.keepsIngress = nil, nil, nil, nil, nil, nil, false, false
	if err := t.checkKind(ctx); err != nil {
		return nil, err
	}
	deployed, err := t.deployedEntries(ctx)
	if err != nil {
		return nil, err
	}
	warn := func(text string) { t.Notes = append(t.Notes, "Warning: "+text) }
	own, err := inventory.Find(ctx, t.Client, t.Infra, namespacesOf(t.Infra.Namespace, deployed), warn)
	if err != nil {
		return nil, err
	}
	infra, err := t.owner(ctx, read.InfraKind.Kind)
	if err != nil {
		return nil, err
	}
	if infra != nil {
		t.apps, _, _ = unstructured.NestedBool(infra.Object, "spec", "appsIngress", "enabled")
		// The Infra is deleted first (own is reversed below): while it exists, control would create its objects again.
		self := inventory.Of(infra)
		own = append(slices.DeleteFunc(own, self.Same), self)
	}
	kept, err := t.findLeases(ctx)
	switch {
	case t.Leases && err != nil:
		return nil, err
	case t.Leases:
		t.leases = kept
	case len(kept) > 0:
		t.Notes = append(t.Notes, fmt.Sprintf("%d DHCP leases are kept, so that VMs get their addresses again after another setup; --leases deletes them", len(kept)))
	}
	if len(own)+len(t.leases) == 0 {
		return nil, fmt.Errorf("%s %s does not exist, and no objects that setup created for it were found", cmp.Or(t.Kind, read.InfraKind.Kind), t.Infra)
	}
	slices.Reverse(own)
	if t.own, err = t.deletable(ctx, own); err != nil {
		return nil, err
	}
	last, err := t.last(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.virtualIngress(ctx, last); err != nil {
		return nil, err
	}
	if last {
		if err := t.base(ctx); err != nil {
			return nil, err
		}
	}
	return slices.Concat(t.own, t.leases, t.shared, t.crds), nil
}

// deletedFirst reports whether an entry is an Infra or a StatefulSet, which Run deletes before other objects.
func deletedFirst(e inventory.Entry) bool { return e.Kind == "Infra" || e.Kind == "StatefulSet" }

// checkKind returns an error if the object whose objects Plan finds is not of the kind that the user named: a
// ProxyServer that belongs to an Infra is deleted with that Infra only.
func (t *Teardown) checkKind(ctx context.Context) error {
	if t.Kind == "" {
		return nil
	}
	infra, err := t.owner(ctx, read.InfraKind.Kind)
	if err != nil {
		return err
	}
	server, err := t.owner(ctx, read.ProxyServerKind.Kind)
	if err != nil {
		return err
	}
	if t.Kind == read.InfraKind.Kind {
		if infra == nil && server != nil && inventory.Owns(server) {
			return fmt.Errorf("Infra %[1]s/%[2]s does not exist, and ProxyServer %[1]s/%[2]s does not belong to an Infra; use 'kubectl oooi teardown proxyserver/%[2]s -n %[1]s' to delete it", t.Infra.Namespace, t.Infra.Name) //nolint:staticcheck // a kind begins with a capital
		}
		return nil
	}
	owner := ""
	if server != nil {
		owner, _, _ = unstructured.NestedString(server.Object, "spec", "infraRef", "name")
	}
	if owner == "" {
		listed, err := t.deployedEntries(ctx)
		if err != nil {
			return err
		}
		// The record has the Infra also after it was deleted without teardown.
		if infra != nil || slices.ContainsFunc(listed, func(e inventory.Entry) bool { return e.Kind == read.InfraKind.Kind }) {
			owner = t.Infra.Name
		}
	}
	if owner == "" {
		return nil
	}
	return fmt.Errorf("ProxyServer %[1]s/%[2]s belongs to Infra %[1]s/%[3]s; use 'kubectl oooi teardown infra/%[3]s -n %[1]s' to delete the Infra and everything setup created for it", t.Infra.Namespace, t.Infra.Name, owner)
}

// deployedEntries returns the objects of the last record; nil if there is none, or if reading records is forbidden.
func (t *Teardown) deployedEntries(ctx context.Context) ([]inventory.Entry, error) {
	h, err := readHistory(ctx, t.Client, t.Infra)
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return h.last("").entries(), nil
}

// namespacesOf returns the Infra's namespace and those of the entries, sorted and without duplicates.
func namespacesOf(infra string, list []inventory.Entry) []string {
	namespaces := []string{infra}
	for _, e := range list {
		if e.Namespace != "" {
			namespaces = append(namespaces, e.Namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// deletable returns the entries without networks that others use. It adds a note for each of these.
func (t *Teardown) deletable(ctx context.Context, own []inventory.Entry) ([]inventory.Entry, error) {
	var list []inventory.Entry
	for _, e := range own {
		user, err := networkUser(ctx, t.Client, e, t.Infra)
		if err != nil {
			return nil, err
		}
		if user == "" {
			list = append(list, e)
			continue
		}
		t.kept = append(t.kept, e)
		t.Notes = append(t.Notes, fmt.Sprintf("%s is kept, and no longer managed by setup: %s", e, user))
	}
	return list, nil
}

// owner returns the Infra or the ProxyServer of that name; nil if it or its kind does not exist.
func (t *Teardown) owner(ctx context.Context, kind string) (*unstructured.Unstructured, error) {
	return current(ctx, t.Client, inventory.Entry{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Namespace: t.Infra.Namespace, Name: t.Infra.Name}.Object())
}

// findLeases returns the Lease objects of the Infra's DHCP pool, which do not have the annotation of the Infra.
func (t *Teardown) findLeases(ctx context.Context) ([]inventory.Entry, error) {
	var list []inventory.Entry
	r := &read.Reader{Client: t.Client}
	err := r.In(ctx, coordinationv1.SchemeGroupVersion.WithKind("Lease"), t.Infra.Namespace, func(u *unstructured.Unstructured) {
		if infra, _, ok := leases.ParseName(u.GetNamespace(), u.GetName()); ok && infra == t.Infra.Name {
			list = append(list, inventory.Of(u))
		}
	}, client.HasLabels{leases.PoolLabel})
	return list, err //nolint:wrapcheck // read wraps it
}

// last reports whether no Infra and no ProxyServer exists that Run does not delete.
func (t *Teardown) last(ctx context.Context) (bool, error) {
	r := &read.Reader{Client: t.Client}
	last := true
	for _, kind := range []schema.GroupVersionKind{read.InfraKind, read.ProxyServerKind} {
		err := r.In(ctx, kind, "", func(u *unstructured.Unstructured) {
			last = last && slices.ContainsFunc(t.own, inventory.Of(u).Same)
		})
		if err != nil && !errors.Is(err, read.ErrNotServed) {
			return false, err
		}
	}
	return last, nil
}

// base adds the objects that all Infras of a cluster share to those to delete.
func (t *Teardown) base(ctx context.Context) error {
	objects, err := objectsIn(render.BaseDir)
	if err != nil {
		return err
	}
	keepNamespace := t.keepsIngress // set if an object is kept that may be in the namespace
	for _, o := range slices.Backward(objects) {
		u, err := current(ctx, t.Client, o)
		if err != nil {
			return err
		}
		switch {
		case u == nil:
		case u.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy:
			keepNamespace = true
			if u.GetKind() == "Namespace" {
				t.Notes = append(t.Notes, fmt.Sprintf("%s is kept: setup did not create it", inventory.Of(u)))
			}
		case u.GetKind() == "Namespace" && keepNamespace: // deleting it would delete the kept object
		case u.GetKind() == "Namespace":
			reason, err := namespaceKeepReason(ctx, t.Client, u.GetName())
			if err != nil {
				return err
			}
			if reason != "" {
				t.Notes = append(t.Notes, fmt.Sprintf("%s is kept: %s", inventory.Of(u), reason))
				continue
			}
			t.shared = append(t.shared, inventory.Of(u))
		case u.GetKind() != "CustomResourceDefinition":
			t.shared = append(t.shared, inventory.Of(u))
		case t.CRDs:
			keep, err := t.crdKept(ctx, u)
			if err != nil {
				return err
			}
			if keep {
				t.Notes = append(t.Notes, fmt.Sprintf("%s is kept: VirtualIngresses exist, and their Ingresses would be deleted with them; use --virtual-ingress to delete them", inventory.Of(u)))
				continue
			}
			t.crds = append(t.crds, inventory.Of(u))
		}
	}
	return nil
}

// objectsIn returns the objects of a directory of manifests: render.BaseDir or render.VirtualIngressDir.
func objectsIn(dir string) ([]*unstructured.Unstructured, error) {
	files, err := render.Overlay(nil, render.Images{}, nil, dir)
	if err != nil {
		return nil, err
	}
	objects, _, err := render.Build(files)
	return objects, err
}

// DryRun submits the deletion of each object of the plan to the API server as a dry run, and returns the first error.
func (t *Teardown) DryRun(ctx context.Context) error {
	for _, e := range t.own {
		if _, err := e.DeleteOwned(ctx, t.Client, t.Infra, client.DryRunAll); err != nil {
			return err
		}
	}
	for _, e := range slices.Concat(t.leases, t.shared, t.crds) {
		if _, err := e.Delete(ctx, t.Client, client.DryRunAll); err != nil {
			return err
		}
	}
	return nil
}

// WithLock stores a pending record, which excludes setups and other teardowns, and calls do with a context that ends if another
// process changes the record. It waits until a running setup or teardown has ended, or ctx ends. It returns an error without
// waiting if Plan would refuse Kind. Without the namespace of records, or the right to write them, it calls do without a lock.
func (t *Teardown) WithLock(ctx context.Context, do func(context.Context) error) error {
	if err := t.checkKind(ctx); err != nil {
		return err
	}
	h, err := waitIdle(ctx, t.Client, t.Out, t.Infra)
	if apierrors.IsForbidden(err) {
		return do(ctx)
	}
	if err != nil {
		return err
	}
	record := &Record{Message: commandTeardown}
	if last := h.last(""); last != nil { // the next command still needs it if this one is killed
		record.Version, record.Flags, record.Objects = last.Version, last.Flags, last.Objects
	}
	locked, end, err := h.begin(ctx, record, commandTeardown)
	switch {
	case apierrors.IsForbidden(err):
		if _, err := fmt.Fprintf(t.Out, "Warning: Infra %s is not locked against setups and other teardowns: %v\n", t.Infra, err); err != nil {
			return err //nolint:wrapcheck // printing
		}
		return do(ctx)
	case apierrors.IsNotFound(err):
		return do(ctx)
	case err != nil:
		return err
	}
	if err = do(locked); err == nil {
		return end(statusDeleted, "")
	}
	if ctx.Err() == nil && locked.Err() != nil {
		return fmt.Errorf("%w; run teardown again", context.Cause(locked))
	}
	return errors.Join(err, end(StatusFailed, err.Error()))
}

// Run removes the Infra's entry from the cluster DNS, deletes the objects of the plan and the inventory, removes
// oooi's labels from networks that are kept, and waits until the deleted objects no longer exist.
func (t *Teardown) Run(ctx context.Context) error {
	dns := &ClusterDNS{Client: t.Client, Out: t.Out, Infra: t.Infra}
	err := dns.Forward(ctx, nil, nil)
	if err != nil && !apierrors.IsForbidden(err) { // without this right setup cannot have added an entry
		return err
	}
	clean := true
	var deleted []inventory.Entry
	for _, workloads := range []bool{true, false} {
		for _, e := range t.own {
			if workloads != deletedFirst(e) {
				continue
			}
			removed, err := removeOwned(ctx, t.Client, t.Out, e, t.Infra)
			if err != nil {
				return err
			}
			if removed {
				deleted = append(deleted, e)
			}
		}
		// Control cleans up in the hosted cluster when neither the Infra nor its pods exist. It needs Roles for that.
		if workloads && t.apps {
			if clean, err = waitForCleanup(ctx, t.Client, t.Out, t.Infra); err != nil {
				return err
			}
		}
	}
	for _, e := range t.kept {
		if err := handOver(ctx, t.Client, e); err != nil {
			return err
		}
	}
	if err := deleteLegacy(ctx, t.Client, t.Infra); err != nil {
		return err
	}
	for _, e := range slices.Concat(t.leases, t.shared, t.crds) {
		removed, err := e.Delete(ctx, t.Client)
		if err == nil && removed {
			deleted = append(deleted, e)
			_, err = fmt.Fprintf(t.Out, "%s %s\n", e, Deleted)
		}
		if err != nil {
			return err
		}
	}
	return t.wait(ctx, deleted, clean)
}

// wait waits until the deleted objects no longer exist, the owners of others last. It prints a warning for a namespace that
// Kubernetes keeps while an API of the cluster is down. If control has cleaned up, only objects that teardown deleted had an
// owner. wait then takes the garbage collector's step for it, because the garbage collector learns of a kind only up to 30
// seconds after its CRD was created.
func (t *Teardown) wait(ctx context.Context, deleted []inventory.Entry, clean bool) error {
	for _, owners := range []bool{false, true} {
		for _, e := range deleted {
			if e.Orphans() != owners {
				continue
			}
			if owners && clean {
				e.FinishOrphaning(ctx, t.Client)
			}
			err := e.WaitForDeletion(ctx, t.Client)
			if errors.Is(err, inventory.ErrUndiscovered) {
				_, err = fmt.Fprintf(t.Out, "Warning: %v\n", err)
			}
			if err != nil && !meta.IsNoMatchError(err) {
				return err
			}
		}
	}
	return nil
}
