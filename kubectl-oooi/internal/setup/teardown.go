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

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// Teardown deletes an Infra and everything that setup created for it. Plan must be called before DryRun and Run. The function that is
// passed to WithLock must call Plan and Run.
type Teardown struct {
	Client client.Client
	// Out receives a line for each deleted object, for what teardown waits for, and warnings.
	Out   io.Writer
	Infra types.NamespacedName
	// Kind is the kind that the user named: "Infra", or "ProxyServer" for a standalone one; empty for either.
	Kind string
	// Leases, CRDs and VirtualIngress also delete the DHCP leases, the CRDs if no other Infra or ProxyServer exists, and the
	// VirtualIngress controller. The VirtualIngress CRD is deleted only if CRDs and VirtualIngress are set.
	Leases, CRDs, VirtualIngress bool
	// Notes has a line for each kept object, with the reason, and a warning for each kind that could not be listed in all namespaces. Plan
	// sets it.
	Notes []string

	list     []inventory.Entry // to delete, in this order
	networks []inventory.Entry // of VMs, to hand over
}

// Plan returns the objects to delete, in the order of their deletion, and sets Notes. It changes nothing in the cluster. It returns
// an error if neither the Infra nor objects that setup created for it nor records exist, if Kind is set and setup deployed an object of
// another kind, or if the cluster cannot be read.
func (t *Teardown) Plan(ctx context.Context) ([]inventory.Entry, error) {
	t.Notes, t.list, t.networks = nil, nil, nil
	h, err := readHistory(ctx, t.Client, t.Infra)
	if apierrors.IsForbidden(err) {
		h, err = &history{}, nil
	}
	if err != nil {
		return nil, err
	}
	recorded := h.last("").entries()
	named := inventory.Entry{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: read.InfraKind.Kind, Namespace: t.Infra.Namespace, Name: t.Infra.Name}
	infra, err := current(ctx, t.Client, named.Object())
	if err != nil {
		return nil, err
	}
	own, err := inventory.Find(ctx, t.Client, t.Infra, recorded, func(text string) { t.Notes = append(t.Notes, "Warning: "+text) })
	if err != nil {
		return nil, err
	}
	if infra != nil { // delete it first: while it exists, control creates its objects again
		own = append(own, infra)
	}
	if err := t.checkKind(own, infra != nil || slices.ContainsFunc(recorded, named.Same)); err != nil {
		return nil, err
	}
	for _, o := range slices.Backward(own) {
		user, err := networkUser(ctx, t.Client, o, t.Infra)
		if err != nil {
			return nil, err
		}
		if user == "" {
			t.list = append(t.list, inventory.Of(o))
			continue
		}
		t.networks = append(t.networks, inventory.Of(o))
		t.Notes = append(t.Notes, fmt.Sprintf("%s is kept, and no longer managed by setup: %s", inventory.Of(o), user))
	}
	if err := t.addLeases(ctx); err != nil {
		return nil, err
	}
	if len(t.list)+len(t.networks)+len(h.records) == 0 { // a teardown that was killed leaves its record
		return nil, fmt.Errorf("no objects that setup created for %s %s were found", cmp.Or(t.Kind, read.InfraKind.Kind), t.Infra)
	}
	if err := t.addShared(ctx); err != nil {
		return nil, err
	}
	return t.list, nil
}

// checkKind returns an error if Kind is set and setup deployed an object of another kind: an Infra's ProxyServer is deleted only with the
// Infra. hasInfra reports whether the Infra exists, or is in the record.
func (t *Teardown) checkKind(own []*unstructured.Unstructured, hasInfra bool) error {
	at := slices.IndexFunc(own, func(o *unstructured.Unstructured) bool { return o.GetKind() == read.ProxyServerKind.Kind })
	deployed := read.InfraKind.Kind
	if !hasInfra && at >= 0 && inventory.Owns(own[at]) {
		deployed = read.ProxyServerKind.Kind
	}
	if t.Kind == "" || t.Kind == deployed || !hasInfra && at < 0 {
		return nil
	}
	return fmt.Errorf("the objects of %[1]s %[2]s belong to %[3]s %[2]s; use 'kubectl oooi teardown %[4]s/%[5]s -n %[6]s' to delete it and everything "+
		"setup created for it",
		t.Kind, t.Infra, deployed, strings.ToLower(deployed), t.Infra.Name, t.Infra.Namespace)
}

// addLeases adds the Lease objects of the Infra's DHCP pool, which lack the Infra's annotation, if Leases is set, otherwise a note.
func (t *Teardown) addLeases(ctx context.Context) error {
	var list []inventory.Entry
	r := &read.Reader{Client: t.Client}
	err := r.In(ctx, coordinationv1.SchemeGroupVersion.WithKind("Lease"), t.Infra.Namespace, func(u *unstructured.Unstructured) {
		if infra, _, ok := leases.ParseName(u.GetNamespace(), u.GetName()); ok && infra == t.Infra.Name {
			list = append(list, inventory.Of(u))
		}
	}, client.HasLabels{leases.PoolLabel})
	switch {
	case t.Leases:
		t.list = append(t.list, list...)
		return err
	case len(list) > 0:
		t.Notes = append(t.Notes, fmt.Sprintf("%d DHCP leases are kept, so that VMs get their addresses again after another setup; --leases deletes them", len(list)))
	}
	return nil
}

// DryRun submits the deletion of each object of the plan to the API server as a dry run, and returns the first error.
func (t *Teardown) DryRun(ctx context.Context) error {
	for _, e := range t.list {
		if _, err := e.Delete(ctx, t.Client, client.DryRunAll); err != nil {
			return err
		}
	}
	return nil
}

// WithLock stores a pending record, which excludes setups and other teardowns, and calls do with a context that ends if another
// process changes the record. It waits until a running setup or teardown has ended, or ctx is done. If the namespace of records does not exist,
// or the user cannot read and write records, it calls do without a lock.
func (t *Teardown) WithLock(ctx context.Context, do func(context.Context) error) error {
	locked, end, err := t.lock(ctx)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		if _, err := fmt.Fprintf(t.Out, "Warning: Infra %s is not locked against setups and other teardowns: %v\n", t.Infra, err); err != nil {
			return err
		}
		return do(ctx)
	}
	if err != nil {
		return err
	}
	switch err = do(locked); {
	case err == nil:
		return end(statusDeleted, "")
	case ctx.Err() == nil && locked.Err() != nil:
		return fmt.Errorf("%w; run teardown again", context.Cause(locked))
	}
	return errors.Join(err, end(StatusFailed, err.Error()))
}

// lock stores a pending record with the flags and objects of the last record, which the next command needs if this one is killed. It
// returns the results of history.begin.
func (t *Teardown) lock(ctx context.Context) (context.Context, func(status, message string) error, error) {
	h, err := waitIdle(ctx, t.Client, t.Out, t.Infra)
	if err != nil {
		return ctx, nil, err
	}
	record := &Record{Message: commandTeardown}
	if last := h.last(""); last != nil {
		record.Flags, record.Objects = last.Flags, last.Objects
	}
	return h.begin(ctx, record, commandTeardown)
}

// namespaceTimeout is how long Run waits for a namespace. Kubernetes does not delete a namespace while an aggregated API is down.
const namespaceTimeout = 30 * time.Second

// Run removes the Infra's entry from the cluster DNS, deletes the objects of the plan, removes oooi's labels from networks that are
// kept, and waits until the deleted objects no longer exist. It prints a warning for a namespace that still exists after
// namespaceTimeout.
func (t *Teardown) Run(ctx context.Context) error {
	dns := &ClusterDNS{Client: t.Client, Out: t.Out, Infra: t.Infra}
	if err := dns.Forward(ctx, nil, nil); err != nil && !apierrors.IsForbidden(err) { // a user without this permission cannot have added an entry
		return err
	}
	serving, deleted := true, []inventory.Entry(nil)
	for _, e := range t.list {
		// Control cleans up in the hosted cluster when neither the Infra nor its pods exist. The Roles must exist until then.
		if serving && e.Kind != read.InfraKind.Kind && e.Kind != "StatefulSet" {
			serving = false
			if err := waitForCleanup(ctx, t.Client, t.Out, t.Infra); err != nil {
				return err
			}
		}
		removed, err := e.Delete(ctx, t.Client)
		if err == nil && removed {
			deleted = append(deleted, e)
			_, err = fmt.Fprintf(t.Out, "%s %s\n", e, Deleted)
		}
		if err != nil {
			return err
		}
	}
	for _, e := range t.networks {
		if err := handOver(ctx, t.Client, e); err != nil {
			return err
		}
	}
	if err := deleteLegacy(ctx, t.Client, t.Infra); err != nil {
		return err
	}
	for _, e := range deleted {
		if err := t.wait(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// wait waits until a deleted object no longer exists.
func (t *Teardown) wait(ctx context.Context, e inventory.Entry) error {
	if e.Kind != "Namespace" {
		return e.WaitForDeletion(ctx, t.Client)
	}
	waiting, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	err := e.WaitForDeletion(waiting, t.Client)
	if err != nil && ctx.Err() == nil {
		_, err = fmt.Fprintf(t.Out, "Warning: %v\n", err)
	}
	return err
}

// cleanupTimeout is how long setup waits for control to clean up in a hosted cluster.
const cleanupTimeout = 30 * time.Second

// waitForCleanup waits until control has deleted the objects of apps ingress in the hosted cluster. Control deletes the Secret with the
// reader's kubeconfig last. After cleanupTimeout, waitForCleanup deletes the Secret. Then, or if reading Secrets is forbidden, it prints
// which objects may remain, and returns no error.
func waitForCleanup(ctx context.Context, c client.Client, out io.Writer, infra types.NamespacedName) error {
	namespace, name, _ := strings.Cut(model.ReaderSecret(model.Ref{Kind: read.InfraKind.Kind, Namespace: infra.Namespace, Name: infra.Name}), "/")
	e := inventory.Entry{APIVersion: "v1", Kind: "Secret", Namespace: namespace, Name: name}
	secret, err := current(ctx, c, e.Object())
	if apierrors.IsForbidden(err) {
		_, err = fmt.Fprintf(out, "reading %s is forbidden; not waiting for control to clean up in the hosted cluster\n", e)
	}
	if err != nil || secret == nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	if err := inventory.Of(secret).WaitForDeletion(waiting, c); err == nil || ctx.Err() != nil {
		return err
	}
	if secret.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy {
		if _, err := inventory.Of(secret).Delete(ctx, c); err != nil && !apierrors.IsForbidden(err) {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "control has not cleaned up the hosted cluster within %s: the Service, ServiceAccount, Role and RoleBinding of apps "+
		"ingress may remain there, with label %s=%s; delete them\n",
		cleanupTimeout, v1alpha1.LabelManagedBy, v1alpha1.ManagedBy)
	return err
}
