package render

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// Input is what objects are made of.
type Input struct {
	// Infra has its defaults, Written has what its author wrote; nil where there is none, and
	// Infra but says for a ProxyServer that is alone what an Infra says for others.
	Infra   *v1alpha1.Infra
	Written *unstructured.Unstructured
	// ProxyServer is that of the Infra, as its author wrote it; nil for the one that has
	// nothing but the reference.
	ProxyServer *unstructured.Unstructured
	// ProxySpec is that of ProxyServer. What the Infra says as well wins.
	ProxySpec v1alpha1.ProxyServerSpec
	// HostedCluster is the Infra's; empty where it is not known.
	HostedCluster types.NamespacedName
	// ControlPlane is the namespace of the control plane; empty while there is none, or it is
	// not known. Then rights are for all namespaces.
	ControlPlane string
	// MachineNamespace is where the virtual machines run, if not beside the control plane.
	MachineNamespace string
	// Snapshot is what is known of names and ports.
	Snapshot *model.Snapshot
	// Attachment is the CNI configuration in the virtual machines'
	// NetworkAttachmentDefinition.
	Attachment string
	// OwnAttachment: that one is ours to make.
	OwnAttachment bool
	// OpenShift: a SecurityContextConstraint gives pods their user.
	OpenShift bool
	// Management are the domains of the management cluster, sorted.
	Management []string
	Images     Images
}

// Images are those that workloads run from, unless the Infra names another.
type Images struct {
	// Oooi has coredns, coredhcp and xdsd.
	Oooi string
	// Envoy is Envoy's, 1.31 or later.
	Envoy string
}

// cluster is the hosted cluster as the model knows it; nil where it does not.
func (in *Input) cluster() *model.Cluster {
	if i := in.Snapshot.Infra(in.key()); i != nil {
		return i.Cluster
	}
	return nil
}

// alone reports whether a ProxyServer is all there is.
func (in *Input) alone() bool { return in.Written == nil }

// name is that of one of the Infra's parts.
func (in *Input) name(part string) string { return in.Infra.Name + "-" + part }

// key is the Infra's.
func (in *Input) key() string { return in.Infra.Namespace + "/" + in.Infra.Name }

// prefixOf is an address with the length of the network that it is in; with that of the whole
// address where it is in none.
func prefixOf(address netip.Addr, networks []netip.Prefix) netip.Prefix {
	for _, n := range networks {
		if n.Contains(address) {
			return netip.PrefixFrom(address, n.Bits())
		}
	}
	return netip.PrefixFrom(address, address.BitLen())
}
