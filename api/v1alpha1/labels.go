package v1alpha1

// Labels of the pods and other objects of an Infra or ProxyServer. setup sets them; xdsd control and kubectl oooi
// select pods by them.
const (
	// LabelInfra is the name of the Infra, in the namespace of the labelled object.
	LabelInfra = GroupName + "/infra"

	// LabelProxyServer is the name of the ProxyServer that a proxy pod serves, in the pod's namespace.
	LabelProxyServer = GroupName + "/proxyserver"

	// LabelComponent is the component that an object belongs to: ComponentDHCP, ComponentDNS, ComponentProxy, or
	// another one, such as control.
	LabelComponent = "app.kubernetes.io/component"
)

// Label and annotation of objects that oooi creates, in the management cluster and in hosted clusters.
const (
	// LabelManagedBy has the value ManagedBy on objects that oooi creates.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "oooi"

	// AnnotationInfra is the Infra, "namespace/name", that an object belongs to. It is not a label, because a label
	// value cannot contain a slash and is limited to 63 characters.
	AnnotationInfra = GroupName + "/infra"
)

// Values of LabelComponent for the components of an Infra.
const (
	ComponentDHCP  = "dhcp"
	ComponentDNS   = "dns"
	ComponentProxy = "proxy"
)

// Names of container ports that control connects to.
const (
	// PortDNS is the name of the UDP port on which DNS answers queries from the pod network.
	PortDNS = "dns"

	// PortHealth is the name of the port with the readiness endpoint: /readyz, or /ready of CoreDNS.
	PortHealth = "health"

	// PortState is the name of the port with /problems and /state of CoreDNS. The other daemons serve them at PortHealth.
	PortState = "state"
)
