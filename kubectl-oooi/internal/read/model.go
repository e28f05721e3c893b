package read

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// HostedClusters adds the HostedClusters of all namespaces to all. If listing them is forbidden, it calls Warn and adds
// only those in the namespaces that all.Infras refer to. If HyperShift is not installed, it calls Warn and adds none.
func (r *Reader) HostedClusters(ctx context.Context, all *model.Objects) error {
	err := r.inAllNamespaces(ctx, HostedClusterKind, hostedNamespaces(all), func(u *unstructured.Unstructured) {
		all.Add(objects.Decode[objects.HostedCluster](u))
	})
	if errors.Is(err, ErrNotServed) {
		r.Warn("the cluster does not serve HostedClusters: HyperShift is not installed")
		return nil
	}
	return err
}

// hostedNamespaces returns the namespaces of the HostedClusters that Infras may name.
func hostedNamespaces(all *model.Objects) []string {
	var list []string
	for _, i := range all.Infras {
		for _, candidate := range i.Spec.NamedHostedCluster().Candidates(i.Namespace) {
			list = append(list, candidate.Namespace)
		}
	}
	return list
}
