package v1alpha1

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// NetworkAttachment returns the namespace and name of the VMs' NetworkAttachmentDefinition, for an Infra in
// namespace infraNamespace. A namespace in the name takes precedence over networkAttachmentNamespace.
func (n *NetworkConfig) NetworkAttachment(infraNamespace string) types.NamespacedName {
	return networkAttachment(n.NetworkAttachmentDefinition, n.NetworkAttachmentNamespace, infraNamespace)
}

// NetworkAttachment returns the namespace and name of the proxy's NetworkAttachmentDefinition, for a
// ProxyServer in namespace proxyNamespace. A namespace in the name takes precedence over
// networkAttachmentNamespace. The returned name is empty if none is set.
func (n *ProxyNetworkConfig) NetworkAttachment(proxyNamespace string) types.NamespacedName {
	return networkAttachment(n.NetworkAttachmentName, n.NetworkAttachmentNamespace, proxyNamespace)
}

func networkAttachment(name, namespace, ownNamespace string) types.NamespacedName {
	if before, after, found := strings.Cut(name, "/"); found {
		namespace, name = before, after
	}
	if namespace == "" {
		namespace = ownNamespace
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// NamedHostedCluster returns the Infra's reference to its hosted cluster: spec.hostedClusterRef, else
// appsIngress.hostedClusterRef. The result may be nil; its IsSet reports whether either is set.
func (s *InfraSpec) NamedHostedCluster() *HostedClusterReference {
	if !s.HostedClusterRef.IsSet() && s.AppsIngress != nil {
		return s.AppsIngress.HostedClusterRef
	}
	return s.HostedClusterRef
}

// IsSet reports whether r refers to a HostedCluster. r may be nil. The earlier operator wrote references with
// an empty name, which are not set.
func (r *HostedClusterReference) IsSet() bool {
	return r != nil && r.Name != ""
}

// Candidates returns the HostedClusters that r may refer to. r refers to the first that exists. Without a namespace
// in r they are in infraNamespace, the namespace of the Infra, and in DefaultHostedClusterNamespace. Candidates
// returns none if r is not set.
func (r *HostedClusterReference) Candidates(infraNamespace string) []types.NamespacedName {
	switch {
	case !r.IsSet():
		return nil
	case r.Namespace != "":
		return []types.NamespacedName{{Namespace: r.Namespace, Name: r.Name}}
	case infraNamespace == DefaultHostedClusterNamespace:
		return []types.NamespacedName{{Namespace: infraNamespace, Name: r.Name}}
	}
	return []types.NamespacedName{{Namespace: infraNamespace, Name: r.Name}, {Namespace: DefaultHostedClusterNamespace, Name: r.Name}}
}
