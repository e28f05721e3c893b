package site

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// Kind is the group, version and kind of objects.
type Kind = schema.GroupVersionKind

// Kinds that are read. Secrets are not read.
var (
	Infras         = read.InfraKind
	ProxyServers   = read.ProxyServerKind
	CRDs           = Kind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	HostedClusters = read.HostedClusterKind
	NodePools      = read.NodePoolKind
	Routes         = read.RouteKind
	VMIs           = read.MachineKind
	NADs           = read.AttachmentKind
	ClusterDNS     = read.ClusterDNSKind
	ClusterIngress = read.ClusterIngressKind
	// Constraints are not read; only whether the API server serves them is known.
	Constraints  = read.ConstraintsKind
	DNSOperators = Kind{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"}

	// ClusterNetworks are networks for which OVN-Kubernetes creates a NetworkAttachmentDefinition in each selected namespace.
	ClusterNetworks = Kind{Group: "k8s.ovn.org", Version: "v1", Kind: "ClusterUserDefinedNetwork"}

	// Namespaces are read by name: the namespace of a place is the Namespace to read.
	Namespaces     = Kind{Version: "v1", Kind: "Namespace"}
	Nodes          = Kind{Version: "v1", Kind: "Node"}
	Pods           = Kind{Version: "v1", Kind: "Pod"}
	Services       = read.ServiceKind
	ConfigMaps     = Kind{Version: "v1", Kind: "ConfigMap"}
	EndpointSlices = Kind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}
	StatefulSets   = Kind{Group: "apps", Version: "v1", Kind: "StatefulSet"}
	Deployments    = Kind{Group: "apps", Version: "v1", Kind: "Deployment"}
	Policies       = Kind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}
	Leases         = Kind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}
	// Events are warnings about pods and StatefulSets.
	Events = Kind{Version: "v1", Kind: "Event"}

	// Problems are the responses of oooi's pods to GET /problems through the API server.
	Problems = Kind{Version: "v1", Kind: "PodProxyOptions"}
	// Logs are the logs of oooi's containers that have terminated with an error.
	Logs = Kind{Version: "v1", Kind: "PodLogOptions"}
)

// Where selects the namespaces in which a kind is read.
type Where string

// Namespaces in which kinds are read.
const (
	// Everywhere is all namespaces; for cluster-scoped kinds, the cluster.
	Everywhere Where = "everywhere"
	// AtInfra is the Infra's namespace.
	AtInfra Where = "the Infra's namespace"
	// AtNetwork is the namespace of the VMs' NetworkAttachmentDefinition.
	AtNetwork Where = "the network's namespace"
	// AtHosted is the namespace of the HostedCluster; all namespaces if the Infra serves none and names none.
	AtHosted Where = "the HostedCluster's namespace"
	// AtControlPlane is the namespace of the hosted control plane and, if different, of its VMs; no namespace if unknown.
	AtControlPlane Where = "the control plane's namespace"
	// AtBackends are the namespaces of the proxy's other backends, and of its internalProxyService.
	AtBackends Where = "the backends' namespaces"
	// AtSystem is the namespace of control.
	AtSystem Where = "oooi-system"
	// AtClusterDNS are the namespaces of the cluster's DNS on plain Kubernetes and on OpenShift.
	AtClusterDNS Where = "kube-system and openshift-dns"
	// AtMultus is the namespace of Multus on plain Kubernetes.
	AtMultus Where = "kube-system"
)

// Read is a kind that is read in the namespaces that Where selects.
type Read struct {
	Kind  Kind
	Where Where
	// Optional means that the caller works without the data, but reports less.
	Optional bool
}

// String returns the kind and the namespaces, as doctor --list shows them.
func (r Read) String() string {
	kind := r.Kind.GroupKind().String()
	switch r.Kind {
	case Problems:
		kind = "/problems of oooi's pods"
	case Logs:
		kind = "logs of oooi's pods"
	}
	text := kind + " in " + string(r.Where)
	if r.Optional {
		text += ", if permitted"
	}
	return text
}

// In returns a Read for each kind.
func In(where Where, kinds ...Kind) []Read {
	var list []Read
	for _, kind := range kinds {
		list = append(list, Read{Kind: kind, Where: where})
	}
	return list
}

// Optional returns the reads as optional ones.
func Optional(reads []Read) []Read {
	list := slices.Clone(reads)
	for i := range list {
		list[i].Optional = true
	}
	return list
}

// stored reports whether objects of the kind are stored in the API server.
func (r Read) stored() bool { return r.Kind != Problems && r.Kind != Logs }

// Role returns a ClusterRole with exactly the permissions that the reads need. It grants no access to Secrets.
func Role(name string, reads []Read) *rbacv1.ClusterRole {
	role := &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	var rules []rbacv1.PolicyRule
	for _, r := range reads {
		for _, rule := range rulesOf(r.Kind) {
			if !slices.ContainsFunc(rules, func(known rbacv1.PolicyRule) bool { return known.String() == rule.String() }) {
				rules = append(rules, rule)
			}
		}
	}
	slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(strings.Compare(a.APIGroups[0], b.APIGroups[0]), slices.Compare(a.Verbs, b.Verbs),
			slices.Compare(a.ResourceNames, b.ResourceNames), strings.Compare(a.Resources[0], b.Resources[0]))
	})
	for _, rule := range rules { // merge rules with the same verbs
		last := len(role.Rules) - 1
		if last >= 0 && role.Rules[last].APIGroups[0] == rule.APIGroups[0] && slices.Equal(role.Rules[last].Verbs, rule.Verbs) &&
			role.Rules[last].ResourceNames == nil && rule.ResourceNames == nil {
			role.Rules[last].Resources = append(role.Rules[last].Resources, rule.Resources...)
			continue
		}
		role.Rules = append(role.Rules, rule)
	}
	return role
}

// rulesOf returns the rules for reading a kind.
func rulesOf(kind Kind) []rbacv1.PolicyRule {
	rule := func(resource string, names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{kind.Group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}
	}
	resource := resourceOf(kind)
	switch kind {
	case Problems:
		return []rbacv1.PolicyRule{rule("pods/proxy", nil, "get")}
	case Logs:
		return []rbacv1.PolicyRule{rule("pods/log", nil, "get")}
	case ClusterDNS, ClusterIngress:
		return []rbacv1.PolicyRule{rule(resource, []string{"cluster"}, "get")}
	case Constraints: // every user may discover kinds
		return nil
	case CRDs:
		return []rbacv1.PolicyRule{rule(resource, crdNames(), "get")}
	case ConfigMaps:
		return []rbacv1.PolicyRule{rule(resource, nil, "list"), rule(resource, configMapNames(""), "get")}
	case Infras: // a named Infra is read with get
		return []rbacv1.PolicyRule{rule(resource, nil, "get", "list")}
	default:
		return []rbacv1.PolicyRule{rule(resource, nil, "list")}
	}
}

// resourceOf returns the resource name of a kind.
func resourceOf(kind Kind) string {
	if kind == NADs {
		return "network-attachment-definitions"
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.Resource
}

// place is a kind in a namespace, or in all namespaces.
type place struct {
	kind      Kind
	namespace string
}

func (p place) String() string {
	if p.namespace == "" {
		return resourceOf(p.kind) + " in all namespaces"
	}
	return fmt.Sprintf("%s in namespace %s", resourceOf(p.kind), p.namespace)
}
