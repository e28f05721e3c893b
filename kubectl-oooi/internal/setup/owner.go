package setup

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// setOwner sets the Infra as the owner of an object, so that deleting the Infra deletes its workloads. It sets no
// owner for objects in other namespaces, for Roles, which control needs to clean up, and for the VMs' network, which
// others may use.
func (p *Plan) setOwner(o *unstructured.Unstructured) {
	at := slices.IndexFunc(p.Objects, func(other *unstructured.Unstructured) bool { return p.isOwner(other) && other.GetUID() != "" })
	if at < 0 || p.Objects[at] == o || p.shared(o) || o.GetNamespace() != p.Infra.Namespace || !slices.Contains(ownedKinds, o.GetKind()) ||
		o.GetLabels()[v1alpha1.LabelComponent] == render.NetworkComponent {
		return
	}
	owner := p.Objects[at]
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}})
}

// recordOwnerUID sets the UID of the owner, if o is the owner and exists, for setOwner.
func (p *Plan) recordOwnerUID(o, live *unstructured.Unstructured) {
	if live != nil && p.isOwner(o) {
		o.SetUID(live.GetUID())
	}
}

// kind returns the kind of the plan's owner.
func (p *Plan) kind() string {
	if p.Standalone {
		return "ProxyServer"
	}
	return "Infra"
}

// isOwner reports whether an object is the owner of the plan's objects: the Infra or the standalone ProxyServer.
func (p *Plan) isOwner(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Infra" || p.Standalone && o.GetKind() == "ProxyServer"
}

// ownedKinds are the kinds of objects that an Infra owns.
var ownedKinds = []string{"ProxyServer", "NetworkAttachmentDefinition", "Lease", "ConfigMap", "Service", "NetworkPolicy", "PodDisruptionBudget", "StatefulSet"}
