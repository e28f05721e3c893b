package objects

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AppsService is what is known of the applications' Service inside a hosted
// cluster. Its name and namespace are the HostedCluster's.
type AppsService struct {
	metav1.ObjectMeta `json:"metadata"`

	// Service is the Service as it was last seen; nil when there is none.
	Service *Service `json:"service,omitempty"`
	// Read: the Service was read, or found missing, at some time.
	Read bool `json:"read,omitempty"`
	// Fault is why it cannot be followed at the moment; empty while it is.
	Fault Fault `json:"fault,omitzero"`
}

// Fault says why a hosted cluster is not followed.
type Fault struct {
	// Reason is one of AppsIngressReason of our API.
	Reason string `json:"reason,omitempty"`
	// Message says what happened and what to do.
	Message string `json:"message,omitempty"`
}
