package v1alpha1

// Labels of the pods that serve an Infra, and of what else belongs to one. Whoever makes
// the pods sets them; they say whom to ask how an Infra fares.
const (
	// LabelInfra names the Infra, in the pod's own namespace.
	LabelInfra = GroupName + "/infra"

	// LabelProxyServer names the ProxyServer of a proxy's pod, in the pod's own namespace.
	LabelProxyServer = GroupName + "/proxyserver"

	// LabelComponent says which part of an Infra a pod is: ComponentDHCP, ComponentDNS or
	// ComponentProxy.
	LabelComponent = "app.kubernetes.io/component"
)

// What is ours inside a hosted cluster, and the credentials for it, carries these.
const (
	// LabelManagedBy has the value ManagedBy.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "oooi"

	// AnnotationInfra is the Infra, "namespace/name", that an object in a hosted cluster
	// belongs to. A label would be too short.
	AnnotationInfra = GroupName + "/infra"
)

// Values of LabelComponent.
const (
	ComponentDHCP  = "dhcp"
	ComponentDNS   = "dns"
	ComponentProxy = "proxy"
)

// Names of container ports, by which a pod says where it is to be asked.
const (
	// PortDNS is the UDP port of DNS in the pod network.
	PortDNS = "dns"

	// PortHealth is the port of /readyz.
	PortHealth = "health"
)
