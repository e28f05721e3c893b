package setup

import (
	"context"
	"fmt"
	"io"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Teardown takes away what setup has made for an Infra.
type Teardown struct {
	Client client.Client
	// Out has a line for every object that goes.
	Out   io.Writer
	Infra types.NamespacedName
	// Leases takes away who has which address, too.
	Leases bool
	// CRDs takes away our APIs, too, with the last Infra. That of VirtualIngresses stays while there
	// are any: their Ingresses would go with them.
	CRDs bool
	// VirtualIngress takes away what keeps Ingresses for VirtualIngresses, and has CRDs take these, too.
	VirtualIngress bool
	// Stays has a line for everything that is left, and for what could not be looked for, once there is a plan.
	Stays []string

	own, shared, crds []inventory.Entry
	kept              []inventory.Entry
	apps              bool // control has something to clean up in the hosted cluster
	ingress           bool // what keeps Ingresses stays
}

// Plan finds out what is to go, in the order in which it goes.
func (t *Teardown) Plan(ctx context.Context) ([]inventory.Entry, error) {
	own, err := inventory.Load(ctx, t.Client, t.Infra)
	if err != nil {
		return nil, err
	}
	warn := func(text string) { t.Stays = append(t.Stays, "Warning: "+text) }
	found, err := inventory.Find(ctx, t.Client, t.Infra, namespacesOf(t.Infra.Namespace, own), warn)
	if err != nil {
		return nil, err
	}
	own = inventory.Merge(own, found)
	infra, err := t.infra(ctx)
	if err != nil {
		return nil, err
	}
	if infra != nil {
		t.apps, _, _ = unstructured.NestedBool(infra.Object, "spec", "appsIngress", "enabled")
		// First of all: while it is there, control makes anew what belongs to it.
		self := inventory.Of(infra)
		own = append(slices.DeleteFunc(own, self.Same), self)
	}
	if len(own) == 0 {
		return nil, fmt.Errorf("Infra %s does not exist, and there are no objects that setup created for it", t.Infra) //nolint:staticcheck // a kind begins with a capital
	}
	if t.Leases {
		given, err := t.leases(ctx)
		if err != nil {
			return nil, err
		}
		own = append(given, own...)
	}
	slices.Reverse(own)
	if t.own, err = t.unused(ctx, own); err != nil {
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
	return slices.Concat(t.own, t.shared, t.crds), nil
}

// namespacesOf are the Infra's namespace and those of an inventory.
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

// unused leaves out what others need.
func (t *Teardown) unused(ctx context.Context, own []inventory.Entry) ([]inventory.Entry, error) {
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
		t.Stays = append(t.Stays, fmt.Sprintf("%s is kept, and no longer managed by setup: %s", e, user))
	}
	return list, nil
}

func (t *Teardown) infra(ctx context.Context) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("Infra"))
	err := t.Client.Get(ctx, t.Infra, u)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Infra %s: %w", t.Infra, err)
	}
	return u, nil
}

// leases are those of the Infra's pool.
func (t *Teardown) leases(ctx context.Context) ([]inventory.Entry, error) {
	var all []inventory.Entry
	r := &read.Reader{Client: t.Client}
	err := r.In(ctx, coordinationv1.SchemeGroupVersion.WithKind("Lease"), t.Infra.Namespace, func(u *unstructured.Unstructured) {
		if infra, _, ok := leases.ParseName(u.GetNamespace(), u.GetName()); ok && infra == t.Infra.Name {
			all = append(all, inventory.Of(u))
		}
	}, client.HasLabels{leases.PoolLabel})
	return all, err
}

// last reports whether there is no other Infra, nor a ProxyServer of its own.
func (t *Teardown) last(ctx context.Context) (bool, error) {
	for _, kind := range []string{"Infra", "ProxyServer"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
		err := t.Client.List(ctx, list)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("looking for other %ss that share objects: %w", kind, err)
		}
		for i := range list.Items {
			if !slices.ContainsFunc(t.own, inventory.Of(&list.Items[i]).Same) {
				return false, nil
			}
		}
	}
	return true, nil
}

// base is what there is once in a cluster.
func (t *Teardown) base(ctx context.Context) error {
	objects, err := folder(render.BaseOf)
	if err != nil {
		return err
	}
	others := t.ingress // somebody else has installed a part, or a part stays
	for _, o := range slices.Backward(objects) {
		u, err := t.read(ctx, o)
		if err != nil {
			return err
		}
		switch {
		case u == nil:
		case u.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy:
			others = true
			if u.GetKind() == "Namespace" {
				t.Stays = append(t.Stays, fmt.Sprintf("%s is kept: setup did not create it", inventory.Of(u)))
			}
		case u.GetKind() == "Namespace" && others: // it would go with it
		case u.GetKind() == "Namespace":
			inhabitant, err := inhabitant(ctx, t.Client, u.GetName())
			if err != nil {
				return err
			}
			if inhabitant != "" {
				t.Stays = append(t.Stays, fmt.Sprintf("%s is kept: %s", inventory.Of(u), inhabitant))
				continue
			}
			t.shared = append(t.shared, inventory.Of(u))
		case u.GetKind() != "CustomResourceDefinition":
			t.shared = append(t.shared, inventory.Of(u))
		case t.CRDs:
			used, err := t.used(ctx, u)
			if err != nil {
				return err
			}
			if used {
				t.Stays = append(t.Stays, fmt.Sprintf("%s is kept: VirtualIngresses exist, and their Ingresses would be deleted with them; use --virtual-ingress to delete them", inventory.Of(u)))
				continue
			}
			t.crds = append(t.crds, inventory.Of(u))
		}
	}
	return nil
}

// folder has the objects of one of render's folders.
func folder(of string) ([]*unstructured.Unstructured, error) {
	files, err := render.Overlay(nil, render.Images{}, of)
	if err != nil {
		return nil, err
	}
	objects, _, err := render.Build(files)
	return objects, err
}

// DryRun has the API server check each deletion, and deletes nothing.
func (t *Teardown) DryRun(ctx context.Context) error {
	for _, e := range slices.Concat(t.own, t.shared, t.crds) {
		if _, err := e.Remove(ctx, t.Client, client.DryRunAll); err != nil {
			return err
		}
	}
	return nil
}

// Run takes it all away.
func (t *Teardown) Run(ctx context.Context) error {
	change, err := (&ClusterDNS{Client: t.Client, Infra: t.Infra}).Withdraw(ctx)
	if err != nil && !apierrors.IsForbidden(err) { // who may not read it has not changed it
		return err
	}
	if err := change.Report(t.Out, "no longer forwards to oooi"); err != nil {
		return err
	}
	for i, e := range t.own {
		if err := t.remove(ctx, e); err != nil {
			return err
		}
		if i == 0 && t.apps && e.Kind == "Infra" {
			if err := cleaned(ctx, t.Client, t.Out, t.Infra); err != nil {
				return err
			}
		}
	}
	for _, e := range t.kept {
		if err := handOver(ctx, t.Client, e); err != nil {
			return err
		}
	}
	if err := inventory.Drop(ctx, t.Client, t.Infra); err != nil {
		return err
	}
	for _, e := range slices.Concat(t.shared, t.crds) {
		if err := t.remove(ctx, e); err != nil {
			return err
		}
	}
	for _, e := range slices.Concat(t.own, t.shared, t.crds) {
		if err := e.Gone(ctx, t.Client); err != nil && !meta.IsNoMatchError(err) {
			return err
		}
	}
	return nil
}

func (t *Teardown) remove(ctx context.Context, e inventory.Entry) error {
	removed, err := e.Remove(ctx, t.Client)
	if err != nil || !removed {
		return err
	}
	_, err = fmt.Fprintf(t.Out, "%s deleted\n", e)
	return err
}
