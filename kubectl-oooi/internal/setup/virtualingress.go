package setup

import (
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// virtualIngress finds what keeps Ingresses for VirtualIngresses, which no Infra needs: it goes where
// that is asked for, and else stays with its namespace, whoever has installed it.
func (t *Teardown) virtualIngress(ctx context.Context, last bool) error {
	objects, err := folder(render.VirtualIngressOf)
	if err != nil {
		return err
	}
	for _, o := range slices.Backward(objects) {
		u, err := t.read(ctx, o)
		if err != nil {
			return err
		}
		switch {
		case u == nil:
			continue
		case t.VirtualIngress && u.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy:
			t.shared = append(t.shared, inventory.Of(u))
		case o.GetKind() == "Deployment":
			t.ingress = true
			if last {
				t.Stays = append(t.Stays, fmt.Sprintf("%s and its namespace are kept: %s", inventory.Of(u), t.whyItStays()))
			}
		}
		if o.GetKind() != "Deployment" || t.ingress {
			continue
		}
		// The Lease by which it has led is nobody's else.
		lease := &unstructured.Unstructured{}
		lease.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
		lease.SetNamespace(u.GetNamespace())
		lease.SetName(u.GetName())
		if lease, err = t.read(ctx, lease); err != nil {
			return err
		}
		if lease != nil {
			t.shared = append(t.shared, inventory.Of(lease))
		}
	}
	if !t.VirtualIngress || t.ingress || t.CRDs && last {
		return nil
	}
	list, err := t.virtualIngresses(ctx)
	if err == nil && len(list) > 0 {
		t.Stays = append(t.Stays, fmt.Sprintf("VirtualIngress %s/%s and all others are kept with their Ingresses, which are no longer reconciled", list[0].GetNamespace(), list[0].GetName()))
	}
	return err
}

// whyItStays says what could be done about it.
func (t *Teardown) whyItStays() string {
	if t.VirtualIngress {
		return "setup did not create it; it may belong to Helm"
	}
	return "use --virtual-ingress to delete it"
}

// used reports whether a CRD is that of VirtualIngresses, there are any, and they are to stay.
func (t *Teardown) used(ctx context.Context, crd *unstructured.Unstructured) (bool, error) {
	if kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind"); kind != "VirtualIngress" || t.VirtualIngress {
		return false, nil
	}
	list, err := t.virtualIngresses(ctx)
	return len(list) > 0, err
}

// virtualIngresses has one, if there is any.
func (t *Teardown) virtualIngresses(ctx context.Context) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("VirtualIngress"))
	err := t.Client.List(ctx, list, client.Limit(1))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for VirtualIngresses: %w", err)
	}
	return list.Items, nil
}

// read reads an object as it is in the cluster; nil for none.
func (t *Teardown) read(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(o.GroupVersionKind())
	err := t.Client.Get(ctx, client.ObjectKeyFromObject(o), u)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", inventory.Of(o), err)
	}
	return u, nil
}
