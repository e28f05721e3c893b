package objects

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AppsService is the last known state of the apps Service in a hosted cluster. Its metadata has the
// namespace and name of the HostedCluster.
type AppsService struct {
	metav1.ObjectMeta `json:"metadata"`

	// Service is the Service as last read; nil if it does not exist.
	Service *Service `json:"service,omitempty"`
	// Read reports whether the Service has been read, or found to be missing, at least once.
	Read bool `json:"read,omitempty"`
	// Fault is why the Service cannot be watched now; zero if no fault is known.
	Fault Fault `json:"fault,omitzero"`
}

// Fault is why a Service in a hosted cluster cannot be watched.
type Fault struct {
	// Reason is a v1alpha1.AppsIngressReason; empty if there is no fault.
	Reason string `json:"reason,omitempty"`
	// Message explains the fault, with its remedy if one is known.
	Message string `json:"message,omitempty"`
}
