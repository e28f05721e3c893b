package setup

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// setOwner makes the Infra the owner of an object that is applied after it in its namespace, so that deleting the
// Infra deletes its workloads. What is applied before it is rights, which control needs to clean up; the virtual
// machines' network has other users.
func (p *Plan) setOwner(o *unstructured.Unstructured) {
	at := slices.IndexFunc(p.Objects, func(other *unstructured.Unstructured) bool { return p.isOwner(other) && other.GetUID() != "" })
	if at < 0 || p.Objects[at] == o || p.shared(o) || o.GetNamespace() != p.Infra.Namespace || !slices.Contains(belongings, o.GetKind()) ||
		o.GetLabels()[v1alpha1.LabelComponent] == render.NetworkComponent {
		return
	}
	owner := p.Objects[at]
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}})
}

// knowOwner takes down the identity of an object that is there and owns what is applied after it.
func (p *Plan) knowOwner(o, live *unstructured.Unstructured) {
	if live != nil && p.isOwner(o) {
		o.SetUID(live.GetUID())
	}
}

func (p *Plan) isOwner(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Infra" || p.Alone && o.GetKind() == "ProxyServer"
}

// belongings are the kinds of objects that an Infra owns.
var belongings = []string{"ProxyServer", "NetworkAttachmentDefinition", "Lease", "ConfigMap", "Service", "NetworkPolicy", "PodDisruptionBudget", "StatefulSet"}
