package setup

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// networkUser returns why a network that setup created for the VMs of an Infra must be kept: another Infra or a VM
// uses it, or listing these is forbidden. It is empty if nothing uses the network, and for all other objects.
func networkUser(ctx context.Context, c client.Client, e inventory.Entry, infra types.NamespacedName) (string, error) {
	if e.Kind != read.AttachmentKind.Kind {
		return "", nil
	}
	nad, err := current(ctx, c, e.Object())
	if err != nil || nad == nil || nad.GetLabels()[v1alpha1.LabelComponent] != render.NetworkComponent {
		return "", err
	}
	key, user := e.Namespace+"/"+e.Name, ""
	r := &read.Reader{Client: c}
	for _, use := range []struct {
		kind schema.GroupVersionKind
		by   func(*unstructured.Unstructured) bool
	}{
		{read.InfraKind, func(u *unstructured.Unstructured) bool {
			other, ok := objects.Decode[v1alpha1.Infra](u).(*v1alpha1.Infra)
			return ok && keyOf(other) != infra.String() && other.Spec.NetworkConfig.NetworkAttachment(other.Namespace).String() == key
		}},
		{read.MachineKind, func(u *unstructured.Unstructured) bool { return len(read.MachineInterfaces(u, nil, key)) > 0 }},
	} {
		err := r.In(ctx, use.kind, "", func(u *unstructured.Unstructured) {
			if user == "" && use.by(u) {
				user = fmt.Sprintf("%s %s/%s uses it", u.GetKind(), u.GetNamespace(), u.GetName())
			}
		})
		switch {
		case apierrors.IsForbidden(err):
			user = fmt.Sprintf("listing %s objects, which may use it, is forbidden", use.kind.Kind)
		case errors.Is(err, read.ErrNotServed):
		case err != nil:
			return "", err //nolint:wrapcheck // read wraps it
		}
		if user != "" {
			return user, nil
		}
	}
	return "", nil
}

// handOver removes oooi's labels and annotation from a network that is kept, so that setup no longer manages it.
func handOver(ctx context.Context, c client.Client, e inventory.Entry) error {
	marks := fmt.Appendf(nil, `{"metadata": {"labels": {%q: null, %q: null, %q: null, "app.kubernetes.io/part-of": null}, "annotations": {%q: null}}}`,
		v1alpha1.LabelManagedBy, v1alpha1.LabelInfra, v1alpha1.LabelComponent, v1alpha1.AnnotationInfra)
	if err := c.Patch(ctx, e.Object(), client.RawPatch(types.MergePatchType, marks)); err != nil {
		return fmt.Errorf("removing the labels of setup from %s: %w", e, err)
	}
	return nil
}
