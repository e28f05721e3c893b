package v1alpha1

import corev1 "k8s.io/api/core/v1"

// NodePlacement selects the nodes on which pods run.
type NodePlacement struct {
	// NodeSelector are the labels that a node must have. None by default.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule=`self.all(key, key.matches(r'^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$'))`,message="each key must be a label key, such as example.com/vlan100"
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// Tolerations are the taints of nodes that pods tolerate, as in the spec of a pod.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:XValidation:rule=`!has(self.operator) || self.operator in ['', 'Equal', 'Exists', 'Lt', 'Gt']`,message="must be Equal, Exists, Lt or Gt",fieldPath=".operator"
	// +kubebuilder:validation:items:XValidation:rule=`has(self.operator) && self.operator == 'Exists' || has(self.key) && size(self.key) > 0`,message="must be set, unless operator is Exists",fieldPath=".key",reason=FieldValueRequired
	// +kubebuilder:validation:items:XValidation:rule=`!has(self.operator) || self.operator != 'Exists' || !has(self.value) || size(self.value) == 0`,message="must be empty if operator is Exists",fieldPath=".value"
	// +kubebuilder:validation:items:XValidation:rule=`!has(self.effect) || self.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute']`,message="must be NoSchedule, PreferNoSchedule or NoExecute; empty for all",fieldPath=".effect"
	// +kubebuilder:validation:items:XValidation:rule=`!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'`,message="must be NoExecute if tolerationSeconds is set",fieldPath=".effect"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// Selector returns nodeSelector as the spec of a pod has it; nil if it is empty or p is nil.
func (p *NodePlacement) Selector() map[string]string {
	if p == nil || len(p.NodeSelector) == 0 {
		return nil
	}
	selector := make(map[string]string, len(p.NodeSelector))
	for key, value := range p.NodeSelector {
		selector[key] = string(value)
	}
	return selector
}
