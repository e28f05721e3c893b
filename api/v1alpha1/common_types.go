package v1alpha1

// The address functions of CEL are not there for the rules of a new CRD on a
// Kubernetes 1.30 API server, so that admission checks the shape of addresses.
// Whether they really are addresses becomes a condition.

// IP is an IPv4 or IPv6 address without a prefix length.
//
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:XValidation:rule=`self.matches(r'^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}|[0-9a-fA-F]{0,4}(:[0-9a-fA-F]{0,4}){2,7}(:?[0-9]{1,3}(\.[0-9]{1,3}){3})?)$')`,message="must be an IPv4 or IPv6 address without a prefix length"
type IP string

// CIDR is an IPv4 or IPv6 network in CIDR notation.
//
// +kubebuilder:validation:MaxLength=49
// +kubebuilder:validation:XValidation:rule=`self.matches(r'^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}/(3[0-2]|[12]?[0-9])|[0-9a-fA-F]{0,4}(:[0-9a-fA-F]{0,4}){2,7}/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))$')`,message="must be an IPv4 or IPv6 network in CIDR notation, such as 192.0.2.0/24"
type CIDR string

// Duration is a length of time in hours, minutes, seconds and milliseconds, such
// as 1h30m or 500ms.
//
// +kubebuilder:validation:MaxLength=28
// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(ms|s|m|h)){1,4}$`
type Duration string

// LogLevel is how much Envoy writes to its log.
//
// +kubebuilder:validation:Enum=trace;debug;info;warning;error;critical
type LogLevel string

// The levels that Envoy knows, from the most to the least talkative.
const (
	LogLevelTrace    LogLevel = "trace"
	LogLevelDebug    LogLevel = "debug"
	LogLevelInfo     LogLevel = "info"
	LogLevelWarning  LogLevel = "warning"
	LogLevelError    LogLevel = "error"
	LogLevelCritical LogLevel = "critical"
)

// DefaultLogLevel is the log level where none is given.
const DefaultLogLevel = LogLevelInfo

// DefaultHostedClusterNamespace is the namespace of a HostedCluster whose
// reference names none.
const DefaultHostedClusterNamespace = "clusters"

// HostedClusterReference names a HyperShift HostedCluster.
type HostedClusterReference struct {
	// Name of the HostedCluster.
	// +required
	Name string `json:"name"`

	// Namespace of the HostedCluster.
	// +optional
	// +kubebuilder:default=clusters
	Namespace string `json:"namespace,omitempty"`
}

// InfraReference names an Infra in the namespace of the object that holds the
// reference.
type InfraReference struct {
	// Name of the Infra.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// DefaultKubeconfigKey is the Secret key that HyperShift keeps a kubeconfig
// under.
const DefaultKubeconfigKey = "kubeconfig"

// SecretKeyReference names one key of a Secret in the namespace of the object
// that holds the reference.
type SecretKeyReference struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Key in the Secret's data.
	// +optional
	// +kubebuilder:default=kubeconfig
	// +kubebuilder:validation:MinLength=1
	Key string `json:"key,omitempty"`
}
