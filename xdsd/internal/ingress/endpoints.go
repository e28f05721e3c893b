package ingress

import (
	"context"
	"fmt"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// requireEndpoints withholds Services without a ready endpoint, unless all their paths have another backend with one that gets
// requests: their sources keep the previous Service. A Service that the spec names is not examined, and counts as ready.
func (r *resolution) requireEndpoints(ctx context.Context, c client.Reader, v *v1alpha1.VirtualIngress) error {
	ready := map[string]bool{} // by the key of the source
	for _, b := range r.backends {
		if b.service == nil {
			continue
		}
		list, err := endpointSlices(ctx, c, b.source.namespace, b.service.Name)
		if err != nil {
			return err
		}
		ready[b.source.key()] = hasReadyEndpoint(list)
	}
	for _, shares := range sharesOf(v) {
		if slices.ContainsFunc(shares, func(s share) bool {
			of, selected := sourceOf(v, s.service)
			return s.weight > 0 && (!selected || ready[of.key()])
		}) {
			continue
		}
		for _, s := range shares {
			if of, selected := sourceOf(v, s.service); selected && !ready[of.key()] {
				r.withhold(v, of)
			}
		}
	}
	return nil
}

// withhold makes a source keep its previous Service instead of one without ready endpoints.
func (r *resolution) withhold(v *v1alpha1.VirtualIngress, s source) {
	for _, b := range r.backends {
		if b.source.key() == s.key() && b.service != nil {
			b.reason, b.message = v1alpha1.ReasonNoReadyEndpoints, fmt.Sprintf("Service %s lacks a ready endpoint", b.service.Name)
			b.service, b.inUse = nil, lastService(v, s)
		}
	}
}

// hasReadyEndpoint reports whether an endpoint is ready.
func hasReadyEndpoint(list []discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(list, func(s discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready })
	})
}

// endpointSlices returns the EndpointSlices of a Service. They are not copied, and must not be modified.
func endpointSlices(ctx context.Context, c client.Reader, namespace, service string) ([]discoveryv1.EndpointSlice, error) {
	list := &discoveryv1.EndpointSliceList{}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{serviceIndex: service}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the EndpointSlices of Service %s/%s: %w", namespace, service, err)
	}
	return list.Items, nil
}
