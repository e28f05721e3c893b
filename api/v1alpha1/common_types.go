package v1alpha1

// Kubernetes 1.30 rejects CEL's address functions in the rules of a new CRD. Admission therefore only checks the
// syntax of addresses, and a condition reports invalid ones.

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

// Duration is a duration in hours, minutes, seconds and milliseconds, such as 1h30m or 500ms.
//
// +kubebuilder:validation:MaxLength=28
// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(ms|s|m|h)){1,4}$`
type Duration string

// LogLevel is an Envoy log level.
//
// +kubebuilder:validation:Enum=trace;debug;info;warning;error;critical
type LogLevel string

// Envoy's log levels, from the most to the least verbose.
const (
	LogLevelTrace    LogLevel = "trace"
	LogLevelDebug    LogLevel = "debug"
	LogLevelInfo     LogLevel = "info"
	LogLevelWarning  LogLevel = "warning"
	LogLevelError    LogLevel = "error"
	LogLevelCritical LogLevel = "critical"
)

// DefaultLogLevel is Envoy's default log level.
const DefaultLogLevel = LogLevelInfo

// DefaultHostedClusterNamespace is the namespace of a HostedCluster that a reference names without a namespace and that is
// not in the namespace of the referring object.
const DefaultHostedClusterNamespace = "clusters"

// HostedClusterReference refers to a HyperShift HostedCluster.
type HostedClusterReference struct {
	// Name of the HostedCluster.
	// +required
	Name string `json:"name"`

	// Namespace of the HostedCluster. Defaults to the Infra's namespace if it has a HostedCluster with that name, else
	// to clusters. setup sets it to the namespace in which it finds the HostedCluster.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// InfraReference refers to an Infra in the namespace of the referring object.
type InfraReference struct {
	// Name of the Infra.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// DefaultKubeconfigKey is the Secret key in which HyperShift stores a kubeconfig.
const DefaultKubeconfigKey = "kubeconfig"

// SecretKeyReference refers to a key of a Secret in the namespace of the referring object.
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

// ProxyProtocol is a version of the PROXY protocol, whose header contains the client's address.
//
// +kubebuilder:validation:Enum=None;V1;V2
type ProxyProtocol string

const (
	// ProxyProtocolNone sends no header.
	ProxyProtocolNone ProxyProtocol = "None"

	// ProxyProtocolV1 sends a header in text.
	ProxyProtocolV1 ProxyProtocol = "V1"

	// ProxyProtocolV2 sends a binary header.
	ProxyProtocolV2 ProxyProtocol = "V2"
)
