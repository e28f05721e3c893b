package control_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/control"
	"github.com/densityops/oooi/xdsd/internal/serve"
)

var management = lab.Shared{
	Config: lab.Config{Name: "management", CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi}},
}

func TestMain(m *testing.M) { lab.Main(m, &management) }

// site is a namespace with what control looks after.
type site struct {
	*testing.T

	cp        *lab.ControlPlane
	client    client.Client
	namespace string
	log       *lab.Output
	registry  *prometheus.Registry
}

// newSite starts control with its own rights and no others.
func newSite(t *testing.T) *site {
	s := &site{T: t, cp: management.Get(t), log: &lab.Output{}, registry: prometheus.NewRegistry()}
	s.namespace = s.cp.Namespace(t)
	rbac, err := os.ReadFile(filepath.Join("..", "..", "..", "manifests", "base", "control", "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: oooi-system}\n---\n" + string(rbac))
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	if s.client, err = client.New(s.cp.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs a replica until the returned function is called, or the test ends.
func (s *site) run() (stop func()) {
	s.Helper()
	kubeconfig, err := s.cp.UserKubeconfig("system:serviceaccount:oooi-system:oooi-control", "system:serviceaccounts")
	if err != nil {
		s.Fatal(err)
	}
	config := watch.Config{Kubeconfig: kubeconfig, Apps: &model.AppsOptions{}, Proxies: true}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	store, err := watch.Open(config, log)
	if err != nil {
		s.Fatal(err)
	}
	rest, err := watch.RESTConfig(config)
	if err != nil {
		s.Fatal(err)
	}
	m, err := control.New(control.Options{Config: rest, Store: store, Namespace: "oooi-system", Remains: &control.Remains{}, LeaseDuration: 4 * time.Second, ProbeInterval: time.Second / 2, HeartbeatInterval: time.Second, Registerer: s.registry, Log: log})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.Context())
	var group sync.WaitGroup
	group.Go(func() { store.Run(ctx) })
	group.Go(func() {
		if err := control.Run(ctx, m); err != nil {
			s.Errorf("control ended: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); group.Wait() })
	s.Cleanup(stop)
	return stop
}

func (s *site) apply(yaml string) {
	s.Helper()
	if err := s.cp.ApplyYAML(s.Context(), []byte(yaml)); err != nil {
		s.Fatal(err)
	}
}

// cluster is a hosted cluster with an Infra and its proxy.
func (s *site) cluster(components string) {
	s.Helper()
	s.apply(lab.HostedCluster{Namespace: s.namespace, Name: "demo", BaseDomain: s.namespace + ".example.com"}.YAML() + fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: %[1]s}
spec:
  hostedClusterRef: {name: demo, namespace: %[1]s}
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan}
  infraComponents: {%[2]s}
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: demo, namespace: %[1]s}
spec:
  infraRef: {name: demo}
  networkConfig: {serverIP: 192.0.2.3}
---
apiVersion: v1
kind: Service
metadata: {name: demo-proxy, namespace: %[1]s}
spec: {ports: [{port: 443}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s-demo}
---
apiVersion: v1
kind: Service
metadata: {name: kube-apiserver, namespace: %[1]s-demo}
spec: {ports: [{port: 6443}]}
`, s.namespace, components))
	s.Cleanup(func() { // others' names are not in the way of the next test
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), 30*time.Second)
		defer cancel()
		for _, o := range []client.Object{&v1alpha1.ProxyServer{}, &v1alpha1.Infra{}} {
			if err := s.client.DeleteAllOf(ctx, o, client.InNamespace(s.namespace)); err != nil {
				s.Error(err)
			}
		}
	})
}

// pod makes a pod of a component, as it is while it starts.
func (s *site) pod(name, component, ports string) {
	s.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %[2]s
  namespace: %[1]s
  labels: {app.kubernetes.io/component: %[3]s, hostedcluster.densityops.com/infra: demo, hostedcluster.densityops.com/%[4]s: demo}
  ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: demo-%[3]s, uid: 8d1c, controller: true}]
spec: {serviceAccountName: default, automountServiceAccountToken: false, containers: [{name: main, image: none, ports: [%[5]s]}]}
`, s.namespace, name, component, map[bool]string{true: "proxyserver", false: "other"}[component == "proxy"], ports))
}

// ready says of a pod what a kubelet would.
func (s *site) ready(name, ip string) {
	s.Helper()
	pod := &corev1.Pod{}
	if err := s.client.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, pod); err != nil {
		s.Fatal(err)
	}
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := s.client.Status().Update(s.Context(), pod); err != nil {
		s.Fatal(err)
	}
}

// report applies the entry of a replica as that replica does.
func (s *site) report(pod, fields string) {
	s.Helper()
	patch := fmt.Sprintf(`{"apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer", "metadata": {"name": "demo", "namespace": %q}, "status": {"replicas": [{"pod": %q, %s}]}}`,
		s.namespace, pod, fields)
	proxy := &v1alpha1.ProxyServer{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "demo"}}
	err := s.client.Status().Patch(s.Context(), proxy, client.RawPatch("application/apply-patch+yaml", []byte(patch)),
		client.FieldOwner(serve.ReplicaManager(pod)), client.ForceOwnership)
	if err != nil {
		s.Fatal(err)
	}
}

const healthy = `"observedGeneration": 1, "version": "v1", "acknowledged": "v1", "listeners": [{"port": 443, "ready": true}, {"port": 6443, "ready": true}],
	"backends": [{"name": "api", "endpoints": 2, "healthy": 2}]`

// condition waits for a condition of an object.
func (s *site) condition(object client.Object, kind string, status metav1.ConditionStatus, reason, message string) {
	s.Helper()
	name := fmt.Sprintf("%T %s=%s %s", object, kind, status, reason)
	s.await(name, func() string {
		conditions := s.conditions(object)
		c := meta.FindStatusCondition(conditions, kind)
		if c != nil && c.Status == status && c.Reason == reason && strings.Contains(c.Message, message) && c.ObservedGeneration == object.GetGeneration() {
			return ""
		}
		return fmt.Sprintf("%+v", conditions)
	})
}

func (s *site) conditions(object client.Object) []metav1.Condition {
	s.Helper()
	if err := s.client.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: "demo"}, object); err != nil {
		s.Fatal(err)
	}
	switch o := object.(type) {
	case *v1alpha1.Infra:
		return o.Status.Conditions
	case *v1alpha1.ProxyServer:
		return o.Status.Conditions
	default:
		s.Fatalf("%T has no conditions", o)
		return nil
	}
}

// await waits until a function finds nothing amiss.
func (s *site) await(what string, amiss func() string) {
	s.Helper()
	for end := time.Now().Add(lab.Patience); ; time.Sleep(50 * time.Millisecond) {
		why := amiss()
		if why == "" {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("waiting for %s: %s\n%s", what, why, s.log)
		}
	}
}

func TestProxyServerIsReadyWhenItsReplicasAre(t *testing.T) {
	s := newSite(t)
	s.cluster("proxy: {serverIP: 192.0.2.3}")
	s.run()
	proxy, ready, valid := &v1alpha1.ProxyServer{}, v1alpha1.ConditionReady, v1alpha1.ConditionConfigurationValid

	s.condition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonNoReplica, "kubectl oooi setup")
	s.pod("demo-proxy-0", "proxy", "")
	s.condition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonReplicaNotReady, "demo-proxy-0")
	s.ready("demo-proxy-0", "10.0.0.1")
	s.condition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonReplicaSilent, "--pod")
	s.report("demo-proxy-0", `"observedGeneration": 1, "version": "v1", "acknowledged": "v0"`)
	s.condition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonNotAcknowledged, "demo-proxy-0")
	s.condition(proxy, valid, metav1.ConditionUnknown, v1alpha1.ReasonNotAcknowledged, "")
	s.report("demo-proxy-0", strings.Replace(healthy, `"port": 443, "ready": true`, `"port": 443, "ready": false, "reason": "handshake failed"`, 1))
	s.condition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonListenerNotReady, "port 443: handshake failed")
	s.report("demo-proxy-0", healthy)
	s.condition(proxy, ready, metav1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "demo-proxy-0")
	s.condition(proxy, valid, metav1.ConditionTrue, v1alpha1.ReasonConfigApplied, "")
	s.report("demo-proxy-0", healthy+`, "heartbeatTime": "2026-01-01T00:00:00Z"`)
	s.condition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonReplicaSilent, "demo-proxy-0 last reported at 2026-01-01T00:00:00Z")
	s.report("demo-proxy-0", healthy+`, "heartbeatTime": "2026-01-01T00:00:09Z"`)
	s.condition(proxy, ready, metav1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "demo-proxy-0")
	s.report("demo-proxy-0", healthy)

	service := &corev1.Service{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "demo-proxy"}, service); err != nil {
		t.Fatal(err)
	}
	status := proxy.Status
	if status.ServiceIP != service.Spec.ClusterIP || status.ServiceName != "demo-proxy" || status.DeploymentName != "demo-proxy" ||
		status.ObservedGeneration != proxy.Generation || status.BackendCount < 1 {
		t.Errorf("the status is %+v, of a Service with %s", status, service.Spec.ClusterIP)
	}

	s.pod("demo-proxy-1", "proxy", "")
	s.ready("demo-proxy-1", "10.0.0.2")
	s.report("demo-proxy-1", strings.Replace(healthy, `"acknowledged": "v1"`, `"acknowledged": "v0", "nack": "listener: chain clusters/demo: no"`, 1))
	s.condition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonConfigRejected, "chain clusters/demo: no")
	s.condition(proxy, valid, metav1.ConditionFalse, v1alpha1.ReasonConfigRejected, "demo-proxy-1")
	s.await("an Event that names what was refused", func() string { return s.event("ProxyServer", v1alpha1.ReasonConfigRejected, "chain clusters/demo: no") })

	if n := testutil.CollectAndCount(s.registry, "xdsd_ready"); n != 2 {
		t.Errorf("%d objects have a metric", n)
	}

	// A pod that is gone takes its entry, and with it its verdict.
	if err := s.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "demo-proxy-1"}}, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.condition(proxy, ready, metav1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "demo-proxy-0")
	s.await("the entry to be gone", func() string { // a pod that is going has one
		s.conditions(proxy)
		if len(proxy.Status.Replicas) != 1 {
			return fmt.Sprintf("%+v", proxy.Status.Replicas)
		}
		return ""
	})

	// A spec that the replica has not seen is not served, whatever it says.
	before := proxy.DeepCopy()
	proxy.Spec.Backends = []v1alpha1.ProxyBackend{{Name: "late", Hostname: "api.demo." + s.namespace + ".example.com", Port: 6443, TargetService: "other", TargetNamespace: s.namespace}}
	proxy.Spec.Backends[0].TargetPort.IntVal = 443
	if err := s.client.Patch(t.Context(), proxy, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.condition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonReplicaBehind, "has observed generation 1, not 2")
	s.report("demo-proxy-0", strings.Replace(healthy, `"observedGeneration": 1`, `"observedGeneration": 2`, 1))
	s.condition(proxy, ready, metav1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "")
	s.condition(proxy, valid, metav1.ConditionFalse, string(model.ReasonNameConflict), "spec.backends[0] late")
}

// event returns nothing when there is an Event of this kind.
func (s *site) event(kind, reason, note string) string {
	s.Helper()
	var list eventsv1.EventList
	if err := s.client.List(s.Context(), &list, client.InNamespace(s.namespace)); err != nil {
		s.Fatal(err)
	}
	var all []string
	for _, e := range list.Items {
		if e.Regarding.Kind == kind && e.Reason == reason && strings.Contains(e.Note, note) {
			return ""
		}
		all = append(all, e.Regarding.Kind+" "+e.Reason+": "+e.Note)
	}
	return strings.Join(all, "\n")
}

func TestInfraIsReadyWhenItsPartsAnswer(t *testing.T) {
	s := newSite(t)
	s.cluster("dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.120}, dns: {serverIP: 192.0.2.2}, proxy: {serverIP: 192.0.2.3}")
	s.run()
	infra, ready := &v1alpha1.Infra{}, v1alpha1.ConditionReady
	s.condition(infra, v1alpha1.ConditionHostedClusterBound, metav1.ConditionTrue, "Bound", "HostedCluster "+s.namespace+"/demo")
	s.condition(infra, v1alpha1.ConditionNetworkValid, metav1.ConditionTrue, "Valid", "")
	s.condition(infra, v1alpha1.ConditionNamesServed, metav1.ConditionFalse, "DNSNotReady", "1 of 1 replicas have no pod")
	s.condition(infra, ready, metav1.ConditionFalse, "DNSNotReady", "DHCP: 1 of 1 replicas have no pod")

	server := newAnswers(t)
	dhcp := newReadiness(t)
	s.pod("demo-dns-0", "dns", "{name: dns, containerPort: "+server.port+", protocol: UDP}")
	s.ready("demo-dns-0", "127.0.0.1")
	s.condition(infra, v1alpha1.ConditionNamesServed, metav1.ConditionFalse, "DNSNotReady", "SERVFAIL")
	service := &corev1.Service{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "demo-proxy"}, service); err != nil {
		t.Fatal(err)
	}
	server.says("10.9.9.9")
	s.condition(infra, v1alpha1.ConditionNamesServed, metav1.ConditionFalse, "DNSNotReady", "answer [10.9.9.9], want ["+service.Spec.ClusterIP+"]")
	server.says(service.Spec.ClusterIP)
	s.condition(infra, v1alpha1.ConditionNamesServed, metav1.ConditionTrue, "Served", "")

	s.pod("demo-dhcp-0", "dhcp", "{name: health, containerPort: "+dhcp.port+"}")
	s.ready("demo-dhcp-0", "127.0.0.1")
	s.condition(infra, ready, metav1.ConditionFalse, "DHCPNotReady", "is not ready: not synced")
	dhcp.ready.Store(true)
	s.condition(infra, ready, metav1.ConditionFalse, "ProxyNotReady", "ProxyServer demo: no pod")
	s.pod("demo-proxy-0", "proxy", "")
	s.ready("demo-proxy-0", "10.0.0.1")
	s.report("demo-proxy-0", healthy)
	s.condition(infra, ready, metav1.ConditionTrue, "Ready", "")
	if c := infra.Status.ComponentStatus; c == nil || !c.DHCPReady || !c.DNSReady || !c.ProxyReady {
		t.Errorf("components are %+v", c)
	}
	s.await("an Event", func() string { return s.event("Infra", "Ready", "Ready: all enabled components") })

	dhcp.ready.Store(false)
	s.condition(infra, ready, metav1.ConditionFalse, "DHCPNotReady", "")
	if c := infra.Status.ComponentStatus; c.DHCPReady || !c.DNSReady {
		t.Errorf("components are %+v", c)
	}
}

// answers is a DNS server that says one thing.
type answers struct {
	port string
	says func(address string)
}

func newAnswers(t *testing.T) *answers {
	t.Helper()
	conn, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var address atomic.Pointer[string]
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetRcode(r, dns.RcodeServerFailure)
		if a := address.Load(); a != nil {
			m = new(dns.Msg).SetReply(r)
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 30}, A: net.ParseIP(*a)}}
		}
		_ = w.WriteMsg(m) // a client that is gone asks again
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.ActivateAndServe() // ends with Shutdown
	}()
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
		<-ended
	})
	port := conn.LocalAddr().(*net.UDPAddr).Port //nolint:errcheck // what else would it be
	return &answers{port: strconv.Itoa(port), says: func(a string) { address.Store(&a) }}
}

// readiness is a daemon's /readyz.
type readiness struct {
	port  string
	ready atomic.Bool
}

func newReadiness(t *testing.T) *readiness {
	t.Helper()
	r := &readiness{}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !r.ready.Load() {
			http.Error(w, "not synced", http.StatusServiceUnavailable)
		}
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // ends with Close
	}()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
	r.port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port) //nolint:errcheck // what else would it be
	return r
}
