package objects

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ServiceResource is where an API server serves Services.
var ServiceResource = schema.GroupVersionResource{Version: "v1", Resource: "services"}

// Service is the part of a core/v1 Service that says where it is reached.
type Service struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec ServiceSpec `json:"spec"`
}

// ServiceSpec is the part of ServiceSpec that we read.
type ServiceSpec struct {
	Type       corev1.ServiceType `json:"type,omitempty"`
	ClusterIP  string             `json:"clusterIP,omitempty"`
	ClusterIPs []string           `json:"clusterIPs,omitempty"`
}

// Addresses returns the Service's cluster IPs as written, one a family; none for
// a headless Service.
func (s *Service) Addresses() []string {
	addresses := s.Spec.ClusterIPs
	if len(addresses) == 0 && s.Spec.ClusterIP != "" {
		addresses = []string{s.Spec.ClusterIP}
	}
	if len(addresses) > 0 && addresses[0] == corev1.ClusterIPNone {
		return nil
	}
	return addresses
}
