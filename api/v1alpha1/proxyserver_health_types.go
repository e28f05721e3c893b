package v1alpha1

// Defaults of a backend's health check.
const (
	DefaultHealthCheckInterval Duration = "10s"
	DefaultHealthCheckTimeout  Duration = "3s"
	DefaultUnhealthyAfter      int32    = 3
	DefaultHealthyAfter        int32    = 2
)

// HealthCheck configures TCP probes of a Service's endpoints.
type HealthCheck struct {
	// Interval is the time between two probes of an endpoint.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than zero"
	Interval Duration `json:"interval,omitempty"`

	// Timeout is the timeout of a probe.
	// +optional
	// +kubebuilder:default="3s"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than zero"
	Timeout Duration `json:"timeout,omitempty"`

	// UnhealthyAfter is the number of consecutive failures after which an endpoint gets no more connections.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	UnhealthyAfter int32 `json:"unhealthyAfter,omitempty"`

	// HealthyAfter is the number of consecutive successes after which an endpoint gets connections again.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	HealthyAfter int32 `json:"healthyAfter,omitempty"`
}

// Defaults of the attempts to connect to a backend, and of the ejection of its endpoints.
const (
	DefaultConnectRetries      int32    = 2
	DefaultConnectBackoff      Duration = "50ms"
	DefaultConsecutiveFailures int32    = 2
	DefaultEjectionTime        Duration = "5s"
	DefaultMaxEjectionPercent  int32    = 50
)

// ConnectRetry retries failed attempts to connect to a Service, each of which may select another endpoint.
type ConnectRetry struct {
	// Attempts is the number of retries. With 0, the connection of the client is closed after the first failure.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Attempts *int32 `json:"attempts,omitempty"`

	// Backoff is the time before the first retry, which grows with each further retry, at random up to ten times this.
	// +optional
	// +kubebuilder:default="50ms"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('1m')",message="must be from 1ms to 1m"
	Backoff Duration `json:"backoff,omitempty"`
}

// OutlierDetection ejects endpoints to which connections fail: they get no connections for some time.
type OutlierDetection struct {
	// ConsecutiveFailures is the number of consecutive failed connections after which an endpoint is ejected. With 0, none
	// is.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	ConsecutiveFailures *int32 `json:"consecutiveFailures,omitempty"`

	// EjectionTime is how long an endpoint is ejected. It grows by this with each further ejection, up to 30s, unless this
	// is longer.
	// +optional
	// +kubebuilder:default="5s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="must be from 1s to 1h"
	EjectionTime Duration `json:"ejectionTime,omitempty"`

	// MaxEjectionPercent is the highest share of endpoints that are ejected at the same time. All of them are never
	// ejected at once.
	// +optional
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	MaxEjectionPercent int32 `json:"maxEjectionPercent,omitempty"`
}
