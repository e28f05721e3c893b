package render_test

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
	"github.com/densityops/oooi/test/lab"
)

// A pod is the source or destination of a connection. The source is nil for a process in a node's network.
type pod struct {
	namespace string
	labels    map[string]string
}

// policies are the NetworkPolicies of a cluster in which namespaces have only the label with their name.
type policies []networkingv1.NetworkPolicy

// allowed reports whether the policies allow a connection. It fails the test if a policy uses a feature that is not
// evaluated here.
func (all policies) allowed(t *testing.T, from, to *pod, protocol corev1.Protocol, port int32) bool {
	t.Helper()
	isolated := false
	for i := range all {
		policy := &all[i]
		if policy.Namespace != to.namespace || !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) ||
			!matches(t, &policy.Spec.PodSelector, to.labels) {
			continue
		}
		isolated = true
		for _, rule := range policy.Spec.Ingress {
			if admitsPeer(t, policy, rule.From, from) && admitsPort(t, rule.Ports, protocol, port) {
				return true
			}
		}
	}
	return !isolated
}

func admitsPeer(t *testing.T, policy *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer, from *pod) bool {
	t.Helper()
	for _, p := range peers {
		if p.IPBlock != nil {
			t.Fatalf("%s: ipBlock, which is not evaluated here", policy.Name)
		}
		switch {
		case from == nil: // no selector matches a node
		case p.NamespaceSelector == nil && from.namespace != policy.Namespace:
		case p.NamespaceSelector != nil && !matches(t, p.NamespaceSelector, map[string]string{corev1.LabelMetadataName: from.namespace}):
		case p.PodSelector != nil && !matches(t, p.PodSelector, from.labels):
		default:
			return true
		}
	}
	return len(peers) == 0
}

func admitsPort(t *testing.T, ports []networkingv1.NetworkPolicyPort, protocol corev1.Protocol, port int32) bool {
	t.Helper()
	for _, p := range ports {
		if p.Port == nil || p.Port.Type != intstr.Int || p.EndPort != nil || p.Protocol == nil {
			t.Fatalf("port %v, which is not evaluated here", p)
		}
		if *p.Protocol == protocol && p.Port.IntVal == port {
			return true
		}
	}
	return len(ports) == 0
}

func matches(t *testing.T, selector *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	lab.Must(t, err)
	return s.Matches(labels.Set(set))
}

// example returns the objects that setup renders for manifests/examples/demo.
func example(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	root, err := lab.Root()
	lab.Must(t, err)
	folder := filepath.Join(root, "manifests", "examples", "demo")
	known, err := setup.ReadFiles([]string{filepath.Join(folder, "infra.yaml"), filepath.Join(folder, "cluster.yaml")}, nil, "default", nil)
	lab.Must(t, err)
	known.ControlPlane = true
	plan, err := setup.Make(known, render.Images{Oooi: "oooi", Envoy: "envoy"})
	lab.Must(t, err)
	return plan.Objects
}

// all returns the objects of a kind. It fails the test if there is none.
func all[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) []T {
	t.Helper()
	var list []T
	for _, o := range objects {
		if o.GetKind() != kind {
			continue
		}
		var one T
		lab.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &one, true))
		list = append(list, one)
	}
	if len(list) == 0 {
		t.Fatalf("no %s", kind)
	}
	return list
}

// podTemplates returns the pod templates of the example, by component.
func podTemplates(t *testing.T, objects []*unstructured.Unstructured) map[string]corev1.PodTemplateSpec {
	t.Helper()
	pods := map[string]corev1.PodTemplateSpec{}
	for _, d := range all[appsv1.Deployment](t, objects, "Deployment") {
		d.Spec.Template.Namespace = d.Namespace
		pods[d.Spec.Template.Labels["app.kubernetes.io/component"]] = d.Spec.Template
	}
	for _, s := range all[appsv1.StatefulSet](t, objects, "StatefulSet") {
		s.Spec.Template.Namespace = s.Namespace
		pods[s.Spec.Template.Labels["app.kubernetes.io/component"]] = s.Spec.Template
	}
	if got := slices.Sorted(maps.Keys(pods)); !slices.Equal(got, []string{"control", "dhcp", "dns", "proxy"}) {
		t.Fatalf("the example has pods of %q", got)
	}
	return pods
}

// open returns the ports of a pod that a source can reach. It checks the ports that policies name, and port 1 for all
// others.
func (all policies) open(t *testing.T, from, to *pod, protocol corev1.Protocol) []int32 {
	t.Helper()
	candidates := []int32{1}
	for _, policy := range all {
		for _, rule := range policy.Spec.Ingress {
			for _, p := range rule.Ports {
				candidates = append(candidates, p.Port.IntVal)
			}
		}
	}
	slices.Sort(candidates)
	return slices.DeleteFunc(slices.Compact(candidates), func(port int32) bool { return !all.allowed(t, from, to, protocol, port) })
}

// TestReachablePorts checks all ports of all pods. Ports that it does not list are closed, among them DHCP's and
// the ports of Envoy's admin interface.
func TestReachablePorts(t *testing.T) {
	objects := example(t)
	policies := policies(all[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy"))
	pods := podTemplates(t, objects)
	anyPod := &pod{"clusters-other", map[string]string{"app": "tenant"}}
	for component, want := range map[string]struct{ podTCP, podUDP, nodeTCP, nodeUDP []int32 }{
		"dns":     {podTCP: []int32{53, 8080, 8181, 9153, 9908}, podUDP: []int32{53}, nodeTCP: []int32{53}, nodeUDP: []int32{53}},
		"dhcp":    {podTCP: []int32{9903}},
		"proxy":   {podTCP: []int32{80, 443, 6443, 8091, 9901, 9902}, nodeTCP: []int32{80, 443, 6443, 8091}},
		"control": {podTCP: []int32{9904}},
	} {
		to := &pod{pods[component].Namespace, pods[component].Labels}
		for _, c := range []struct {
			from     *pod
			source   string
			protocol corev1.Protocol
			want     []int32
		}{
			{anyPod, "a pod", corev1.ProtocolTCP, want.podTCP}, {anyPod, "a pod", corev1.ProtocolUDP, want.podUDP},
			{nil, "a node", corev1.ProtocolTCP, want.nodeTCP}, {nil, "a node", corev1.ProtocolUDP, want.nodeUDP},
			{anyPod, "a pod", corev1.ProtocolSCTP, nil}, {nil, "a node", corev1.ProtocolSCTP, nil},
		} {
			if got := policies.open(t, c.from, to, c.protocol); !slices.Equal(got, c.want) {
				t.Errorf("%s: %s reaches %s ports %v, want %v", component, c.source, c.protocol, got, c.want)
			}
		}
	}
}

// TestOfferedPortsAreAdmitted compares the policies with pods and Services: other pods must reach each container
// port, and all sources each port of a Service.
func TestOfferedPortsAreAdmitted(t *testing.T) {
	objects := example(t)
	policies := policies(all[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy"))
	pods := podTemplates(t, objects)
	prometheus := &pod{"monitoring", map[string]string{"app": "prometheus"}}
	for component, template := range pods {
		for _, c := range template.Spec.Containers {
			for _, p := range c.Ports {
				if p.Name == "dhcp" || p.Name == "envoy-health" {
					continue // served on the VLAN, and to the kubelet of the node, which no policy restricts
				}
				if !policies.allowed(t, prometheus, &pod{template.Namespace, template.Labels}, cmp.Or(p.Protocol, corev1.ProtocolTCP), p.ContainerPort) {
					t.Errorf("%s: port %s of container %s is closed to pods", component, p.Name, c.Name)
				}
			}
		}
	}
	for _, s := range all[corev1.Service](t, objects, "Service") {
		template := pods[s.Labels["app.kubernetes.io/component"]]
		for _, p := range s.Spec.Ports {
			if !policies.allowed(t, nil, &pod{template.Namespace, template.Labels}, p.Protocol, p.Port) {
				t.Errorf("Service %s: port %d is closed", s.Name, p.Port)
			}
		}
	}
}

// TestPoliciesSelectOnlyOurPods checks that the policies do not select other pods in the same namespaces.
func TestPoliciesSelectOnlyOurPods(t *testing.T) {
	objects := example(t)
	policies := policies(all[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy"))
	for component, template := range podTemplates(t, objects) {
		another := maps.Clone(template.Labels)
		another["hostedcluster.densityops.com/infra"] = "another"
		if component == "control" {
			another = map[string]string{"app.kubernetes.io/part-of": "oooi"}
		}
		if !policies.allowed(t, nil, &pod{template.Namespace, another}, corev1.ProtocolTCP, 12345) {
			t.Errorf("%s: the policies select a pod with the labels %v", component, another)
		}
	}
}

// TestControlPlanePolicyAllowsProxy checks the policy in the control plane's namespace: it allows only the proxy, and
// only to the ports of its backends.
func TestControlPlanePolicyAllowsProxy(t *testing.T) {
	objects := example(t)
	policies := policies(all[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy"))
	pods := podTemplates(t, objects)
	oauth := &pod{"clusters-demo", map[string]string{"app": "oauth-openshift"}}
	proxy := &pod{pods["proxy"].Namespace, pods["proxy"].Labels}
	if got, want := policies.open(t, proxy, oauth, corev1.ProtocolTCP), []int32{6443, 8091, 8443, 9443}; !slices.Equal(got, want) {
		t.Errorf("the proxy reaches ports %v, want %v", got, want)
	}
	for source, from := range map[string]*pod{
		"a node": nil, "the same labels in another namespace": {"other", proxy.labels}, "DNS": {pods["dns"].Namespace, pods["dns"].Labels},
	} {
		if got := policies.open(t, from, oauth, corev1.ProtocolTCP); len(got) > 0 {
			t.Errorf("%s reaches ports %v", source, got)
		}
	}
}

// TestHyperShiftPoliciesExcludeTheProxy evaluates the policies that HyperShift creates for a control plane. Unless
// they allow all sources, the proxy must reach the pods of the control plane only with the policy that setup creates.
func TestHyperShiftPoliciesExcludeTheProxy(t *testing.T) {
	objects := example(t)
	setupPolicies := policies(all[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy"))
	template := all[appsv1.StatefulSet](t, objects, "StatefulSet")
	at := slices.IndexFunc(template, func(s appsv1.StatefulSet) bool { return s.Name == "demo-proxy" })
	proxy := &pod{template[at].Namespace, template[at].Spec.Template.Labels}
	var hypershiftPolicies policies
	stream, err := lab.ParseYAML([]byte(lab.HostedCluster{Namespace: "clusters", Name: "demo"}.NetworkPolicies()))
	lab.Must(t, err)
	hypershiftPolicies = append(hypershiftPolicies, all[networkingv1.NetworkPolicy](t, stream, "NetworkPolicy")...)
	if len(hypershiftPolicies) != 4 {
		t.Fatalf("HyperShift has %d policies", len(hypershiftPolicies))
	}
	for _, tc := range []struct {
		app  string
		port int32
		// open is set if HyperShift's policies allow all sources.
		open bool
	}{{"kube-apiserver", 6443, true}, {"kube-apiserver", 8091, false}, {"oauth-openshift", 6443, false}, {"ignition-server-proxy", 8443, false}} {
		to := &pod{"clusters-demo", map[string]string{"app": tc.app}}
		if got := hypershiftPolicies.allowed(t, proxy, to, corev1.ProtocolTCP, tc.port); got != tc.open {
			t.Errorf("without the policy of setup, the proxy reaches %s:%d: %t", tc.app, tc.port, got)
		}
		if !append(slices.Clone(hypershiftPolicies), setupPolicies...).allowed(t, proxy, to, corev1.ProtocolTCP, tc.port) {
			t.Errorf("the proxy does not reach %s:%d", tc.app, tc.port)
		}
	}
}

// TestProxyReachesPublishedServices evaluates the policies that HyperShift and setup write for each publishing strategy. The pods
// have the labels that the Services select.
func TestProxyReachesPublishedServices(t *testing.T) {
	objects := example(t)
	setupPolicies := policies(all[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy"))
	proxy := &pod{podTemplates(t, objects)["proxy"].Namespace, podTemplates(t, objects)["proxy"].Labels}
	podPorts := map[string]int32{"kube-apiserver": 6443, "oauth-openshift": 6443, "ignition-server-proxy": 8443, "konnectivity-server": 8091, "metrics-proxy": 9443}
	for _, name := range lab.HyperShiftCases {
		_, controlPlane := lab.HyperShiftObjects(t, name)
		written := policies(all[networkingv1.NetworkPolicy](t, controlPlane, "NetworkPolicy"))
		checked := 0
		for _, s := range all[corev1.Service](t, controlPlane, "Service") {
			port, ok := podPorts[s.Name]
			if !ok {
				continue // HyperShift's own router
			}
			checked++
			if !append(slices.Clone(written), setupPolicies...).allowed(t, proxy, &pod{s.Namespace, s.Spec.Selector}, corev1.ProtocolTCP, port) {
				t.Errorf("%s: the proxy does not reach %s", name, s.Name)
			}
		}
		if checked != len(podPorts) || len(written) < 4 {
			t.Errorf("%s: %d Services, %d NetworkPolicies", name, checked, len(written))
		}
	}
	// The policies of the lab are those for the strategies without a Route of the API server and without node ports.
	_, controlPlane := lab.HyperShiftObjects(t, "load-balancer")
	stream, err := lab.ParseYAML([]byte(lab.HostedCluster{Namespace: "clusters", Name: "demo"}.NetworkPolicies()))
	lab.Must(t, err)
	want := map[string]networkingv1.NetworkPolicySpec{}
	for _, p := range all[networkingv1.NetworkPolicy](t, controlPlane, "NetworkPolicy") {
		want[p.Name] = p.Spec
	}
	delete(want, "virt-launcher")
	got := map[string]networkingv1.NetworkPolicySpec{}
	for _, p := range all[networkingv1.NetworkPolicy](t, stream, "NetworkPolicy") {
		got[p.Name] = p.Spec
	}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("the lab's policies are %+v\nwant HyperShift's, %+v", got, want)
	}
}

// TestStandaloneProxyPorts checks the policy of a standalone proxy, whose pods lack an Infra's label.
func TestStandaloneProxyPorts(t *testing.T) {
	known, err := setup.ReadFiles([]string{"testdata/standalone.yaml"}, nil, "default", nil)
	lab.Must(t, err)
	plan, err := setup.Make(known, render.Images{Oooi: "oooi", Envoy: "envoy"})
	lab.Must(t, err)
	policies := policies(all[networkingv1.NetworkPolicy](t, plan.Objects, "NetworkPolicy"))
	template := all[appsv1.StatefulSet](t, plan.Objects, "StatefulSet")[0].Spec.Template
	to := &pod{"clusters", template.Labels}
	if got, want := policies.open(t, &pod{namespace: "monitoring"}, to, corev1.ProtocolTCP), []int32{5000, 9901, 9902}; !slices.Equal(got, want) {
		t.Errorf("a pod reaches ports %v, want %v", got, want)
	}
	if got, want := policies.open(t, nil, to, corev1.ProtocolTCP), []int32{5000}; !slices.Equal(got, want) {
		t.Errorf("a node reaches ports %v, want %v", got, want)
	}
	for source, from := range map[string]*pod{"a pod": {namespace: "monitoring"}, "a node": nil} {
		if got, want := policies.open(t, from, to, corev1.ProtocolUDP), []int32{53}; !slices.Equal(got, want) {
			t.Errorf("%s reaches UDP ports %v, want %v", source, got, want)
		}
	}
}
