package doctor

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// Kind names a kind of objects.
type Kind = schema.GroupVersionKind

// Kinds that checks read. Secrets are not among them.
var (
	infras       = read.InfraKind
	proxyServers = read.ProxyServerKind
	crds         = Kind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

	hostedClusters = read.HostedClusterKind
	nodePools      = read.NodePoolKind
	routes         = read.RouteKind
	machines       = read.MachineKind
	attachments    = read.AttachmentKind
	dnsOperators   = Kind{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"}

	pods            = Kind{Version: "v1", Kind: "Pod"}
	services        = read.ServiceKind
	configMaps      = Kind{Version: "v1", Kind: "ConfigMap"}
	endpointSlices  = Kind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}
	statefulSets    = Kind{Group: "apps", Version: "v1", Kind: "StatefulSet"}
	deployments     = Kind{Group: "apps", Version: "v1", Kind: "Deployment"}
	networkPolicies = Kind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}
	// refusals are Events that tell of pods that could not be made.
	refusals     = Kind{Version: "v1", Kind: "Event"}
	leaseObjects = Kind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}
	// usages are what pods use, which metrics-server and others serve.
	usages = Kind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "PodMetrics"}

	// podPages are what pods say on their own pages, through the API server.
	podPages = Kind{Version: "v1", Kind: "PodProxyOptions"}
	// accessReviews are what the API server says of the rights of our ServiceAccounts.
	accessReviews = Kind{Group: "authorization.k8s.io", Version: "v1", Kind: "SubjectAccessReview"}
)

// Where says in which namespaces a kind is read.
type Where string

// Places.
const (
	// Everywhere is all namespaces, or no namespace.
	Everywhere Where = "everywhere"
	// AtInfra is the namespace of the Infra.
	AtInfra Where = "the Infra's namespace"
	// AtNetwork is that of the machines' NetworkAttachmentDefinition.
	AtNetwork Where = "the network's namespace"
	// AtHosted is that of the HostedCluster.
	AtHosted Where = "the HostedCluster's namespace"
	// AtControlPlane is that of the hosted control plane, and that of its machines.
	AtControlPlane Where = "the control plane's namespace"
	// AtBackends are those of what the proxy has of its own, beside the control plane.
	AtBackends Where = "the backends' namespaces"
	// AtSystem is that of control.
	AtSystem Where = "oooi-system"
	// AtClusterDNS is where the cluster's DNS has its Service and its Corefile, on plain Kubernetes and on OpenShift.
	AtClusterDNS Where = "kube-system and openshift-dns"
)

// Read is a kind of objects in a place, or a page of our pods there.
type Read struct {
	Kind  Kind
	Where Where
	// Page is which, of podPages.
	Page page
}

// object reports whether it is objects that are read.
func (r Read) object() bool { return r.Kind != podPages && r.Kind != accessReviews }

// String says what is read, and where.
func (r Read) String() string {
	page := ""
	if r.Kind == podPages {
		page = fmt.Sprintf(" :%d%s", r.Page.port, r.Page.path)
	}
	return fmt.Sprintf("%s%s in %s", r.Kind.GroupKind(), page, r.Where)
}

// in pairs kinds with a place.
func in(where Where, kinds ...Kind) []Read {
	var list []Read
	for _, kind := range kinds {
		list = append(list, Read{Kind: kind, Where: where})
	}
	return list
}

// says are pages of our pods in a place, with the pods.
func says(where Where, pages ...page) []Read {
	list := in(where, pods)
	for _, p := range pages {
		list = append(list, Read{Kind: podPages, Where: where, Page: p})
	}
	return list
}
