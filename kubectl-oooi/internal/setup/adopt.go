package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// checkOwnership returns an error for each object of a plan that exists and was not created by setup, unless Adopt is
// set, and for each that belongs to another Infra that exists. It marks shared objects of a Helm release, and namespaces
// that setup did not create, as unmanaged.
func (a *Applier) checkOwnership(ctx context.Context, p *Plan) error {
	a.releases = map[string]int{}
	objects := slices.DeleteFunc(slices.Clone(p.Objects), func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Infra" || o.GetKind() == "ProxyServer" || slices.Contains(p.Kept, o.GetKind()) // the user asks setup to apply these
	})
	existing := make([]*unstructured.Unstructured, len(objects))
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, o := range objects {
		group.Go(func() (err error) {
			existing[i], err = current(each, a.Client, o)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err //nolint:wrapcheck // current wraps it
	}
	var errs []error
	for i, o := range objects {
		live := existing[i]
		if live == nil {
			continue
		}
		why := notOwnedReason(o, live)
		other, err := a.otherOwner(ctx, o, live)
		if err != nil {
			return err
		}
		switch release := live.GetAnnotations()[helmRelease]; {
		case release != "" && p.shared(o):
			a.releases[live.GetAnnotations()[helmNamespace]+"/"+release]++
			a.unmanaged = append(a.unmanaged, inventory.Of(o))
		case why == "" || o.GetKind() == "Namespace" && live.GetDeletionTimestamp() != nil: // stage waits for its deletion and creates it
		case o.GetKind() == "Namespace":
			a.unmanaged = append(a.unmanaged, inventory.Of(o))
		case other != "": // taking it over would break the other Infra
			errs = append(errs, p.nameTaken(o, other))
		case !a.Adopt:
			errs = append(errs, fmt.Errorf("%s exists and %s: delete or rename it, or take it over with --adopt; teardown then deletes it", inventory.Of(o), why))
		}
	}
	if len(errs) > 0 {
		return errors.Join(append(errs, errors.New("nothing was applied"))...)
	}
	return nil
}

// nameTaken returns the error for an object that belongs to another Infra or standalone ProxyServer.
func (p *Plan) nameTaken(o *unstructured.Unstructured, by string) error {
	return fmt.Errorf("%s exists and belongs to %s: rename the %s (its name and namespace give the same object name as those of %[2]s)", inventory.Of(o), by, p.kind())
}

// otherOwner returns the Infra or standalone ProxyServer, as "KIND NAMESPACE/NAME", that the annotation of an existing
// object names. It is empty if that owner does not exist or owns the wanted object too.
func (a *Applier) otherOwner(ctx context.Context, want, live *unstructured.Unstructured) (string, error) {
	ours, theirs := want.GetAnnotations()[v1alpha1.AnnotationInfra], live.GetAnnotations()[v1alpha1.AnnotationInfra]
	namespace, name, ok := strings.Cut(theirs, "/")
	if ours == "" || ours == theirs || !ok {
		return "", nil
	}
	for _, kind := range []schema.GroupVersionKind{read.InfraKind, read.ProxyServerKind} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		u.SetNamespace(namespace)
		u.SetName(name)
		u, err := current(ctx, a.Client, u)
		if err != nil {
			return "", err
		}
		if u != nil && inventory.Owns(u) {
			return entryWithoutUID(u).String(), nil
		}
	}
	return "", nil
}

// notOwnedReason returns why setup does not own the object live that exists in place of want. It is empty for an object
// that setup created, or that was applied from the output of setup.
func notOwnedReason(want, live *unstructured.Unstructured) string {
	ours, theirs := want.GetAnnotations()[v1alpha1.AnnotationInfra], live.GetAnnotations()[v1alpha1.AnnotationInfra]
	switch {
	case theirs != "" && ours != theirs:
		return "belongs to Infra " + theirs
	case live.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy:
		return ""
	case want.GetKind() != "Namespace" && slices.ContainsFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == Manager }):
		return "" // setup applied it, and its label was removed since
	default:
		return "was not created by setup"
	}
}
