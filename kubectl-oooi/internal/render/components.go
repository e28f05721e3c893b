package render

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/densityops/oooi/api/v1alpha1"
)

// A component is DHCP, DNS or the proxy of an Infra.
type component struct {
	name     string
	enabled  bool
	replicas []v1alpha1.Instance
	workload func(*Input, []instance) (*workload, error)
}

// componentsOf returns the components of an Infra, in the order in which they are rendered.
func componentsOf(infra *v1alpha1.Infra) []component {
	c := &infra.Spec.InfraComponents
	return []component{
		{v1alpha1.ComponentProxy, c.Proxy.IsEnabled(), c.Proxy.EffectiveInstances(), proxy},
		{v1alpha1.ComponentDNS, c.DNS.IsEnabled(), c.DNS.EffectiveInstances(), dns},
		{v1alpha1.ComponentDHCP, c.DHCP.IsEnabled(), c.DHCP.EffectiveInstances(), dhcp},
	}
}

// A workload has the properties that differ between components.
type workload struct {
	// objects are additional objects, and rules the permissions of the pods.
	objects []runtime.Object
	rules   []rule
	// ports are the ports of the Service, which all clients may use; empty for no Service.
	ports []corev1.ServicePort
	// observed are the TCP ports with health and metrics, which pods may use.
	observed []int32
	// lowest is the lowest port that the pods listen on.
	lowest int64
	// egress are the connections that the pods may make; nil for all.
	egress []networkingv1.NetworkPolicyEgressRule
	// pods has the spec of each replica's pod.
	pods []corev1.PodSpec
	// privileged is set if a container has capabilities and runs as root.
	privileged bool
}

// An instance is one replica of a component, with unique VLAN addresses.
type instance struct {
	name      string
	addresses []netip.Addr
}

// instances returns the replicas of a component.
func (in *Input) instances(c component) ([]instance, error) {
	if len(c.replicas) == 0 {
		return nil, fmt.Errorf("spec.infraComponents.%s.serverIP is required; specify an address on the VLAN", c.name)
	}
	var all []instance
	for _, r := range c.replicas {
		i := instance{name: in.setName(c.name, r.IP, len(c.replicas) > 1)}
		if len(i.name) > longestName {
			return nil, fmt.Errorf("metadata.name: %s is too long: the StatefulSet name %s has more than %d characters", in.Infra.Name, i.name, longestName)
		}
		for _, text := range append([]v1alpha1.IP{r.IP}, r.AdditionalIPs...) {
			address, err := v1alpha1.ParseAddress(string(text))
			if err != nil {
				return nil, fmt.Errorf("spec.infraComponents.%s: %w", c.name, err)
			}
			i.addresses = append(i.addresses, address)
		}
		all = append(all, i)
	}
	return all, nil
}

// render returns the objects of a component: a StatefulSet for each replica, and the objects that the StatefulSets need.
func (in *Input) render(c component) ([]runtime.Object, error) {
	instances, err := in.instances(c)
	if err != nil {
		return nil, err
	}
	w, err := c.workload(in, instances)
	if err != nil {
		return nil, err
	}
	meta := in.meta(c.name, in.name(c.name))
	list := slices.Concat(w.objects, in.rights(c.name, w.rules...))
	list = append(list, in.networkPolicy(c.name, w))
	if len(w.ports) > 0 {
		list = append(list, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack), Selector: in.labels(c.name), Ports: w.ports,
		}})
	}
	for n, i := range instances {
		nad, networks, err := in.attachment(c.name, i)
		if err != nil {
			return nil, err
		}
		list = append(list, nad, in.statefulSet(c.name, i.name, networks, w, w.pods[n]))
	}
	if len(instances) > 1 {
		list = append(list, &policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: in.labels(c.name)},
		}})
	}
	return list, nil
}

// statefulSet returns a StatefulSet of one pod, so that at most one pod has its addresses at any time.
func (in *Input) statefulSet(component, name, networks string, w *workload, spec corev1.PodSpec) *appsv1.StatefulSet {
	labels := in.labels(component)
	// Replicas prefer different nodes. A single replica has the affinity, too, so that adding a replica does not change its pod.
	spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchLabels: maps.Clone(labels)}},
	}}}}
	if placement := in.Infra.Spec.NodePlacement; placement != nil {
		spec.NodeSelector, spec.Tolerations = placement.Selector(), placement.Tolerations
	}
	labels["app.kubernetes.io/instance"] = name
	selector := maps.Clone(labels)
	if component == v1alpha1.ComponentProxy {
		labels["app"] = "proxy-server" // scripts and dashboards written for the earlier operator select pods by it
	}
	spec.ServiceAccountName = in.name(component)
	spec.AutomountServiceAccountToken = new(false) // see tokenVolume
	if in.Images.PullSecret != "" {
		// Not in the ServiceAccount, whose list OpenShift changes.
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: in.Images.PullSecret}}
	}
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = new(int64(30))
	}
	annotations := map[string]string{NetworksAnnotation: networks, "kubectl.kubernetes.io/default-container": spec.Containers[0].Name}
	spec.SecurityContext = in.podSecurity(w.lowest, annotations)
	if !in.OpenShift {
		spec.SecurityContext.FSGroup = new(int64(nonRootUser))
	} else if w.privileged {
		annotations[RequiredSCC] = in.constraints()
		spec.SecurityContext.RunAsUser = new(int64(nonRootUser))
	}
	return &appsv1.StatefulSet{
		ObjectMeta: in.meta(component, name),
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(1)), ServiceName: name,
			// If another field manager sets a partition, the pod stays at its earlier revision. The rendered field makes this a
			// conflict.
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(0))},
			},
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: spec},
		},
	}
}

// networkPolicy returns the NetworkPolicy of a component. It allows connections from all pods to the observed ports, with health and
// metrics, and from all sources to the Service's ports: clients may run in a node's network, which no selector matches. The policy
// applies to the pod network, not to the VLAN, because a NetworkPolicy applies to a pod's first interface.
func (in *Input) networkPolicy(component string, w *workload) runtime.Object {
	rules := []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}}}
	for _, port := range w.observed {
		rules[0].Ports = append(rules[0].Ports, policyPort(corev1.ProtocolTCP, port))
	}
	if len(w.ports) > 0 { // a rule without ports would allow all ports
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{})
		for _, p := range w.ports {
			rules[1].Ports = append(rules[1].Ports, policyPort(p.Protocol, p.Port))
		}
	}
	policy := ingressPolicy(in.meta(component, in.name(component)), metav1.LabelSelector{MatchLabels: in.labels(component)}, rules...)
	if w.egress != nil {
		policy.Spec.PolicyTypes, policy.Spec.Egress = append(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress), w.egress
	}
	return policy
}

// ingressPolicy returns a NetworkPolicy for the incoming connections of the selected pods.
func ingressPolicy(meta metav1.ObjectMeta, pods metav1.LabelSelector, rules ...networkingv1.NetworkPolicyIngressRule) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: pods, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: rules,
	}}
}

func policyPort(protocol corev1.Protocol, port int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt32(port))}
}

// Addresses maps each VLAN address of an Infra's enabled components to the names of the StatefulSets that use it, given the
// present StatefulSets: one name, or all proxy replicas for a floating address. It omits components with an invalid
// replica address, and invalid floating addresses.
func Addresses(infra *v1alpha1.Infra, present Sets) map[netip.Addr][]string {
	in := &Input{Infra: infra, Sets: present}
	all := map[netip.Addr][]string{}
	for _, c := range componentsOf(infra) {
		instances, err := in.instances(c)
		if !c.enabled || err != nil {
			continue
		}
		var names []string
		for _, i := range instances {
			names = append(names, i.name)
			for _, address := range i.addresses {
				all[address] = []string{i.name}
			}
		}
		if c.name == v1alpha1.ComponentProxy && in.hasFloatingAddress() {
			for _, address := range parseAddresses(in.floatingAddresses()...) {
				all[address] = names
			}
		}
	}
	return all
}

// parseAddresses returns the valid addresses without duplicates.
func parseAddresses(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		if a, err := v1alpha1.ParseAddress(text); err == nil && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// texts returns the addresses as texts.
func texts(addresses []netip.Addr) []string {
	var list []string
	for _, a := range addresses {
		list = append(list, a.String())
	}
	return list
}
