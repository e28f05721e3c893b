package setup

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/densityops/oooi/api/v1alpha1"
)

// AnnotationVersion is the annotation with the version of the plugin that applied an object. Setup sets it on CRDs, and
// on the Deployments of control and of the VirtualIngress controller.
const AnnotationVersion = v1alpha1.GroupName + "/setup-version"

// Older reports whether version a of the plugin is older than b. It is false if one of them is not a version.
func Older(a, b string) bool {
	one, err1 := version.ParseSemantic(a)
	other, err2 := version.ParseSemantic(b)
	return err1 == nil && err2 == nil && one.LessThan(other)
}

// stampVersion sets AnnotationVersion on the plan's shared CRDs and Deployments.
func (p *Plan) stampVersion(version string) {
	for _, o := range p.Objects {
		if kind := o.GetKind(); (kind == "CustomResourceDefinition" || kind == "Deployment") && p.shared(o) {
			_ = unstructured.SetNestedField(o.Object, version, "metadata", "annotations", AnnotationVersion) // rendered as a map
		}
	}
}

// checkVersion returns an error if a newer version of the plugin applied an object of the plan that setup changes, or set up the
// Infra, unless AllowDowngrade is set.
func (a *Applier) checkVersion(p *Plan) error {
	newest := a.Remember.Version
	versions := []string{a.history.last("").Version()}
	for _, o := range p.Objects {
		if live := a.live[entryWithoutUID(o)]; live != nil && a.merged[entryWithoutUID(o)] == nil {
			versions = append(versions, live.GetAnnotations()[AnnotationVersion])
		}
	}
	for _, v := range versions {
		if Older(newest, v) {
			newest = v
		}
	}
	if newest == a.Remember.Version || a.AllowDowngrade {
		return nil
	}
	return fmt.Errorf("kubectl-oooi %s deployed the Infra or objects that all Infras share, and this is %s; use %[1]s or later, or --allow-downgrade to downgrade CustomResourceDefinitions, control and workloads",
		newest, a.Remember.Version)
}
