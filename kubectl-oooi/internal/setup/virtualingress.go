package setup

import (
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// virtualIngress adds the VirtualIngress controller to the objects to delete, if VirtualIngress is set and setup
// created it. Otherwise the controller is kept, with its namespace: it does not depend on an Infra.
func (t *Teardown) virtualIngress(ctx context.Context, last bool) error {
	objects, err := objectsIn(render.VirtualIngressDir)
	if err != nil {
		return err
	}
	for _, o := range slices.Backward(objects) {
		u, err := current(ctx, t.Client, o)
		if err != nil {
			return err
		}
		switch {
		case u == nil:
			continue
		case t.VirtualIngress && u.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy:
			t.shared = append(t.shared, inventory.Of(u))
		case o.GetKind() == "Deployment":
			t.keepsIngress = true
			if last {
				t.Notes = append(t.Notes, fmt.Sprintf("%s and its namespace are kept: %s", inventory.Of(u), t.keepReason()))
			}
		}
		if o.GetKind() != "Deployment" || t.keepsIngress {
			continue
		}
		// The Lease of its leader election is not part of the manifests.
		lease := inventory.Entry{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: u.GetNamespace(), Name: u.GetName()}.Object()
		if lease, err = current(ctx, t.Client, lease); err != nil {
			return err
		}
		if lease != nil {
			t.shared = append(t.shared, inventory.Of(lease))
		}
	}
	if !t.VirtualIngress || t.keepsIngress || t.CRDs && last {
		return nil
	}
	kept, err := findFirst(ctx, t.Client, "VirtualIngress")
	if kept != nil {
		t.Notes = append(t.Notes, fmt.Sprintf("%s and all others are kept with their Ingresses, which are no longer reconciled", inventory.Of(kept)))
	}
	return err
}

// keepReason returns why the VirtualIngress controller is kept, or how to delete it.
func (t *Teardown) keepReason() string {
	if t.VirtualIngress {
		return "setup did not create it; it may belong to Helm"
	}
	return "use --virtual-ingress to delete it"
}

// crdKept reports whether a CRD is that of VirtualIngress, VirtualIngresses exist, and they must not be deleted.
func (t *Teardown) crdKept(ctx context.Context, crd *unstructured.Unstructured) (bool, error) {
	if kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind"); kind != "VirtualIngress" || t.VirtualIngress {
		return false, nil
	}
	kept, err := findFirst(ctx, t.Client, "VirtualIngress")
	return kept != nil, err
}
