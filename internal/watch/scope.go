package watch

import (
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/model"
)

// keysOf reads "namespace/name" entries.
func keysOf(list []string) []objectKey {
	keys := make([]objectKey, 0, len(list))
	for _, s := range list {
		namespace, name, _ := strings.Cut(s, "/")
		keys = append(keys, objectKey{namespace, name})
	}
	return keys
}

// controlPlaneNamespaces are where HyperShift runs the listed hosted clusters.
func controlPlaneNamespaces(s model.Scope) []objectKey {
	keys := make([]objectKey, 0, len(s.HostedClusters))
	for _, hc := range keysOf(s.HostedClusters) {
		keys = append(keys, objectKey{namespace: model.ControlPlaneNamespace(hc.namespace, hc.name)})
	}
	return keys
}

// backendNamespaces are where proxies connect to: the control planes, and what the scope
// lists beside them.
func backendNamespaces(s model.Scope) []objectKey {
	keys := controlPlaneNamespaces(s)
	for _, namespace := range s.Namespaces {
		keys = append(keys, objectKey{namespace: namespace})
	}
	return keys
}

// watched says where to watch a resource. ProxyServers are nobody's but those that are listed,
// and no right is needed to read others.
func (r resource) watched(s model.Scope) []objectKey {
	if listed := r.kind == "ProxyServer" && len(s.ProxyServers) > 0; !s.Closed() && !listed {
		return []objectKey{{}}
	}
	keys := r.scoped(s)
	slices.SortFunc(keys, func(a, b objectKey) int {
		return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name)
	})
	return slices.Compact(keys)
}
