package setup

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clusterDomains are the fields of config.openshift.io objects with the domains of an OpenShift cluster.
var clusterDomains = []struct {
	kind   string
	fields []string
}{{"DNS", []string{"baseDomain"}}, {"Ingress", []string{"domain", "appsDomain"}}}

// management reads the domains of the management cluster. It finds none without the right to read them, or if the
// cluster is not OpenShift.
func (d *discovery) management() error {
	for _, from := range clusterDomains {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: from.kind})
		err := d.client.Get(d.ctx, client.ObjectKey{Name: "cluster"}, u)
		switch {
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
			continue
		case err != nil:
			return fmt.Errorf("reading %s.config.openshift.io cluster: %w", from.kind, err)
		}
		for _, field := range from.fields {
			domain, _, err := unstructured.NestedString(u.Object, "spec", field)
			if err != nil {
				return fmt.Errorf("reading spec.%s of %s.config.openshift.io cluster: %w", field, from.kind, err)
			}
			if domain != "" && !slices.Contains(d.known.Management, domain) {
				d.known.Management = append(d.known.Management, domain)
			}
		}
	}
	slices.Sort(d.known.Management)
	return nil
}
