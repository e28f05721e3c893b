package setup

import (
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// clusterDomains are the fields of config.openshift.io objects with the domains of an OpenShift cluster, by kind.
var clusterDomains = map[schema.GroupVersionKind][]string{
	read.ClusterDNSKind:     {"baseDomain"},
	read.ClusterIngressKind: {"domain", "appsDomain"},
}

// AddManagement adds the domains in an object of config.openshift.io to those of the management cluster.
func (k *Known) AddManagement(u *unstructured.Unstructured) error {
	for _, field := range clusterDomains[u.GroupVersionKind()] {
		domain, _, err := unstructured.NestedString(u.Object, "spec", field)
		if err != nil {
			return fmt.Errorf("reading spec.%s of %s.config.openshift.io cluster: %w", field, u.GetKind(), err)
		}
		if at, found := slices.BinarySearch(k.Management, domain); domain != "" && !found {
			k.Management = slices.Insert(k.Management, at, domain)
		}
	}
	return nil
}

// management reads the domains of the management cluster. It finds none without the right to read them, or if the
// cluster is not OpenShift.
func (d *discovery) management() error {
	for kind := range clusterDomains {
		u, err := d.Object(d.ctx, kind, client.ObjectKey{Name: "cluster"})
		if errors.Is(err, read.ErrNotServed) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			continue
		}
		if err == nil {
			err = d.known.AddManagement(u)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
