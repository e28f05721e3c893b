// Package status says how Infras fare.
package status

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Report is how one Infra fares.
type Report struct {
	metav1.TypeMeta `json:",inline"`

	Metadata output.Metadata `json:"metadata"`
	// HostedCluster is "namespace/name"; empty while none is bound.
	HostedCluster string `json:"hostedCluster,omitempty"`
	// Network is the NetworkAttachmentDefinition of the virtual machines, "namespace/name".
	Network string   `json:"network"`
	CIDRs   []string `json:"cidrs"`
	// Ready sums up. It is unknown while control has not looked at the present spec.
	Ready Summary `json:"ready"`
	// Components are DHCP, DNS and the proxy.
	Components []Component `json:"components"`
	// ProxyServers are those that take their routes from the Infra.
	ProxyServers []ProxyServer `json:"proxyServers,omitempty"`
	// FloatingAddress is the proxy's, where it moves between instances.
	FloatingAddress *FloatingAddress `json:"floatingAddress,omitempty"`
	// Applications is nil where nothing is asked for.
	Applications *Applications `json:"applications,omitempty"`
	// Conditions are all that the status has, Ready first and the others by their type.
	Conditions []metav1.Condition `json:"conditions"`

	created time.Time
}

// Summary is a condition in short.
type Summary struct {
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message,omitempty"`
}

// Component is one service on the VLAN.
type Component struct {
	Name    string `json:"name"`
	Enabled bool   `json:"enabled"`
	// Ready is what control has found when it asked the service.
	Ready     metav1.ConditionStatus `json:"ready,omitempty"`
	Addresses []string               `json:"addresses,omitempty"`
	Pods      []Pod                  `json:"pods,omitempty"`
}

// Pod is one that runs a component.
type Pod struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	Node  string `json:"node,omitempty"`
	// Reason says why it is not ready.
	Reason string `json:"reason,omitempty"`
}

// ProxyServer is what the replicas of a proxy say of themselves.
type ProxyServer struct {
	Name       string                   `json:"name"`
	Generation int64                    `json:"generation"`
	Conditions []metav1.Condition       `json:"conditions,omitempty"`
	Replicas   []v1alpha1.ReplicaStatus `json:"replicas,omitempty"`
}

// FloatingAddress is who has the address that moves, as its Lease says. While the API server is
// away it may move without the Lease.
type FloatingAddress struct {
	Addresses []string `json:"addresses"`
	// Holder is a pod; empty for nobody.
	Holder string `json:"holder,omitempty"`
	// Since is when it took the address, Renewed when it said last that it still has it.
	Since   *metav1.MicroTime `json:"since,omitempty"`
	Renewed *metav1.MicroTime `json:"renewed,omitempty"`
	// Moves is how often another took it.
	Moves int32 `json:"moves"`
}

// Applications is how the hosted cluster's applications are reached.
type Applications struct {
	Phase     v1alpha1.AppsIngressPhase  `json:"phase,omitempty"`
	Addresses []string                   `json:"addresses,omitempty"`
	Service   string                     `json:"service,omitempty"`
	Reason    v1alpha1.AppsIngressReason `json:"reason,omitempty"`
	Message   string                     `json:"message,omitempty"`
	LastSync  *metav1.Time               `json:"lastSyncTime,omitempty"`
}

// Objects are what a report is made of.
type Objects struct {
	Infra *v1alpha1.Infra
	// Serves is the hosted cluster; nil for none.
	Serves *model.Ref
	// Pods and ProxyServers may be others' as well.
	Pods         []*corev1.Pod
	ProxyServers []*v1alpha1.ProxyServer
	// Floating is the Lease of the proxy's address; nil for none.
	Floating *coordinationv1.Lease
}

// Make makes the report of one Infra.
func Make(in Objects) *Report {
	infra := in.Infra
	spec, is := &infra.Spec, &infra.Status
	r := &Report{
		TypeMeta:   metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "InfraStatus"},
		Metadata:   output.Metadata{Name: infra.Name, Namespace: infra.Namespace},
		Network:    spec.NetworkConfig.NetworkAttachment(infra.Namespace).String(),
		CIDRs:      []string{spec.NetworkConfig.CIDR},
		Ready:      ready(infra),
		Conditions: append([]metav1.Condition{}, is.Conditions...),
		created:    infra.CreationTimestamp.Time,
	}
	for _, cidr := range spec.NetworkConfig.AdditionalCIDRs {
		r.CIDRs = append(r.CIDRs, string(cidr))
	}
	if in.Serves != nil && in.Serves.Kind == "HostedCluster" {
		r.HostedCluster = in.Serves.Key()
	}
	slices.SortFunc(r.Conditions, func(a, b metav1.Condition) int {
		if first := v1alpha1.ConditionReady; a.Type == first || b.Type == first {
			return boolOrder(a.Type == first, b.Type == first)
		}
		return strings.Compare(a.Type, b.Type)
	})
	r.Components = components(in)
	for _, server := range in.ProxyServers {
		if ref := server.Spec.InfraRef; ref != nil && ref.Name == infra.Name && server.Namespace == infra.Namespace {
			r.ProxyServers = append(r.ProxyServers, proxyServer(server))
		}
	}
	slices.SortFunc(r.ProxyServers, func(a, b ProxyServer) int { return strings.Compare(a.Name, b.Name) })
	if proxy := spec.InfraComponents.Proxy; proxy.IsEnabled() && len(proxy.Instances) > 0 {
		r.FloatingAddress = floating(addresses(proxy.ServerIPs(), nil), in.Floating)
	}
	if spec.AppsIngress.IsEnabled() {
		r.Applications = applications(is.AppsIngress)
	}
	return r
}

func floating(addresses []string, lease *coordinationv1.Lease) *FloatingAddress {
	f := &FloatingAddress{Addresses: addresses}
	if lease == nil {
		return f
	}
	if lease.Spec.HolderIdentity != nil {
		f.Holder = *lease.Spec.HolderIdentity
	}
	if f.Holder != "" {
		f.Since, f.Renewed = lease.Spec.AcquireTime, lease.Spec.RenewTime
	}
	if lease.Spec.LeaseTransitions != nil {
		f.Moves = *lease.Spec.LeaseTransitions
	}
	return f
}

func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// ready is the condition of that name, where it is about the present spec: an old "True" says
// nothing.
func ready(infra *v1alpha1.Infra) Summary {
	found := meta.FindStatusCondition(infra.Status.Conditions, v1alpha1.ConditionReady)
	if found != nil && infra.Status.ObservedGeneration == infra.Generation {
		return Summary{found.Status, found.Reason, found.Message}
	}
	return Summary{
		Status: metav1.ConditionUnknown, Reason: "NotObserved",
		Message: "control has not looked at the Infra as it is now: is xdsd control running?",
	}
}

func components(in Objects) []Component {
	spec := &in.Infra.Spec.InfraComponents
	is := in.Infra.Status.ComponentStatus
	if is == nil {
		is = &v1alpha1.ComponentStatus{}
	}
	known := in.Infra.Status.ComponentStatus != nil && in.Infra.Status.ObservedGeneration == in.Infra.Generation
	list := []Component{
		{Name: v1alpha1.ComponentDHCP, Enabled: spec.DHCP.IsEnabled(), Ready: statusOf(is.DHCPReady, known), Addresses: addresses(nil, spec.DHCP.EffectiveInstances())},
		{Name: v1alpha1.ComponentDNS, Enabled: spec.DNS.IsEnabled(), Ready: statusOf(is.DNSReady, known), Addresses: addresses(nil, spec.DNS.EffectiveInstances())},
		{Name: v1alpha1.ComponentProxy, Enabled: spec.Proxy.IsEnabled(), Ready: statusOf(is.ProxyReady, known), Addresses: addresses(spec.Proxy.ServerIPs(), spec.Proxy.EffectiveInstances())},
	}
	for i := range list {
		if !list[i].Enabled {
			list[i].Ready, list[i].Addresses = "", nil
		}
		list[i].Pods = pods(in, list[i].Name)
	}
	return list
}

func statusOf(ready, known bool) metav1.ConditionStatus {
	switch {
	case !known:
		return metav1.ConditionUnknown
	case ready:
		return metav1.ConditionTrue
	default:
		return metav1.ConditionFalse
	}
}

// addresses are those that clients are to use, then those of single instances.
func addresses(shared []v1alpha1.IP, instances []v1alpha1.Instance) []string {
	var list []string
	add := func(ip v1alpha1.IP) {
		if !slices.Contains(list, string(ip)) {
			list = append(list, string(ip))
		}
	}
	for _, ip := range shared {
		add(ip)
	}
	for _, instance := range instances {
		add(instance.IP)
		for _, ip := range instance.AdditionalIPs {
			add(ip)
		}
	}
	return list
}

func proxyServer(server *v1alpha1.ProxyServer) ProxyServer {
	p := ProxyServer{
		Name: server.Name, Generation: server.Generation,
		Conditions: slices.Clone(server.Status.Conditions), Replicas: slices.Clone(server.Status.Replicas),
	}
	slices.SortFunc(p.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	slices.SortFunc(p.Replicas, func(a, b v1alpha1.ReplicaStatus) int { return strings.Compare(a.Pod, b.Pod) })
	return p
}

func applications(is *v1alpha1.AppsIngressStatus) *Applications {
	if is == nil {
		return &Applications{}
	}
	a := &Applications{Phase: is.Phase, Addresses: is.ExternalIPs, Reason: is.Reason, Message: is.Message, LastSync: is.LastSyncTime}
	if len(a.Addresses) == 0 && is.ExternalIP != "" {
		a.Addresses = []string{is.ExternalIP}
	}
	if is.ServiceName != "" {
		a.Service = is.ServiceNamespace + "/" + is.ServiceName
	}
	return a
}
