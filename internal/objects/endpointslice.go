package objects

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// EndpointSliceResource is where an API server serves EndpointSlices.
var EndpointSliceResource = schema.GroupVersionResource{
	Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices",
}

// EndpointSlice is the part of discovery.k8s.io/v1 EndpointSlice that says where a
// Service's endpoints are.
type EndpointSlice struct {
	metav1.ObjectMeta `json:"metadata"`

	AddressType discoveryv1.AddressType `json:"addressType,omitempty"`
	Endpoints   []Endpoint              `json:"endpoints,omitempty"`
	Ports       []EndpointPort          `json:"ports,omitempty"`
}

// keepsLabels: one of them names the Service.
func (s *EndpointSlice) keepsLabels() bool { return true }

// Service returns the Service that the endpoints are of, as "namespace/name"; empty
// where the slice does not say.
func (s *EndpointSlice) Service() string {
	name := s.Labels[discoveryv1.LabelServiceName]
	if name == "" {
		return ""
	}
	return s.Namespace + "/" + name
}

// Endpoint is the part of discovery/v1's that we read.
type Endpoint struct {
	Addresses  []string           `json:"addresses"`
	Conditions EndpointConditions `json:"conditions,omitzero"`
}

// EndpointConditions is discovery/v1's.
type EndpointConditions struct {
	Ready       *bool `json:"ready,omitempty"`
	Serving     *bool `json:"serving,omitempty"`
	Terminating *bool `json:"terminating,omitempty"`
}

// IsReady reports whether new connections are welcome; an endpoint that does not say is
// (discovery/v1, EndpointConditions.Ready).
func (c EndpointConditions) IsReady() bool { return c.Ready == nil || *c.Ready }

// IsServing reports whether an endpoint that may be on its way out still takes
// connections (discovery/v1, EndpointConditions.Serving).
func (c EndpointConditions) IsServing() bool {
	if c.Serving == nil {
		return c.IsReady()
	}
	return *c.Serving
}

// EndpointPort is the part of discovery/v1's that we read.
type EndpointPort struct {
	Name     string          `json:"name,omitempty"`
	Protocol corev1.Protocol `json:"protocol,omitempty"`
	Port     *int32          `json:"port,omitempty"`
}
