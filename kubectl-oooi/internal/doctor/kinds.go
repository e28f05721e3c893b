package doctor

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// Kind is the group, version and kind of objects.
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
	clusterDNS     = read.ClusterDNSKind
	clusterIngress = read.ClusterIngressKind
	// constraints are only known to be served or not.
	constraints  = read.ConstraintsKind
	dnsOperators = Kind{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"}

	namespaces      = Kind{Version: "v1", Kind: "Namespace"}
	nodes           = Kind{Version: "v1", Kind: "Node"}
	pods            = Kind{Version: "v1", Kind: "Pod"}
	services        = read.ServiceKind
	configMaps      = Kind{Version: "v1", Kind: "ConfigMap"}
	endpointSlices  = Kind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}
	statefulSets    = Kind{Group: "apps", Version: "v1", Kind: "StatefulSet"}
	deployments     = Kind{Group: "apps", Version: "v1", Kind: "Deployment"}
	networkPolicies = Kind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}
	serviceAccounts = Kind{Version: "v1", Kind: "ServiceAccount"}
	// egressFirewalls are OVN-Kubernetes' filters of the pods in a namespace. They are not evaluated.
	egressFirewalls = Kind{Group: "k8s.ovn.org", Version: "v1", Kind: "EgressFirewall"}
	// disruptionBudgets exist for components with several replicas.
	disruptionBudgets = Kind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}
	// podEvents are Events about pods that could not be created or started, and about failed probes of their containers.
	podEvents    = Kind{Version: "v1", Kind: "Event"}
	leaseObjects = Kind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}
	// limitRanges can reject pods; resourceQuotas and webhook configurations can also reject what our daemons write.
	limitRanges        = Kind{Version: "v1", Kind: "LimitRange"}
	resourceQuotas     = Kind{Version: "v1", Kind: "ResourceQuota"}
	validatingWebhooks = Kind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"}
	mutatingWebhooks   = Kind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"}
	// podMetrics are served by metrics-server or an equivalent.
	podMetrics = Kind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "PodMetrics"}

	// podPages are pages that our pods serve, requested through the API server.
	podPages = Kind{Version: "v1", Kind: "PodProxyOptions"}
	// podLogs are the logs of our containers that have terminated with an error.
	podLogs = Kind{Version: "v1", Kind: "PodLogOptions"}
	// accessReviews are SubjectAccessReviews of the rights of our ServiceAccounts.
	accessReviews = Kind{Group: "authorization.k8s.io", Version: "v1", Kind: "SubjectAccessReview"}
)

// Where selects the namespaces in which a kind is read. doctor --list shows its text.
type Where string

// Namespaces in which checks read.
const (
	// Everywhere is all namespaces; for cluster-scoped kinds, the cluster.
	Everywhere Where = "everywhere"
	// AtInfra is the Infra's namespace.
	AtInfra Where = "the Infra's namespace"
	// AtNetwork is the namespace of the VMs' NetworkAttachmentDefinition.
	AtNetwork Where = "the network's namespace"
	// AtHosted is the namespace of the HostedCluster; all namespaces if the Infra has none and refers to none.
	AtHosted Where = "the HostedCluster's namespace"
	// AtControlPlane is the namespace of the hosted control plane, in which its VMs are read as well; no
	// namespace if it is unknown.
	AtControlPlane Where = "the control plane's namespace"
	// AtBackends are the namespaces of the proxy's other backends.
	AtBackends Where = "the backends' namespaces"
	// AtWebhooks are the namespaces of the Services of admission webhooks for what our daemons write.
	AtWebhooks Where = "the webhooks' namespaces"
	// AtSystem is the namespace of control.
	AtSystem Where = "oooi-system"
	// AtDefault is the namespace of the management cluster's own Service.
	AtDefault Where = "namespace default"
	// AtClusterDNS are the namespaces of the cluster's DNS on plain Kubernetes and on OpenShift.
	AtClusterDNS Where = "kube-system and openshift-dns"
	// AtMultus is the namespace of Multus on plain Kubernetes.
	AtMultus Where = "kube-system"
)

// Read is one input of a check: objects of a kind, access reviews, logs, or a page of oooi's pods, in the namespaces that
// Where selects.
type Read struct {
	Kind  Kind
	Where Where
	// Page is the page if Kind is podPages, else the zero value.
	Page page
	// Optional means that the check runs without the data, and then says less.
	Optional bool
}

// object reports whether the kind is one of stored objects, rather than of pages, logs or reviews.
func (r Read) object() bool {
	return r.Kind != podPages && r.Kind != podLogs && r.Kind != accessReviews
}

// String returns the kind, page and namespaces, as doctor --list shows them.
func (r Read) String() string {
	page := ""
	if r.Kind == podPages {
		page = fmt.Sprintf(" :%d%s", r.Page.port, r.Page.path)
	}
	text := fmt.Sprintf("%s%s in %s", r.Kind.GroupKind(), page, r.Where)
	if r.Optional {
		text += ", if permitted"
	}
	return text
}

// in returns a Read for each kind.
func in(where Where, kinds ...Kind) []Read {
	var list []Read
	for _, kind := range kinds {
		list = append(list, Read{Kind: kind, Where: where})
	}
	return list
}

// optional returns Reads without which the check runs as well.
func optional(reads []Read) []Read {
	for i := range reads {
		reads[i].Optional = true
	}
	return reads
}

// pagesIn returns a Read for each page, and one for the pods that serve them.
func pagesIn(where Where, pages ...page) []Read {
	list := in(where, pods)
	for _, p := range pages {
		list = append(list, Read{Kind: podPages, Where: where, Page: p})
	}
	return list
}
