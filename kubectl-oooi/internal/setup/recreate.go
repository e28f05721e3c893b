package setup

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// recreated reports whether setup deletes an object and creates it again: a field that cannot be changed differs from o,
// the rendered object. It is false for kinds whose objects clients or pods would miss; live may be nil.
func recreated(o, live *unstructured.Unstructured) bool {
	if live == nil {
		return false
	}
	differs := func(field string) bool { return !equality.Semantic.DeepEqual(o.Object[field], live.Object[field]) }
	switch o.GetKind() {
	case "Service": // without a cluster IP, which clients could keep
		return isHeadless(live) && !isHeadless(o)
	case "ConfigMap":
		return live.Object["immutable"] == true && (differs("data") || differs("binaryData"))
	case "RoleBinding", "ClusterRoleBinding":
		return differs("roleRef")
	}
	return false
}

func isHeadless(service *unstructured.Unstructured) bool {
	address, _, _ := unstructured.NestedString(service.Object, "spec", "clusterIP")
	return address == corev1.ClusterIPNone
}

// dryRun submits an object as a dry run, and returns it as it would be after apply. The result has no UID if apply
// deletes the object and creates it again.
func (a *Applier) dryRun(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	as := o.DeepCopy()
	refused := a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(as), append(a.owner(), client.DryRunAll)...)
	live := as
	switch {
	case apierrors.IsInvalid(refused):
		var err error
		if live, err = current(ctx, a.Client, o); err != nil {
			return nil, err
		}
	case refused != nil:
		return nil, refused //nolint:wrapcheck // explain wraps it
	}
	if !recreated(o, live) {
		return as, refused //nolint:wrapcheck // explain wraps it
	}
	if finalizers := slices.DeleteFunc(live.GetFinalizers(), ofKubernetes); len(finalizers) > 0 {
		remove, err := removeFinalizers(live)
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("it must be deleted and created again, but has the finalizers %s; remove the finalizers and run setup again: %s", strings.Join(finalizers, ", "), remove)
	}
	// Under another name, because the object exists.
	made := copyAs(o, o.GetName()+"-check")
	if err := a.Client.Create(ctx, made, client.DryRunAll, client.FieldOwner(Manager)); err != nil {
		if strings.Contains(err.Error(), exceededQuota) { // the new object takes the place of the deleted one
			return o.DeepCopy(), nil
		}
		return nil, fmt.Errorf("it must be deleted and created again: %w", err)
	}
	made.SetName(o.GetName())
	made.SetAnnotations(o.GetAnnotations())
	made.SetUID("")
	return made, nil
}

// deleteRecreated deletes an object that apply creates again, and waits until it no longer exists.
func (a *Applier) deleteRecreated(ctx context.Context, live *unstructured.Unstructured) error {
	e := inventory.Of(live)
	if _, err := e.Delete(ctx, a.Client); err != nil {
		return err
	}
	return a.waitForDeletion(ctx, e)
}
