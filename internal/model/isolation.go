package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/internal/cni"
)

// Isolation is Multus' isolation of namespaces: which NetworkAttachmentDefinitions pods may use. It has the fields of
// Multus' configuration.
type Isolation struct {
	Enabled bool `json:"namespaceIsolation"`
	// Global are the namespaces, separated by commas, whose NetworkAttachmentDefinitions all pods may use. If
	// it is empty, namespace default's labels are used.
	Global string `json:"globalNamespaces"`
}

// OpenShiftIsolation is the isolation on OpenShift, which lacks a setting for it.
var OpenShiftIsolation = Isolation{Enabled: true, Global: "default,openshift-multus,openshift-sriov-network-operator,openshift-cnv"}

// ParseIsolation returns the isolation in a configuration of Multus (JSON). It is disabled in an invalid configuration.
func ParseIsolation(config string) Isolation {
	var i Isolation
	if json.Unmarshal([]byte(config), &i) != nil {
		return Isolation{}
	}
	return i
}

// String returns the isolation as a configuration of Multus.
func (i Isolation) String() string {
	return fmt.Sprintf(`{"namespaceIsolation": %t, "globalNamespaces": %q}`, i.Enabled, i.Global)
}

// An AttachmentRef is a reference of pods to a NetworkAttachmentDefinition.
type AttachmentRef struct {
	// Object is the object with the reference, such as a NodePool, and Namespace is the namespace of the pods.
	Object    Ref
	Namespace string
	// Attachment is "namespace/name" of the NetworkAttachmentDefinition.
	Attachment string
}

// NewAttachmentRef returns a reference to the network "namespace/name", or "name" in the namespace of the pods.
func NewAttachmentRef(object Ref, namespace, network string) AttachmentRef {
	return AttachmentRef{Object: object, Namespace: namespace, Attachment: cni.Reference(namespace, network)}
}

// Key returns the namespace and the name of the NetworkAttachmentDefinition.
func (r AttachmentRef) Key() types.NamespacedName {
	namespace, name, _ := strings.Cut(r.Attachment, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// Rejected returns the references for which Multus rejects the pods: those to a NetworkAttachmentDefinition of a namespace that
// is neither the pods' nor global.
func (i Isolation) Rejected(refs []AttachmentRef) []AttachmentRef {
	global := strings.FieldsFunc(cmp.Or(i.Global, "default"), func(r rune) bool { return r == ',' || r == ' ' })
	return slices.DeleteFunc(slices.Clone(refs), func(r AttachmentRef) bool {
		namespace := r.Key().Namespace
		return !i.Enabled || namespace == r.Namespace || slices.Contains(global, namespace)
	})
}

// Rejection returns why Multus rejects the pods of a reference.
func (r AttachmentRef) Rejection() string {
	return fmt.Sprintf("Multus isolates namespaces, and rejects the VMs' pods in namespace %s, which refer to NetworkAttachmentDefinition %s",
		r.Namespace, r.Attachment)
}

// Remedy returns how Multus allows the pods of a reference that it rejects to use the network.
func (r AttachmentRef) Remedy() string {
	return fmt.Sprintf("use a ClusterUserDefinedNetwork that selects namespaces %s and %s, a NetworkAttachmentDefinition in namespace default, or an "+
		"Infra in namespace %[2]s", r.Key().Namespace, r.Namespace)
}
