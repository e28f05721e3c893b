package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions of a ProxyServer, beside Ready.
const (
	// ConditionConfigurationValid says whether every replica's Envoy accepted the
	// configuration.
	ConditionConfigurationValid = "ConfigurationValid"
)

// Reasons of a ProxyServer's conditions, in the order in which they are looked for. A
// reason of model's is that of ConfigurationValid where the object itself is at fault.
const (
	// ReasonDeploymentReady is the reason of Ready when it is true, kept for scripts that
	// wait for it.
	ReasonDeploymentReady = "DeploymentReady"
	// ReasonNoReplica: no pod runs the proxy.
	ReasonNoReplica = "NoReplica"
	// ReasonReplicaNotReady: a pod is there that is not ready.
	ReasonReplicaNotReady = "ReplicaNotReady"
	// ReasonReplicaSilent: a pod is ready and has not reported, or no longer does.
	ReasonReplicaSilent = "ReplicaSilent"
	// ReasonReplicaBehind: a replica has not seen the present spec.
	ReasonReplicaBehind = "ReplicaBehind"
	// ReasonNotAcknowledged: an Envoy has not acknowledged what it was sent.
	ReasonNotAcknowledged = "NotAcknowledged"
	// ReasonListenerNotReady: a handshake through a listener fails.
	ReasonListenerNotReady = "ListenerNotReady"

	// ReasonConfigApplied is the reason of ConfigurationValid when it is true.
	ReasonConfigApplied = "ConfigApplied"
	// ReasonConfigRejected: an Envoy refused something, in both conditions.
	ReasonConfigRejected = "ConfigRejected"
)

// ProxyServerStatus is what was observed of a ProxyServer. Each replica applies
// its own entry of replicas; the rest belongs to the controller.
type ProxyServerStatus struct {
	// ObservedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready and ConfigurationValid.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ConfigMapName is the ConfigMap that holds Envoy's bootstrap configuration.
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

	// Backends is the state of each backend, seen over all replicas.
	// +optional
	// +listType=map
	// +listMapKey=name
	Backends []BackendStatus `json:"backends,omitempty"`

	// Replicas is the state of each replica, as it reports itself.
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

	// Healthy is how many of them Envoy connects to.
	// +optional
	Healthy int32 `json:"healthy"`

	// Reason says why the backend is not routed, or has no endpoints.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ReplicaStatus is the state of one replica of a proxy.
type ReplicaStatus struct {
	// Pod is the replica's pod.
	// +required
	Pod string `json:"pod"`

	// HeartbeatTime is when the replica last reported, by its own clock. It reports at
	// least once a minute.
	// +optional
	HeartbeatTime metav1.Time `json:"heartbeatTime,omitzero"`

	// ObservedGeneration is the ProxyServer's metadata.generation that the replica has
	// seen.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Version is the version of the configuration that the replica was sent.
	// +optional
	Version string `json:"version,omitempty"`

	// Acknowledged is the version that its Envoy accepted last.
	// +optional
	Acknowledged string `json:"acknowledged,omitempty"`

	// NACK is what its Envoy said when it refused version. Empty: it did not.
	// +optional
	NACK string `json:"nack,omitempty"`

	// Listeners is the state of each of its listeners.
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
	// Port that the listener is on.
	// +required
	Port int32 `json:"port"`

	// Ready says that a handshake through the listener succeeded.
	// +optional
	Ready bool `json:"ready"`

	// Reason says why it did not.
	// +optional
	Reason string `json:"reason,omitempty"`
}
