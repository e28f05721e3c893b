package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions of a ProxyServer, in addition to Ready.
const (
	// ConditionConfigurationValid reports whether every replica's Envoy accepted the configuration.
	ConditionConfigurationValid = "ConfigurationValid"
)

// Reasons of a ProxyServer's conditions, in order of precedence. If the spec is invalid, the reason of
// ConfigurationValid is a model.Reason.
const (
	// ReasonDeploymentReady is the reason of Ready if it is true. Its name is kept for scripts that wait for
	// it.
	ReasonDeploymentReady = "DeploymentReady"
	// ReasonNoReplica: no pod runs the proxy.
	ReasonNoReplica = "NoReplica"
	// ReasonReplicaNotReady: a pod is not ready.
	ReasonReplicaNotReady = "ReplicaNotReady"
	// ReasonReplicaSilent: a ready pod has not reported its status, or stopped reporting it.
	ReasonReplicaSilent = "ReplicaSilent"
	// ReasonReplicaBehind: a replica has not observed the current spec.
	ReasonReplicaBehind = "ReplicaBehind"
	// ReasonNotAcknowledged: an Envoy has not acknowledged the configuration that it was sent.
	ReasonNotAcknowledged = "NotAcknowledged"
	// ReasonListenerNotReady: a handshake through a listener fails.
	ReasonListenerNotReady = "ListenerNotReady"

	// ReasonConfigApplied is the reason of ConfigurationValid if it is true.
	ReasonConfigApplied = "ConfigApplied"
	// ReasonConfigRejected: an Envoy rejected a part of the configuration. It is used in both conditions.
	ReasonConfigRejected = "ConfigRejected"
)

// ProxyServerStatus is the observed state of a ProxyServer. Each replica applies its own entry of replicas;
// the controller applies the other fields.
type ProxyServerStatus struct {
	// ObservedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready and ConfigurationValid.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ConfigMapName is the ConfigMap with Envoy's bootstrap configuration.
	// +optional
	ConfigMapName string `json:"configMapName,omitempty"`

	// DeploymentName is the name of the workload that runs the proxy.
	// +optional
	DeploymentName string `json:"deploymentName,omitempty"`

	// ServiceName is the Service in front of the proxy for pods of the management
	// cluster.
	// +optional
	ServiceName string `json:"serviceName,omitempty"`

	// ServiceIP is the cluster address of that Service.
	// +optional
	ServiceIP string `json:"serviceIP,omitempty"`

	// BackendCount is the number of backends that are routed.
	// +optional
	BackendCount int32 `json:"backendCount,omitempty"`

	// Backends is the state of each backend, summarized over all replicas.
	// +optional
	// +listType=map
	// +listMapKey=name
	Backends []BackendStatus `json:"backends,omitempty"`

	// Replicas is the state of each replica, reported by the replica itself.
	// +optional
	// +listType=map
	// +listMapKey=pod
	Replicas []ReplicaStatus `json:"replicas,omitempty"`
}

// BackendStatus is the state of one backend.
type BackendStatus struct {
	// Name of the backend.
	// +required
	Name string `json:"name"`

	// Endpoints is the number of endpoints of its Service.
	// +optional
	Endpoints int32 `json:"endpoints"`

	// Healthy is the number of these endpoints that Envoy connects to.
	// +optional
	Healthy int32 `json:"healthy"`

	// Reason is why the backend is not routed, or has no endpoints.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ReplicaStatus is the state of one replica of a proxy.
type ReplicaStatus struct {
	// Pod is the replica's pod.
	// +required
	Pod string `json:"pod"`

	// HeartbeatTime is when the replica last reported, by its own clock. It reports at least once a minute.
	// +optional
	HeartbeatTime metav1.Time `json:"heartbeatTime,omitzero"`

	// ObservedGeneration is the metadata.generation of the ProxyServer that the replica has observed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Version is the version of the configuration that the replica's Envoy was sent.
	// +optional
	Version string `json:"version,omitempty"`

	// Acknowledged is the version that its Envoy accepted last.
	// +optional
	Acknowledged string `json:"acknowledged,omitempty"`

	// NACK is the error with which its Envoy rejected version. Empty: it did not reject it.
	// +optional
	NACK string `json:"nack,omitempty"`

	// Listeners is the state of each listener.
	// +optional
	// +listType=map
	// +listMapKey=port
	Listeners []ListenerStatus `json:"listeners,omitempty"`

	// Backends is the state of each backend as this replica sees it.
	// +optional
	// +listType=map
	// +listMapKey=name
	Backends []BackendStatus `json:"backends,omitempty"`
}

// ListenerStatus is the state of one port of a replica.
type ListenerStatus struct {
	// Port of the listener.
	// +required
	Port int32 `json:"port"`

	// Ready is true if a handshake through the listener succeeded.
	// +optional
	Ready bool `json:"ready"`

	// Reason is why the handshake failed.
	// +optional
	Reason string `json:"reason,omitempty"`
}
