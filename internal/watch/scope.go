package watch

import (
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/model"
)

// keysOf parses "namespace/name" entries.
func keysOf(list []string) []objectKey {
	keys := make([]objectKey, 0, len(list))
	for _, s := range list {
		namespace, name, _ := strings.Cut(s, "/")
		keys = append(keys, objectKey{namespace, name})
	}
	return keys
}

// controlPlaneNamespaces returns the namespaces of the control planes in the scope.
func controlPlaneNamespaces(s model.Scope) []objectKey {
	keys := make([]objectKey, 0, len(s.HostedClusters))
	for _, hc := range keysOf(s.HostedClusters) {
		keys = append(keys, objectKey{namespace: model.ControlPlaneNamespace(hc.namespace, hc.name)})
	}
	return keys
}

// backendNamespaces returns the namespaces of proxies' backends: the control-plane namespaces and the namespaces
// listed in the scope.
func backendNamespaces(s model.Scope) []objectKey {
	keys := controlPlaneNamespaces(s)
	for _, namespace := range s.Namespaces {
		keys = append(keys, objectKey{namespace: namespace})
	}
	return keys
}

// keysToWatch returns what to watch of a resource: everything, unless the scope is closed or the resource is listed.
func (r resource) keysToWatch(s model.Scope) []objectKey {
	keys := r.scoped(s)
	if !s.Closed() && (!r.listed || len(keys) == 0) {
		return []objectKey{{}}
	}
	slices.SortFunc(keys, func(a, b objectKey) int {
		return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name)
	})
	return slices.Compact(keys)
}
