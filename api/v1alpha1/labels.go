package v1alpha1

// Labels of the pods and other objects of an Infra. setup sets them; xdsd control and kubectl oooi select
// pods by them.
const (
	// LabelInfra is the name of the Infra, in the pod's namespace.
	LabelInfra = GroupName + "/infra"

	// LabelProxyServer is the name of the ProxyServer that a proxy pod serves, in the pod's namespace.
	LabelProxyServer = GroupName + "/proxyserver"

	// LabelComponent is the component of a pod: ComponentDHCP, ComponentDNS or ComponentProxy.
	LabelComponent = "app.kubernetes.io/component"
)

// Label and annotation of objects that oooi creates in a hosted cluster, and of the Secrets with credentials
// for it.
const (
	// LabelManagedBy has the value ManagedBy on objects that oooi creates.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "oooi"

	// AnnotationInfra is the Infra, "namespace/name", that an object in a hosted cluster belongs to. It is
	// not a label, because a label value is limited to 63 characters.
	AnnotationInfra = GroupName + "/infra"
)

// Values of LabelComponent.
const (
	ComponentDHCP  = "dhcp"
	ComponentDNS   = "dns"
	ComponentProxy = "proxy"
)

// Names of container ports that are probed.
const (
	// PortDNS is the UDP port of DNS in the pod network.
	PortDNS = "dns"

	// PortHealth is the port of /readyz.
	PortHealth = "health"
)
