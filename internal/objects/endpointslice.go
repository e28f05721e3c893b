package objects

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// EndpointSliceResource is the resource of EndpointSlices.
var EndpointSliceResource = schema.GroupVersionResource{
	Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices",
}

// EndpointSlice is the part of a discovery.k8s.io/v1 EndpointSlice that has the endpoints of a Service.
type EndpointSlice struct {
	metav1.ObjectMeta `json:"metadata"`

	AddressType discoveryv1.AddressType `json:"addressType,omitempty"`
	Endpoints   []Endpoint              `json:"endpoints,omitempty"`
	Ports       []EndpointPort          `json:"ports,omitempty"`
}

// keepsLabels returns true: a label names the Service.
func (s *EndpointSlice) keepsLabels() bool { return true }

// Service returns the Service of the endpoints, "namespace/name", or "" if the slice lacks a Service label.
func (s *EndpointSlice) Service() string {
	name := s.Labels[discoveryv1.LabelServiceName]
	if name == "" {
		return ""
	}
	return s.Namespace + "/" + name
}

// Endpoint is the part of a discovery/v1 Endpoint that is in use.
type Endpoint struct {
	Addresses  []string           `json:"addresses"`
	Conditions EndpointConditions `json:"conditions,omitzero"`
}

// EndpointConditions is discovery/v1's EndpointConditions.
type EndpointConditions struct {
	Ready       *bool `json:"ready,omitempty"`
	Serving     *bool `json:"serving,omitempty"`
	Terminating *bool `json:"terminating,omitempty"`
}

// IsReady reports whether the endpoint accepts new connections. A nil condition counts as ready
// (discovery/v1, EndpointConditions.Ready).
func (c EndpointConditions) IsReady() bool { return c.Ready == nil || *c.Ready }

// IsServing reports whether the endpoint accepts connections, even if it is terminating. If the condition is
// nil, IsReady decides (discovery/v1, EndpointConditions.Serving).
func (c EndpointConditions) IsServing() bool {
	if c.Serving == nil {
		return c.IsReady()
	}
	return *c.Serving
}

// EndpointPort is the part of a discovery/v1 EndpointPort that is in use.
type EndpointPort struct {
	Name     string          `json:"name,omitempty"`
	Protocol corev1.Protocol `json:"protocol,omitempty"`
	Port     *int32          `json:"port,omitempty"`
}
