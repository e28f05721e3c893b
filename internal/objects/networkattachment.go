package objects

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/cni"
)

// NetworkAttachment is a NetworkAttachmentDefinition, reduced to the identity of its network.
type NetworkAttachment struct {
	metav1.ObjectMeta `json:"metadata"`

	// Network is the result of cni.Identity; empty if the configuration does not identify the network.
	Network string `json:"network,omitempty"`
}

// DecodeNetworkAttachment decodes a NetworkAttachmentDefinition. It never returns *Broken: a NetworkAttachmentDefinition
// that cannot be read does not identify its network.
func DecodeNetworkAttachment(u *unstructured.Unstructured) Object {
	config, _, err := unstructured.NestedString(u.Object, "spec", "config")
	if err != nil {
		config = ""
	}
	return &NetworkAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), CreationTimestamp: u.GetCreationTimestamp()},
		Network:    cni.Identity(config),
	}
}
