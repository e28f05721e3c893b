package render

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// Input is the input of Objects.
type Input struct {
	// Infra is the Infra with defaults set, and Written the Infra as written. For a standalone ProxyServer, Written is nil and Infra is
	// derived from the ProxyServer.
	Infra   *v1alpha1.Infra
	Written *unstructured.Unstructured
	// ProxyServer is the Infra's ProxyServer as written; nil to render the default ProxyServer.
	ProxyServer *unstructured.Unstructured
	// ProxySpec is the spec of ProxyServer with defaults set; the zero value if ProxyServer is nil. Fields of the Infra
	// take precedence.
	ProxySpec v1alpha1.ProxyServerSpec
	// HostedCluster is the HostedCluster that the Infra serves; empty if it is unknown.
	HostedCluster types.NamespacedName
	// ControlPlane is the namespace of the control plane; empty if it does not exist or is unknown. If it is empty, permissions are
	// granted in all namespaces.
	ControlPlane string
	// BackendControlPlanes are additional namespaces of control planes in which the ProxyServer has backends, sorted.
	BackendControlPlanes []string
	// MachineNamespace is the namespace of the VMs; empty if they are in the control plane's namespace.
	MachineNamespace string
	// Sets are the present StatefulSets, whose names replicas keep.
	Sets Sets
	// Snapshot is the model of names and ports.
	Snapshot *model.Snapshot
	// Attachment is the CNI configuration in the VMs' NetworkAttachmentDefinition.
	Attachment string
	// OwnAttachment is true if setup creates or created the VMs' NetworkAttachmentDefinition.
	OwnAttachment bool
	// OpenShift is true if SecurityContextConstraints assign the user of pods.
	OpenShift bool
	// Management are the domains of the management cluster, sorted.
	Management []string
	// Images are the default images.
	Images Images
}

// Images are the images of workloads, unless the Infra specifies others, and how pods pull them.
type Images struct {
	// Oooi is the image with coredns, coredhcp and xdsd.
	Oooi string
	// Envoy is an image with Envoy 1.31 or later.
	Envoy string
	// PullSecret is the Secret with registry credentials, in each namespace with pods; empty for none.
	PullSecret string
}

// cluster returns the hosted cluster of the Infra in the model; nil if the model has none.
func (in *Input) cluster() *model.Cluster {
	if i := in.Snapshot.Infra(in.key()); i != nil {
		return i.Cluster
	}
	return nil
}

// standalone reports whether the input is a ProxyServer without an Infra.
func (in *Input) standalone() bool { return in.Written == nil }

// name returns the name of an object of a component, for example "demo-dns".
func (in *Input) name(part string) string { return in.Infra.Name + "-" + part }

// key returns the key of the Infra in the model, "namespace/name".
func (in *Input) key() string { return in.Infra.Namespace + "/" + in.Infra.Name }
