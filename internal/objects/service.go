package objects

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ServiceResource is the resource of Services.
var ServiceResource = schema.GroupVersionResource{Version: "v1", Resource: "services"}

// Service is the part of a core/v1 Service that has its addresses and ports.
type Service struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec   ServiceSpec   `json:"spec"`
	Status ServiceStatus `json:"status,omitzero"`
}

// keepsLabels returns true for load balancers, the only Services that are selected by labels.
func (s *Service) keepsLabels() bool { return s.Spec.Type == corev1.ServiceTypeLoadBalancer }

// labelledService is a Service of any type that keeps its labels.
type labelledService struct{ Service }

func (s *labelledService) keepsLabels() bool { return true }

// DecodeLabelledService decodes a Service of any type with its labels, for selection by labels, as Decode does.
func DecodeLabelledService(u *unstructured.Unstructured) Object {
	o := Decode[labelledService](u)
	if s, ok := o.(*labelledService); ok {
		return &s.Service
	}
	return o
}

// ServiceStatus is the part of core/v1 ServiceStatus that is in use.
type ServiceStatus struct {
	LoadBalancer LoadBalancerStatus `json:"loadBalancer,omitzero"`
}

// LoadBalancerStatus is core/v1's LoadBalancerStatus.
type LoadBalancerStatus struct {
	Ingress []LoadBalancerIngress `json:"ingress,omitempty"`
}

// LoadBalancerIngress is the part of core/v1's LoadBalancerIngress that is in use. The hostname is ignored,
// because a client that can write the status of a Service could make a name resolve to anything.
type LoadBalancerIngress struct {
	IP string `json:"ip,omitempty"`
}

// LoadBalancerIPs returns the addresses in the load balancer status, unparsed; nil without any.
func (s *Service) LoadBalancerIPs() []string {
	var list []string
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			list = append(list, ingress.IP)
		}
	}
	return list
}

// ServiceSpec is the part of core/v1 ServiceSpec that is in use.
type ServiceSpec struct {
	Type       corev1.ServiceType `json:"type,omitempty"`
	ClusterIP  string             `json:"clusterIP,omitempty"`
	ClusterIPs []string           `json:"clusterIPs,omitempty"`
	Ports      []ServicePort      `json:"ports,omitempty"`
}

// ServicePort is the part of core/v1 ServicePort that is in use.
type ServicePort struct {
	Name       string             `json:"name,omitempty"`
	Protocol   corev1.Protocol    `json:"protocol,omitempty"`
	Port       int32              `json:"port"`
	TargetPort intstr.IntOrString `json:"targetPort,omitzero"`
	NodePort   int32              `json:"nodePort,omitempty"`
}

// Addresses returns the Service's cluster IPs, unparsed, one for each family; none for a headless Service, or if
// none is assigned.
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
