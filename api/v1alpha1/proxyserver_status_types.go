package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions of a ProxyServer, in addition to Ready.
const (
	// ConditionConfigurationValid reports whether the spec has no problems and every replica's Envoy accepted the
	// configuration. It is unknown while an Envoy has not acknowledged it.
	ConditionConfigurationValid = "ConfigurationValid"

	// ConditionWithinLimits is false while a replica reports limits that clients have reached.
	ConditionWithinLimits = "WithinLimits"
)

// Reasons of a ProxyServer's conditions. If the spec has problems, ConfigurationValid has the first problem's reason,
// such as ServiceNotFound, instead.
const (
	// ReasonDeploymentReady is the reason of Ready if Ready is true. The earlier operator used the same name, and
	// scripts may wait for it.
	ReasonDeploymentReady = "DeploymentReady"
	// ReasonNoReplica: no pod runs the proxy. In ConfigurationValid: all replicas' reports are missing.
	ReasonNoReplica = "NoReplica"
	// ReasonReplicaNotReady: a pod is not ready.
	ReasonReplicaNotReady = "ReplicaNotReady"
	// ReasonReplicaSilent: a ready pod has not reported its status, or stopped reporting it.
	ReasonReplicaSilent = "ReplicaSilent"
	// ReasonReplicaBehind: a replica, or xdsd control itself, has not observed the current spec.
	ReasonReplicaBehind = "ReplicaBehind"
	// ReasonNotAcknowledged: an Envoy has not acknowledged its latest configuration, or has none yet.
	ReasonNotAcknowledged = "NotAcknowledged"
	// ReasonListenerNotReady: a probe through a listener fails, or the proxy lacks listeners.
	ReasonListenerNotReady = "ListenerNotReady"

	// ReasonConfigApplied is the reason of ConfigurationValid if it is true.
	ReasonConfigApplied = "ConfigApplied"
	// ReasonConfigRejected: an Envoy rejected a part of the configuration. It is used in both conditions.
	ReasonConfigRejected = "ConfigRejected"

	// ReasonNoLimitReached is the reason of WithinLimits if it is true. Otherwise the reason is the name of a limit.
	ReasonNoLimitReached = "NoLimitReached"
	// ReasonLimitsNotApplied: source limits do not apply.
	ReasonLimitsNotApplied = "LimitsNotApplied"
)

// LimitName is the name of a limit of a proxy.
type LimitName string

const (
	// LimitConnections is the limit of the open connections to all ports but 6443 and 8091.
	LimitConnections LimitName = "Connections"
	// LimitPortConnections is the limit of the open connections to one port.
	LimitPortConnections LimitName = "PortConnections"
	// LimitConnectionRate is the limit of the new connections per second to one port.
	LimitConnectionRate LimitName = "ConnectionRate"
	// LimitBackendConnections is the limit of the open connections to one backend.
	LimitBackendConnections LimitName = "BackendConnections"
	// LimitBackendPendingConnections is the limit of the connections that are being opened to one backend.
	LimitBackendPendingConnections LimitName = "BackendPendingConnections"
	// LimitHeap is the limit of Envoy's heap, in bytes.
	LimitHeap LimitName = "Heap"
	// LimitSourceConnections is the limit of the open connections of one client on the VLAN.
	LimitSourceConnections LimitName = "SourceConnections"
	// LimitSourceConnectionRate is the limit of the new connections per second of one client on the VLAN.
	LimitSourceConnectionRate LimitName = "SourceConnectionRate"
)

// LimitStatus is a limit of a proxy that clients have reached.
type LimitStatus struct {
	// Name of the limit: Connections, PortConnections, ConnectionRate, BackendConnections, BackendPendingConnections, Heap,
	// SourceConnections or SourceConnectionRate.
	// +required
	Name LimitName `json:"name"`

	// Port that the limit applies to. Unset if the limit is not specific to a port.
	// +optional
	Port int32 `json:"port,omitempty"`

	// Backend that the limit applies to. Unset if the limit is not specific to a backend.
	// +optional
	Backend string `json:"backend,omitempty"`

	// Sources are the addresses of clients that reached a limit of sources, at most 8.
	// +optional
	// +listType=atomic
	Sources []string `json:"sources,omitempty"`

	// Value of the limit: connections, connections per second, or bytes. Unset if it is unknown.
	// +optional
	Value int64 `json:"value,omitempty"`

	// Refused is the number of connections that were refused at the limit since Envoy started, or, at source limits,
	// since the pod started. At the limit of the heap it is 0: connections wait.
	// +optional
	Refused int64 `json:"refused"`

	// LastTime is when the limit was last found to be reached.
	// +optional
	LastTime metav1.Time `json:"lastTime,omitzero"`

	// Field is the field of the proxy that raises the limit, such as limits.maxConnections.
	// +optional
	Field string `json:"field,omitempty"`
}

// ProxyServerStatus is the observed state of a ProxyServer. Each replica applies its own entry of replicas;
// the controller applies the other fields.
type ProxyServerStatus struct {
	// ObservedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready, ConfigurationValid and WithinLimits, and without an Infra also VLANReady and BackendsReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ConfigMapName is not set. In the earlier operator, it was the ConfigMap with Envoy's bootstrap configuration.
	// +optional
	ConfigMapName string `json:"configMapName,omitempty"`

	// DeploymentName is the name of the workload that runs the proxy.
	// +optional
	DeploymentName string `json:"deploymentName,omitempty"`

	// ServiceName is the Service in front of the proxy for pods of the management cluster.
	// +optional
	ServiceName string `json:"serviceName,omitempty"`

	// ServiceIP is the cluster address of that Service.
	// +optional
	ServiceIP string `json:"serviceIP,omitempty"`

	// BackendCount is the number of backends whose Service or address exists.
	// +optional
	BackendCount int32 `json:"backendCount,omitempty"`

	// Backends is the state of each backend, summarized over all replicas: the highest number of endpoints that a
	// replica reports, and the lowest number of healthy ones.
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

// BackendStatus is the state of one backend, as seen by one replica or summarized over all replicas.
type BackendStatus struct {
	// Name of the backend.
	// +required
	Name string `json:"name"`

	// Endpoints is the number of addresses that Envoy can connect to: the ready endpoints of the backend's Service, or
	// the apps addresses.
	// +optional
	Endpoints int32 `json:"endpoints"`

	// Healthy is the number of these endpoints that Envoy considers healthy, by its health checks and by the outcome
	// of earlier connections.
	// +optional
	Healthy int32 `json:"healthy"`

	// FailedConnections is the number of attempts to connect to endpoints that failed within the last five minutes, only in
	// the entries of replicas. A number other than 0 is updated once a minute.
	// +optional
	FailedConnections int32 `json:"failedConnections,omitempty"`

	// FailedHealthChecks is the number of health checks of endpoints that failed within the last five minutes, reported like
	// failedConnections.
	// +optional
	FailedHealthChecks int32 `json:"failedHealthChecks,omitempty"`

	// Reason is why no endpoint is known to be healthy, for example because the Service does not exist. Absent if one
	// is.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ReplicaStatus is the state of one replica of a proxy.
type ReplicaStatus struct {
	// Pod is the replica's pod.
	// +required
	Pod string `json:"pod"`

	// HeartbeatTime is when the replica last reported its state, by its own clock. It does so at least once a minute.
	// +optional
	HeartbeatTime metav1.Time `json:"heartbeatTime,omitzero"`

	// ObservedGeneration is the metadata.generation of the ProxyServer that the replica has observed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Version is the version of the latest configuration for the replica's Envoy. Unset until it has one.
	// +optional
	Version string `json:"version,omitempty"`

	// Acknowledged is the version of the configuration that the replica's Envoy accepted last. Unset until it
	// accepts one after it has connected.
	// +optional
	Acknowledged string `json:"acknowledged,omitempty"`

	// NACK is the error with which the replica's Envoy rejected a part of its latest configuration. Unset if it
	// accepted all.
	// +optional
	NACK string `json:"nack,omitempty"`

	// Omitted are the parts of the configuration that are left out because the replica's Envoy would reject them, with the
	// reason, at most 32. All others are served.
	// +optional
	// +listType=atomic
	Omitted []string `json:"omitted,omitempty"`

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

	// Limits are the limits that clients have reached within the last ten minutes. Numbers and times are updated once a
	// minute.
	// +optional
	// +listType=atomic
	Limits []LimitStatus `json:"limits,omitempty"`

	// LimitFailure is why the source limits do not apply, such as a module that the kernel lacks. Unset if they
	// apply, or if no limit is set.
	// +optional
	LimitFailure string `json:"limitFailure,omitempty"`
}

// ListenerStatus is the state of one listener of a replica.
type ListenerStatus struct {
	// Port of the listener.
	// +required
	Port int32 `json:"port"`

	// Ready is true if the last probe succeeded: a TLS handshake or an HTTP request to a backend through the listener,
	// or, for a listener with only apps routes or without TLS, a connection to it.
	// +optional
	Ready bool `json:"ready"`

	// Reason is why the last probe failed. Absent if ready is true.
	// +optional
	Reason string `json:"reason,omitempty"`
}
