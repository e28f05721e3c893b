// Package status builds and prints reports of the status of Infras and standalone ProxyServers.
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

// A Report is the status of one Infra, or of one ProxyServer without an Infra, which has only a proxy.
type Report struct {
	metav1.TypeMeta `json:",inline"`

	Metadata output.Metadata `json:"metadata"`
	// HostedCluster is "namespace/name"; empty if none is bound.
	HostedCluster string `json:"hostedCluster,omitempty"`
	// Network is the NetworkAttachmentDefinition of the VMs, as "namespace/name".
	Network string `json:"network"`
	// CIDRs are the subnets; empty for a ProxyServer.
	CIDRs []string `json:"cidrs"`
	// Ready is the condition Ready. Its status is Unknown while control has not observed the current generation.
	Ready Summary `json:"ready"`
	// Components has DHCP, DNS and the proxy, in this order.
	Components []Component `json:"components"`
	// ProxyServers has the ProxyServers whose infraRef names the Infra, or the standalone ProxyServer.
	ProxyServers []ProxyServer `json:"proxyServers,omitempty"`
	// FloatingAddress is the proxy's floating address; nil if the proxy is disabled or instances is empty.
	FloatingAddress *FloatingAddress `json:"floatingAddress,omitempty"`
	// Applications is nil if spec.appsIngress is disabled.
	Applications *Applications `json:"applications,omitempty"`
	// Conditions has all conditions of the status: Ready, then the others sorted by type.
	Conditions []metav1.Condition `json:"conditions"`

	created time.Time
}

// A Summary is a condition without its times and generation.
type Summary struct {
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message,omitempty"`
}

// A Component is one service on the VLAN.
type Component struct {
	Name    string `json:"name"`
	Enabled bool   `json:"enabled"`
	// Ready is the result of control's last check of the service: Unknown while control has not observed the current
	// generation of the Infra, and empty if the component is disabled.
	Ready     metav1.ConditionStatus `json:"ready,omitempty"`
	Addresses []string               `json:"addresses,omitempty"`
	Pods      []Pod                  `json:"pods,omitempty"`
}

// A Pod is one pod of a component.
type Pod struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	Node  string `json:"node,omitempty"`
	// Images are the containers' images, sorted and without duplicates.
	Images []string `json:"images,omitempty"`
	// Reason is why the pod is not ready, or that it is being deleted; empty for other pods.
	Reason string `json:"reason,omitempty"`
}

// A ProxyServer has the conditions of a ProxyServer, and the status of each proxy replica.
type ProxyServer struct {
	Name       string                   `json:"name"`
	Generation int64                    `json:"generation"`
	Conditions []metav1.Condition       `json:"conditions,omitempty"`
	Replicas   []v1alpha1.ReplicaStatus `json:"replicas,omitempty"`
}

// A FloatingAddress is the state of the floating address according to its Lease. While the API server is unavailable
// the address may move without an update of the Lease.
type FloatingAddress struct {
	Addresses []string `json:"addresses"`
	// Holder is the pod that holds the address; empty for none.
	Holder string `json:"holder,omitempty"`
	// Since is when the pod acquired the Lease, and Renewed when it last renewed it; nil if no pod holds the address.
	Since   *metav1.MicroTime `json:"since,omitempty"`
	Renewed *metav1.MicroTime `json:"renewed,omitempty"`
	// Moves is how often the holder has changed (spec.leaseTransitions of the Lease).
	Moves int32 `json:"moves"`
}

// Applications is status.appsIngress of an Infra. All fields are empty until control has written it.
type Applications struct {
	Phase     v1alpha1.AppsIngressPhase `json:"phase,omitempty"`
	Addresses []string                  `json:"addresses,omitempty"`
	// Service is "namespace/name" of the Service with the addresses.
	Service  string                     `json:"service,omitempty"`
	Reason   v1alpha1.AppsIngressReason `json:"reason,omitempty"`
	Message  string                     `json:"message,omitempty"`
	LastSync *metav1.Time               `json:"lastSyncTime,omitempty"`
}

// Objects has the input of a report.
type Objects struct {
	Infra *v1alpha1.Infra
	// Serves is the hosted cluster that the Infra serves; nil for none.
	Serves *model.Ref
	// Pods and ProxyServers may include objects of other Infras.
	Pods         []*corev1.Pod
	ProxyServers []*v1alpha1.ProxyServer
	// Floating is the Lease of the floating address; nil for none.
	Floating *coordinationv1.Lease
}

// NewReport returns the report of in.Infra. It does not modify the objects.
func NewReport(in Objects) *Report {
	infra := in.Infra
	spec, status := &infra.Spec, &infra.Status
	r := &Report{
		TypeMeta:   metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "InfraStatus"},
		Metadata:   output.Metadata{Name: infra.Name, Namespace: infra.Namespace},
		Network:    spec.NetworkConfig.NetworkAttachment(infra.Namespace).String(),
		CIDRs:      []string{spec.NetworkConfig.CIDR},
		Ready:      summaryOf("Infra", status.Conditions, status.ObservedGeneration == infra.Generation),
		Conditions: append([]metav1.Condition{}, status.Conditions...),
		created:    infra.CreationTimestamp.Time,
	}
	for _, cidr := range spec.NetworkConfig.AdditionalCIDRs {
		r.CIDRs = append(r.CIDRs, string(cidr))
	}
	if in.Serves != nil && in.Serves.Kind == "HostedCluster" {
		r.HostedCluster = in.Serves.Key()
	}
	sortConditions(r.Conditions)
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
		r.Applications = applications(status.AppsIngress)
	}
	return r
}

// NewProxyReport returns the report of a ProxyServer without an Infra. pods may include pods of other proxies. It does
// not modify the objects.
func NewProxyReport(server *v1alpha1.ProxyServer, pods []*corev1.Pod) *Report {
	summary := summaryOf("ProxyServer", server.Status.Conditions, server.Status.ObservedGeneration == server.Generation)
	r := &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "ProxyServerStatus"},
		Metadata: output.Metadata{Name: server.Name, Namespace: server.Namespace, Kind: "ProxyServer"},
		Network:  server.Spec.NetworkConfig.NetworkAttachment(server.Namespace).String(),
		CIDRs:    []string{}, Ready: summary, ProxyServers: []ProxyServer{proxyServer(server)}, created: server.CreationTimestamp.Time,
	}
	r.Conditions = slices.Clone(r.ProxyServers[0].Conditions)
	sortConditions(r.Conditions)
	address := server.Spec.NetworkConfig.ServerIP
	if parsed, err := v1alpha1.ParseAddress(address); err == nil {
		address = parsed.String()
	}
	r.Components = []Component{
		{Name: v1alpha1.ComponentDHCP}, {Name: v1alpha1.ComponentDNS},
		{Name: v1alpha1.ComponentProxy, Enabled: true, Ready: summary.Status, Addresses: []string{address}, Pods: describePods(pods, func(p *corev1.Pod) bool {
			_, ofInfra := p.Labels[v1alpha1.LabelInfra]
			return p.Namespace == server.Namespace && !ofInfra && p.Labels[v1alpha1.LabelProxyServer] == server.Name &&
				p.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentProxy
		})},
	}
	return r
}

// sortConditions sorts Ready first, and the others by type.
func sortConditions(list []metav1.Condition) {
	slices.SortFunc(list, func(a, b metav1.Condition) int {
		switch v1alpha1.ConditionReady {
		case a.Type:
			return -1
		case b.Type:
			return 1
		}
		return strings.Compare(a.Type, b.Type)
	})
}

// floating returns the floating address with the holder of its Lease, if there is one.
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

// summaryOf returns the condition Ready of an object of a kind. Its status is Unknown unless control has observed the current
// generation.
func summaryOf(kind string, conditions []metav1.Condition, current bool) Summary {
	if found := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); found != nil && current {
		return Summary{found.Status, found.Reason, found.Message}
	}
	return Summary{
		Status: metav1.ConditionUnknown, Reason: "NotObserved",
		Message: "xdsd control has not observed the current generation of the " + kind + "; check that Deployment oooi-system/oooi-control is running",
	}
}

// components returns DHCP, DNS and the proxy, with their pods.
func components(in Objects) []Component {
	spec := &in.Infra.Spec.InfraComponents
	status := in.Infra.Status.ComponentStatus
	if status == nil {
		status = &v1alpha1.ComponentStatus{}
	}
	current := in.Infra.Status.ComponentStatus != nil && in.Infra.Status.ObservedGeneration == in.Infra.Generation
	list := []Component{
		{Name: v1alpha1.ComponentDHCP, Enabled: spec.DHCP.IsEnabled(), Ready: statusOf(status.DHCPReady, current),
			Addresses: addresses(nil, spec.DHCP.EffectiveInstances())},
		{Name: v1alpha1.ComponentDNS, Enabled: spec.DNS.IsEnabled(), Ready: statusOf(status.DNSReady, current),
			Addresses: addresses(nil, spec.DNS.EffectiveInstances())},
		{Name: v1alpha1.ComponentProxy, Enabled: spec.Proxy.IsEnabled(), Ready: statusOf(status.ProxyReady, current),
			Addresses: addresses(spec.Proxy.ServerIPs(), spec.Proxy.EffectiveInstances())},
	}
	for i := range list {
		if !list[i].Enabled {
			list[i].Ready, list[i].Addresses = "", nil
		}
		list[i].Pods = describePods(in.Pods, func(p *corev1.Pod) bool {
			return p.Namespace == in.Infra.Namespace && p.Labels[v1alpha1.LabelInfra] == in.Infra.Name && p.Labels[v1alpha1.LabelComponent] == list[i].Name
		})
	}
	return list
}

// statusOf returns the status of a condition; Unknown unless control has observed the current generation.
func statusOf(ready, current bool) metav1.ConditionStatus {
	switch {
	case !current:
		return metav1.ConditionUnknown
	case ready:
		return metav1.ConditionTrue
	default:
		return metav1.ConditionFalse
	}
}

// addresses returns the addresses for clients, followed by the replicas' addresses, without duplicates.
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

func applications(status *v1alpha1.AppsIngressStatus) *Applications {
	if status == nil {
		return &Applications{}
	}
	a := &Applications{Phase: status.Phase, Addresses: status.ExternalIPs, Reason: status.Reason, Message: status.Message, LastSync: status.LastSyncTime}
	if len(a.Addresses) == 0 && status.ExternalIP != "" {
		a.Addresses = []string{status.ExternalIP}
	}
	if status.ServiceName != "" {
		a.Service = status.ServiceNamespace + "/" + status.ServiceName
	}
	return a
}
