package setup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// kind returns the kind of the plan's owner.
func (p *Plan) kind() string {
	if p.Standalone {
		return "ProxyServer"
	}
	return "Infra"
}

// isOwner reports whether an object is the one that the plan's objects are for: the Infra or the standalone ProxyServer. They
// have no owner references to it: the garbage collector would delete what serves the VLAN if the Infra or its CRD
// disappeared without teardown.
func (p *Plan) isOwner(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Infra" || p.Standalone && o.GetKind() == "ProxyServer"
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

// checkOwnership sets merged to live for objects that are left unchanged: namespaces, the kinds in Kept, and shared objects of a
// Helm release, which it prints: setup and Helm would overwrite each other's changes. It returns an error for each other object
// that setup must not change.
func (a *Applier) checkOwnership(ctx context.Context, p *Plan) error {
	var errs []error
	releases := map[string]int{} // number of objects by "namespace/name"
	for key, live := range a.live {
		if live != nil && key.Kind == "Namespace" {
			a.merged[key] = live
		}
	}
	for _, o := range p.Objects {
		key := entryWithoutUID(o)
		live := a.live[key]
		switch {
		case live == nil:
		case p.shared(o) && live.GetAnnotations()[helmRelease] != "":
			releases[live.GetAnnotations()[helmNamespace]+"/"+live.GetAnnotations()[helmRelease]]++
			a.merged[key] = live
		case slices.Contains(p.Kept, o.GetKind()):
			a.merged[key] = live
		case !slices.Contains([]string{"Namespace", "Infra", "ProxyServer"}, o.GetKind()): // the user asks setup to apply the latter
			errs = append(errs, a.checkOwner(ctx, p, o, live))
		}
	}
	for _, release := range slices.Sorted(maps.Keys(releases)) {
		if _, err := fmt.Fprintf(a.Out, "%d objects of control are managed by Helm release %s and left unchanged; upgrade the release together with kubectl-oooi\n", releases[release], release); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// checkOwner returns an error if an object of the plan exists and belongs to another Infra or standalone ProxyServer that exists:
// taking it over would break that one. Unless Adopt is set, it also returns an error if setup did not create the object for the
// Infra.
func (a *Applier) checkOwner(ctx context.Context, p *Plan, o, live *unstructured.Unstructured) error {
	owner := live.GetAnnotations()[v1alpha1.AnnotationInfra]
	isOther := owner != "" && owner != o.GetAnnotations()[v1alpha1.AnnotationInfra]
	if namespace, name, ok := strings.Cut(owner, "/"); isOther && ok {
		for _, kind := range []schema.GroupVersionKind{read.InfraKind, read.ProxyServerKind} {
			other, err := current(ctx, a.Client, inventory.Entry{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: namespace, Name: name}.Object())
			if err != nil {
				return err
			}
			if other != nil && inventory.Owns(other) {
				return fmt.Errorf("%s exists and belongs to %s: rename the %s (its name and namespace give the same object name as those of %[2]s)", inventory.Of(o), entryWithoutUID(other), p.kind())
			}
		}
	}
	why := ""
	switch {
	case isOther:
		why = "belongs to Infra " + owner
	case live.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy &&
		!slices.ContainsFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == Manager }): // or its label was removed
		why = "was not created by setup"
	}
	if why == "" || a.Adopt {
		return nil
	}
	return fmt.Errorf("%s exists and %s: delete or rename it, or take it over with --adopt; teardown then deletes it", inventory.Of(o), why)
}
