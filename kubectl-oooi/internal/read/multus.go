package read

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/internal/model"
)

// MultusConfigs are the ConfigMaps from which Multus' DaemonSets take their configuration, and MultusKeys its key in each.
var (
	MultusConfigs = []types.NamespacedName{{Namespace: "kube-system", Name: "multus-daemon-config"}, {Namespace: "kube-system", Name: "multus-cni-config"}}
	MultusKeys    = []string{"daemon-config.json", "cni-conf.json"}
)

// Isolation returns Multus' isolation of namespaces from the first ConfigMap with its configuration; disabled without a ConfigMap.
func Isolation(configs []*corev1.ConfigMap) model.Isolation {
	for _, c := range configs {
		for _, key := range MultusKeys {
			if text, ok := c.Data[key]; ok && slices.Contains(MultusConfigs, client.ObjectKeyFromObject(c)) {
				return model.ParseIsolation(text)
			}
		}
	}
	return model.Isolation{}
}

// AttachmentRefs returns the references to NetworkAttachmentDefinitions in a NodePool with VMs in the given namespace, or in a
// VirtualMachineInstance.
func AttachmentRefs(u *unstructured.Unstructured, namespace string) []model.AttachmentRef {
	object := model.Ref{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
	networks, _, _ := unstructured.NestedSlice(u.Object, "spec", "networks")
	path := []string{"multus", "networkName"}
	if u.GetKind() == NodePoolKind.Kind {
		networks, _, _ = unstructured.NestedSlice(u.Object, "spec", "platform", "kubevirt", "additionalNetworks")
		path = []string{"name"}
	}
	var refs []model.AttachmentRef
	for _, n := range networks {
		n, _ := n.(map[string]any)
		if name, _, _ := unstructured.NestedString(n, path...); name != "" {
			refs = append(refs, model.NewAttachmentRef(object, namespace, name))
		}
	}
	return refs
}
