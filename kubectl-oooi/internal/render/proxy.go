package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// proxy returns the workload with Envoy and xdsd serve.
func proxy(in *Input, instances []instance) (*workload, error) {
	w := &workload{
		objects: []runtime.Object{in.ProxyServer}, rules: in.proxyRules(), ports: in.proxyPorts(), observed: []int32{9901, servePort},
		privileged: in.hasFloatingAddress(), egress: in.egressRules(),
		lowest: 80, // Envoy opens ports of later backends from there without another pod
	}
	if in.hasFloatingAddress() {
		lease := in.meta(v1alpha1.ComponentProxy, FloatingLease(in.Infra)) // xdsd hold writes the spec
		w.objects = append(w.objects, object(coordinationv1.SchemeGroupVersion.WithKind("Lease"), lease, map[string]any{}))
		w.rules = append(w.rules, allow(lease.Namespace, "coordination.k8s.io", "leases", []string{"get", "watch", "update"}, lease.Name))
		w.observed = append(w.observed, holderPort)
		if in.OpenShift {
			w.objects = append(w.objects, in.securityContextConstraints())
			w.rules = append(w.rules, allow(in.Infra.Namespace, "security.openshift.io", "securitycontextconstraints", []string{"use"}, in.constraints()))
		}
	}
	for _, p := range w.ports {
		w.lowest = min(w.lowest, int64(p.Port))
	}
	for _, namespace := range append([]string{in.ControlPlane}, in.BackendControlPlanes...) {
		if namespace != "" {
			w.objects = append(w.objects, in.controlPlanePolicy(namespace))
		}
	}
	for _, i := range instances {
		w.pods = append(w.pods, in.proxyPod(i, instances))
	}
	return w, nil
}

// OwnProxyServer returns the ProxyServer that setup creates for an Infra, with defaults set; without address if the Infra disables
// the proxy.
func OwnProxyServer(infra *v1alpha1.Infra) *v1alpha1.ProxyServer {
	server, ok := objects.Decode[v1alpha1.ProxyServer](proxyServerOf(infra)).(*v1alpha1.ProxyServer)
	if !ok {
		panic("decoding the default ProxyServer failed") // impossible: all fields are strings
	}
	server.Default()
	return server
}

// proxyServerOf returns the default ProxyServer of an Infra as it is applied, without defaults set.
func proxyServerOf(infra *v1alpha1.Infra) *unstructured.Unstructured {
	meta := metav1.ObjectMeta{Namespace: infra.Namespace, Name: infra.Name}
	serverIP := ""
	if proxy := infra.Spec.InfraComponents.Proxy; proxy != nil {
		serverIP = proxy.ServerIP
	}
	return object(v1alpha1.SchemeGroupVersion.WithKind("ProxyServer"), meta, map[string]any{"spec": map[string]any{
		"infraRef":      map[string]any{"name": infra.Name},
		"networkConfig": map[string]any{"serverIP": serverIP},
	}})
}

// proxyRules returns the permissions of xdsd serve.
func (in *Input) proxyRules() []rule {
	namespace, name := in.ProxyServer.GetNamespace(), in.ProxyServer.GetName()
	rules := []rule{
		allow(namespace, v1alpha1.GroupName, "proxyservers/status", []string{"patch"}, name), allow(namespace, v1alpha1.GroupName, "proxyservers", readVerbs, name),
	}
	endpoints := func(namespace string) rule { return allow(namespace, "discovery.k8s.io", "endpointslices", readVerbs) }
	if !in.standalone() {
		rules = slices.Concat(in.readRules(), rules, []rule{endpoints(in.ControlPlane)})
	}
	for _, namespace := range in.backendNamespaces() {
		rules = append(rules, allow(namespace, "", "services", readVerbs), endpoints(namespace))
	}
	return rules
}

// backendNamespaces returns the namespaces of the ProxyServer's backends, other than the control plane's.
func (in *Input) backendNamespaces() []string {
	var list []string
	for _, b := range in.ProxySpec.Backends {
		if b.TargetNamespace != "" && b.TargetNamespace != in.ControlPlane {
			list = append(list, b.TargetNamespace)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// proxyPorts returns the ports of the proxy's Service: the ports of its listeners, of apps ingress, and of every control
// plane.
func (in *Input) proxyPorts() []corev1.ServicePort {
	var numbers, datagrams []int32
	if !in.standalone() {
		numbers = append(numbers, 443, 6443)
	}
	if apps := in.Infra.Spec.AppsIngress; apps.IsEnabled() {
		ports := apps.EffectivePorts()
		numbers = append(numbers, ports.HTTP, ports.HTTPS)
	}
	if p := in.Snapshot.ProxyServer(in.proxyKey()); p != nil {
		for _, l := range p.Listeners {
			if l.UDP {
				datagrams = append(datagrams, l.Port)
			} else {
				numbers = append(numbers, l.Port)
			}
		}
	}
	slices.Sort(numbers)
	var ports []corev1.ServicePort
	for _, n := range slices.Compact(numbers) {
		ports = append(ports, corev1.ServicePort{Name: fmt.Sprintf("port-%d", n), Port: n, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(n)})
	}
	for _, n := range datagrams {
		ports = append(ports, corev1.ServicePort{Name: fmt.Sprintf("udp-%d", n), Port: n, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(n)})
	}
	return ports
}

// proxyKey returns the key of the ProxyServer in the model, "namespace/name".
func (in *Input) proxyKey() string {
	return in.ProxyServer.GetNamespace() + "/" + in.ProxyServer.GetName()
}

// proxyPod returns the pod spec: Envoy with the configuration that xdsd bootstrap writes, and xdsd serve, which share
// Unix sockets.
func (in *Input) proxyPod(i instance, all []instance) corev1.PodSpec {
	spec := in.Infra.Spec.InfraComponents.Proxy
	oooi := cmp.Or(spec.Image, in.ProxySpec.Image, in.Images.Oooi)
	envoyResources := resources(cmp.Or(spec.Resources, in.ProxySpec.Resources), "100m", "96Mi")
	xdsdResources := cmp.Or(spec.XDSDResources, in.ProxySpec.XDSDResources)
	sockets := []corev1.VolumeMount{{Name: "xdsd", MountPath: "/run/xdsd"}, {Name: "envoy", MountPath: "/run/envoy"}}
	grace := cmp.Or(spec.TerminationGracePeriodSeconds, v1alpha1.DefaultProxyTerminationGracePeriod)
	bootstrapLimits, serveLimits, holdLimits := in.proxyLimits()
	bootstrap := []string{
		"/xdsd", "bootstrap", "--proxy-server", in.proxyKey(), "--node-id", "$(POD_NAME)", "--metrics-address", "$(POD_IP),127.0.0.1",
		"--node-address", "$(HOST_IP)", "--file", "/run/envoy/envoy.yaml",
	}
	// Envoy opens its ports when it receives its first configuration, and a restart would not help, so it may take a day.
	startup := &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(portEnvoyHealth)}},
		PeriodSeconds: 2, TimeoutSeconds: 3, FailureThreshold: 43200,
	}
	pod := corev1.PodSpec{
		TerminationGracePeriodSeconds: new(grace),
		InitContainers: []corev1.Container{restrictedContainer(corev1.Container{
			Name: "bootstrap", Image: oooi, Env: []corev1.EnvVar{podIP, podName, hostIP, envoyMemory}, Command: append(bootstrap, bootstrapLimits...),
			VolumeMounts: sockets, Resources: resources(xdsdResources, "10m", "32Mi"),
		})},
		Containers: []corev1.Container{
			restrictedContainer(corev1.Container{
				Name: "envoy", Image: cmp.Or(spec.ProxyImage, in.ProxySpec.ProxyImage, in.Images.Envoy),
				// The image's entrypoint would fail: it changes the owner of /dev/stdout.
				Command: []string{"envoy", "-c", "/run/envoy/envoy.yaml", "--disable-hot-restart", "--drain-time-s", "30",
					"--concurrency", fmt.Sprint(in.workerThreads(&envoyResources))},
				Ports:          []corev1.ContainerPort{tcpPort("envoy", 9901), tcpPort(portEnvoyHealth, 9907)},
				ReadinessProbe: httpProbe("/ready", portEnvoyHealth, 2), LivenessProbe: httpProbe("/healthz", portEnvoyHealth, 10), StartupProbe: startup,
				Env:       in.parentProxyCredentials(),
				Resources: envoyResources, VolumeMounts: sockets, Lifecycle: preStop("/prestop/envoy"),
			}),
			restrictedContainer(corev1.Container{
				Name: "xdsd", Image: oooi, Env: []corev1.EnvVar{podIP, podName}, Command: append(in.serveCommand(i, grace), serveLimits...),
				Ports:          []corev1.ContainerPort{tcpPort(v1alpha1.PortHealth, servePort)},
				ReadinessProbe: httpProbe("/readyz", v1alpha1.PortHealth, 2), LivenessProbe: httpProbe("/healthz", v1alpha1.PortHealth, 10),
				Resources:    resources(xdsdResources, "50m", "64Mi"),
				VolumeMounts: append(slices.Clone(sockets), corev1.VolumeMount{Name: "state", MountPath: "/var/lib/xdsd"}, tokenMount),
			}),
		},
		Volumes: []corev1.Volume{emptyDir("xdsd", corev1.StorageMediumMemory), emptyDir("envoy", corev1.StorageMediumMemory),
			emptyDir("state", corev1.StorageMediumDefault), tokenVolume()},
	}
	if servers := in.ProxySpec.NetworkConfig.DNS; len(servers) > 0 { // otherwise the cluster DNS
		pod.DNSPolicy, pod.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: servers}
	}
	if in.hasFloatingAddress() {
		pod.Containers = append(pod.Containers, in.holder(oooi, xdsdResources, holdLimits, i, all))
		pod.Volumes = append(pod.Volumes, emptyDir("holder", corev1.StorageMediumDefault))
	}
	return pod
}

// serveCommand returns the command of xdsd serve, without limits.
func (in *Input) serveCommand(i instance, grace int64) []string {
	var infra, hosted, drain string
	var floating, own, namespaces []string
	if !in.standalone() {
		infra = in.key()
	}
	if in.hasFloatingAddress() {
		floating, own = in.floatingAddresses(), sources(i.addresses)
	}
	if seconds := grace - v1alpha1.ProxyHandover; seconds > 0 {
		drain = fmt.Sprintf("%ds", seconds)
	}
	if in.HostedCluster.Name != "" && in.ControlPlane != "" {
		hosted = in.HostedCluster.String()
	}
	if hosted != "" || in.standalone() {
		namespaces = in.backendNamespaces()
	}
	return slices.Concat(
		[]string{"/xdsd", "serve", "--proxy-server", in.proxyKey()}, option("--infra", infra),
		[]string{"--pod", "$(POD_NAME)", "--http", fmt.Sprintf("$(POD_IP):%d", servePort)}, option("--bind", append(texts(i.addresses), "$(POD_IP)")...),
		[]string{"--snapshot", "/var/lib/xdsd/proxy.json"}, option("--floating", floating...), option("--source", own...),
		option("--drain-time", drain), option("--hosted-cluster", hosted), option("--namespace", namespaces...),
	)
}

// defaultWorkerThreads is the number of Envoy's worker threads without a CPU limit. With Envoy's default, one thread for each
// CPU of the node, memory use would depend on the node.
const defaultWorkerThreads = 4

// workerThreads returns the number of Envoy's worker threads, for the resources of its container.
func (in *Input) workerThreads(r *corev1.ResourceRequirements) int64 {
	threads := cmp.Or(in.Infra.Spec.InfraComponents.Proxy.WorkerThreads, in.ProxySpec.WorkerThreads)
	if threads != nil {
		return int64(*threads)
	}
	return cmp.Or(r.Limits.Cpu().Value(), defaultWorkerThreads) // Value rounds up
}

// portEnvoyHealth is the name of the port on which only the kubelet probes Envoy: no NetworkPolicy allows other clients.
const portEnvoyHealth = "envoy-health"

// servePort is the port of xdsd serve's HTTP endpoints.
const servePort = 9902

// preStop returns a hook that requests an HTTP path from xdsd serve, which responds when the container may terminate.
func preStop(page string) *corev1.Lifecycle {
	return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: page, Port: intstr.FromInt32(servePort)}}}
}

// controlPlanePolicy returns a NetworkPolicy that allows traffic from the proxy's pods to the control plane in a namespace, where
// HyperShift's policies allow only its router. NetworkPolicies are additive, so the policy restricts nothing there; in another
// namespace, it would isolate pods that no policy selects.
func (in *Input) controlPlanePolicy(namespace string) runtime.Object {
	var ports []networkingv1.NetworkPolicyPort
	for _, n := range []int32{6443, 8091, 8443, 9443} { // API server and OAuth, konnectivity, ignition, metrics proxy
		ports = append(ports, policyPort(corev1.ProtocolTCP, n))
	}
	meta := metav1.ObjectMeta{
		Namespace: namespace, Name: strings.Join([]string{partOf, in.Infra.Namespace, in.name("proxy")}, "-"), Labels: in.labels(v1alpha1.ComponentProxy),
	}
	return ingressPolicy(meta, metav1.LabelSelector{}, networkingv1.NetworkPolicyIngressRule{
		From: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: in.Infra.Namespace}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: in.labels(v1alpha1.ComponentProxy)},
		}},
		Ports: ports,
	})
}
