package setup

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// kind returns the kind of the plan's owner.
func (p *Plan) kind() string {
	if p.Standalone {
		return "ProxyServer"
	}
	return "Infra"
}

// owner returns the object to which a list's other objects belong: the Infra or the standalone ProxyServer; nil if the list lacks it.
// Objects have no owner reference to it: otherwise, the garbage collector would delete running components when the Infra or its CRD
// disappears without teardown.
func (p *Plan) owner(list []*unstructured.Unstructured) *unstructured.Unstructured {
	at := slices.IndexFunc(list, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Infra" || p.Standalone && o.GetKind() == "ProxyServer"
	})
	if at < 0 {
		return nil
	}
	return list[at]
}

// shared reports whether an object exists once per cluster: CRDs, control, its namespace, and xdsd ingress.
func (p *Plan) shared(o *unstructured.Unstructured) bool {
	isOwner := o.GetKind() == "Infra" || o.GetKind() == "ProxyServer"
	return !isOwner && o.GetAnnotations()[v1alpha1.AnnotationInfra] != keyOf(p.Infra)
}

// Annotations that Helm sets on each object of a release.
const (
	helmRelease   = "meta.helm.sh/release-name"
	helmNamespace = "meta.helm.sh/release-namespace"
)

// ownerOf returns the owner as it is in the cluster; nil if it does not exist.
func (p *Plan) ownerOf(changes []*ObjectChange) *unstructured.Unstructured {
	owner := p.owner(p.Objects)
	for _, c := range changes {
		if owner != nil && c.rendered == owner {
			return c.Live
		}
	}
	return nil
}

// checkOwnership sets Merged of objects that stay unchanged: the kinds in Kept, and shared objects of a Helm release, since
// setup and Helm would overwrite each other's changes. It prints the release. It returns an error for every other object that setup
// must not change.
func (a *Applier) checkOwnership(p *Plan, changes []*ObjectChange) error {
	var errs []error
	releases := map[string]int{} // number of objects by "namespace/name"
	for _, c := range changes {
		switch live := c.Live; {
		case live == nil:
		case c.Shared && live.GetAnnotations()[helmRelease] != "":
			releases[live.GetAnnotations()[helmNamespace]+"/"+live.GetAnnotations()[helmRelease]]++
			c.Merged = live
		case slices.Contains(p.Kept, c.Kind):
			c.Merged = live
		case !slices.Contains([]string{"Namespace", "Infra", "ProxyServer"}, c.Kind): // the user names the Infra or ProxyServer
			errs = append(errs, p.checkOwner(c.rendered, live, a.Adopt))
		}
	}
	for _, release := range slices.Sorted(maps.Keys(releases)) {
		if _, err := fmt.Fprintf(a.Out, "%d objects of control are managed by Helm release %s and unchanged; upgrade the release together with "+
			"kubectl-oooi\n", releases[release], release); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// checkOwner returns an error if an object of the plan exists and belongs to another Infra or standalone ProxyServer or, unless
// adopt is set, was not created by setup.
func (p *Plan) checkOwner(o, live *unstructured.Unstructured, adopt bool) error {
	switch owner := live.GetAnnotations()[v1alpha1.AnnotationInfra]; {
	case owner != "" && owner != o.GetAnnotations()[v1alpha1.AnnotationInfra]:
		return fmt.Errorf("%s exists and belongs to Infra or ProxyServer %s: rename the %s, because both names and namespaces give the same object name; if "+
			"%[2]s no longer exists, delete the object",
			inventory.Of(o), owner, p.kind())
	case !adopt && live.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy:
		return fmt.Errorf("%s exists and was not created by setup; delete or rename it, or take it over with --adopt; teardown then deletes it", inventory.Of(o))
	}
	return nil
}
