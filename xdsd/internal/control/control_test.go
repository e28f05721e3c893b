package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/control"
	"github.com/densityops/oooi/xdsd/internal/serve"
)

var management = lab.Shared{
	Config: lab.Config{Name: "management", CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi}},
}

func TestMain(m *testing.M) { lab.Main(m, &management) }

// site is a namespace of the management cluster with the objects of one test.
type site struct {
	*testing.T

	cp        *lab.ControlPlane
	client    client.Client
	namespace string
	log       *lab.Output
	registry  *prometheus.Registry
	// changeTime is the ChangeTime of control.
	changeTime time.Duration
	// problems are what control finds.
	problems *control.Problems
}

// newSite returns a site with control's RBAC applied. Control does not run yet.
func newSite(t *testing.T) *site {
	cp := management.Get(t)
	s := &site{T: t, cp: cp, client: cp.Client(t), log: &lab.Output{}, registry: prometheus.NewRegistry(), problems: &control.Problems{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.log)
		}
	})
	s.namespace = cp.Namespace(t)
	s.cp.MustApply(s, "apiVersion: v1\nkind: Namespace\nmetadata: {name: oooi-system}\n---\n"+string(lab.ReadFile(t, "manifests", "base", "control", "rbac.yaml")))
	return s
}

// controlKubeconfig returns a kubeconfig with the rights of control's ServiceAccount.
func (s *site) controlKubeconfig() string {
	s.Helper()
	file, err := s.cp.UserKubeconfig("system:serviceaccount:oooi-system:oooi-control", "system:serviceaccounts")
	lab.Must(s, err)
	return file
}

// startControl runs a replica with the rights of its ServiceAccount until stop is called or the test ends.
func (s *site) startControl() (stop func()) {
	s.Helper()
	file := s.controlKubeconfig()
	return s.startControlWith(file, file)
}

// startControlWith is startControl with one kubeconfig for the Store and one for the manager.
func (s *site) startControlWith(storeConfig, managerConfig string) (stop func()) {
	s.Helper()
	log := slog.New(slog.NewTextHandler(s.log, nil))
	store, err := watch.Open(watch.Config{Kubeconfig: storeConfig, Apps: &model.AppsOptions{}, Proxies: true, Statuses: true}, log)
	lab.Must(s, err)
	rest, err := kubeconfig.RESTConfig(managerConfig, "")
	lab.Must(s, err)
	m, err := control.New(control.Options{Config: rest, Store: store, Namespace: "oooi-system", Problems: s.problems, LeaseDuration: 4 * time.Second, ProbeInterval: time.Second / 2, HeartbeatInterval: time.Second, ChangeTime: s.changeTime, Registerer: s.registry, Log: log})
	lab.Must(s, err)
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

// applyCluster creates a HostedCluster, an Infra with only these components, and its ProxyServer.
func (s *site) applyCluster(components string) {
	s.Helper()
	site := lab.Site{Namespace: s.namespace, BaseDomain: s.namespace + ".example.com"}
	s.cp.MustApply(s, site.Namespaces(), site.HostedCluster().YAML(), site.ProxyServer("spec: {networkConfig: {serverIP: 192.0.2.3}}"),
		site.Infra("spec: {infraComponents: {dhcp: null, dns: null, proxy: null}}", "spec: {infraComponents: {"+components+"}}"),
		lab.Service(s.namespace, "demo-proxy", 443), lab.Service(site.ControlPlaneNamespace(), "kube-apiserver", 6443))
	s.Cleanup(func() { // their names must not conflict with those of the next test
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), 30*time.Second)
		defer cancel()
		for _, o := range []client.Object{&v1alpha1.ProxyServer{}, &v1alpha1.Infra{}} {
			lab.Report(s, s.client.DeleteAllOf(ctx, o, client.InNamespace(s.namespace)))
		}
	})
}

// applyPod creates a pod of a component, which is not ready.
func (s *site) applyPod(name, component, ports string) {
	s.Helper()
	s.cp.MustApply(s, fmt.Sprintf(`
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

// setPodReady sets the status of a pod as a kubelet does whose readiness probe succeeds.
func (s *site) setPodReady(name, ip string) {
	s.setPodCondition(name, ip, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
}

// setPodCondition sets the status of a running pod as a kubelet does.
func (s *site) setPodCondition(name, ip string, ready corev1.PodCondition) {
	s.Helper()
	pod := &corev1.Pod{}
	lab.Must(s, s.client.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, pod))
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
	pod.Status.Conditions = []corev1.PodCondition{ready}
	lab.Must(s, s.client.Status().Update(s.Context(), pod))
}

// applyReplicaStatus applies a replica's entry in the status as that replica does.
func (s *site) applyReplicaStatus(pod, fields string) {
	s.Helper()
	patch := fmt.Sprintf(`{"apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer", "metadata": {"name": "demo", "namespace": %q}, "status": {"replicas": [{"pod": %q, %s}]}}`,
		s.namespace, pod, fields)
	proxy := &v1alpha1.ProxyServer{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "demo"}}
	err := s.client.Status().Patch(s.Context(), proxy, client.RawPatch("application/apply-patch+yaml", []byte(patch)),
		client.FieldOwner(serve.ReplicaManager(pod)), client.ForceOwnership)
	lab.Must(s, err)
}

const healthyReplica = `"observedGeneration": 1, "version": "v1", "acknowledged": "v1", "listeners": [{"port": 443, "ready": true}, {"port": 6443, "ready": true}],
	"backends": [{"name": "api", "endpoints": 2, "healthy": 2}]`

// waitForCondition waits for a condition of the object named demo.
func (s *site) waitForCondition(object client.Object, kind string, status metav1.ConditionStatus, reason, message string) {
	s.Helper()
	name := fmt.Sprintf("%T %s=%s %s", object, kind, status, reason)
	lab.Await(s, name, func() string {
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
	lab.Must(s, s.client.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: "demo"}, object))
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

// TestProxyServerStaysReadyWhileAChangeIsApplied changes the spec of a ready ProxyServer, whose replica applies the change
// step by step, and then one that it never applies.
func TestProxyServerStaysReadyWhileAChangeIsApplied(t *testing.T) {
	s := newSite(t)
	s.changeTime = time.Hour
	s.applyCluster("proxy: {serverIP: 192.0.2.3}")
	stop := s.startControl()
	proxy, ready, valid := &v1alpha1.ProxyServer{}, v1alpha1.ConditionReady, v1alpha1.ConditionConfigurationValid
	s.applyPod("demo-proxy-0", "proxy", "")
	s.setPodReady("demo-proxy-0", "10.0.0.1")
	s.applyReplicaStatus("demo-proxy-0", healthyReplica)
	s.waitForCondition(proxy, ready, metav1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "demo-proxy-0")
	since := meta.FindStatusCondition(proxy.Status.Conditions, ready).LastTransitionTime
	change := func(level string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec": {"logLevel": %q}}`, level))
		lab.Must(t, s.client.Patch(t.Context(), proxy, patch))
	}
	staysReady := func(generation int64) {
		t.Helper()
		c := meta.FindStatusCondition(proxy.Status.Conditions, ready)
		if c.Status != metav1.ConditionTrue || c.ObservedGeneration != generation || proxy.Status.ObservedGeneration != generation || !c.LastTransitionTime.Equal(&since) {
			t.Errorf("the status is %+v, want that of generation %d", proxy.Status, generation)
		}
	}
	change("debug")
	s.waitForCondition(proxy, valid, metav1.ConditionTrue, v1alpha1.ReasonConfigApplied, "")
	staysReady(1)
	replica := strings.Replace(healthyReplica, `"observedGeneration": 1, "version": "v1"`, `"observedGeneration": 2, "version": "v2"`, 1)
	s.applyReplicaStatus("demo-proxy-0", replica)
	s.waitForCondition(proxy, valid, metav1.ConditionUnknown, v1alpha1.ReasonNotAcknowledged, "")
	staysReady(1)
	s.applyReplicaStatus("demo-proxy-0", strings.Replace(replica, `"acknowledged": "v1"`, `"acknowledged": "v2"`, 1))
	s.waitForCondition(proxy, ready, metav1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "demo-proxy-0")
	staysReady(2)

	stop()
	s.changeTime, s.registry = time.Second, prometheus.NewRegistry()
	s.startControl()
	change("info")
	s.waitForCondition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonReplicaBehind, "has observed generation 2, not 3")
}

func TestProxyServerIsReadyWhenItsReplicasAre(t *testing.T) {
	s := newSite(t)
	s.applyCluster("proxy: {serverIP: 192.0.2.3}")
	s.startControl()
	proxy, ready, valid := &v1alpha1.ProxyServer{}, v1alpha1.ConditionReady, v1alpha1.ConditionConfigurationValid

	s.waitForCondition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonNoReplica, "OOOI-POD-001")
	s.applyPod("demo-proxy-0", "proxy", "")
	s.waitForCondition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonReplicaNotReady, "demo-proxy-0")
	s.setPodReady("demo-proxy-0", "10.0.0.1")
	s.waitForCondition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonReplicaSilent, "--pod")
	s.applyReplicaStatus("demo-proxy-0", `"observedGeneration": 1, "version": "v1", "acknowledged": "v0"`)
	s.waitForCondition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonNotAcknowledged, "demo-proxy-0")
	s.waitForCondition(proxy, valid, metav1.ConditionUnknown, v1alpha1.ReasonNotAcknowledged, "")
	s.applyReplicaStatus("demo-proxy-0", strings.Replace(healthyReplica, `"port": 443, "ready": true`, `"port": 443, "ready": false, "reason": "handshake failed"`, 1))
	s.waitForCondition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonListenerNotReady, "port 443: handshake failed")
	s.applyReplicaStatus("demo-proxy-0", healthyReplica)
	s.waitForCondition(proxy, ready, metav1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "demo-proxy-0")
	s.waitForCondition(proxy, valid, metav1.ConditionTrue, v1alpha1.ReasonConfigApplied, "")
	s.applyReplicaStatus("demo-proxy-0", strings.Replace(healthyReplica, `"backends": [`, `"backends": [{"name": "new", "endpoints": 0, "healthy": 0, "reason": "the proxy does not read namespace tools: run 'kubectl oooi setup'"}, `, 1))
	s.waitForCondition(proxy, valid, metav1.ConditionFalse, string(model.ReasonNamespaceOutOfScope), "backend new: the proxy does not read namespace tools: run 'kubectl oooi setup'")
	s.applyReplicaStatus("demo-proxy-0", healthyReplica+`, "heartbeatTime": "2026-01-01T00:00:00Z"`)
	s.waitForCondition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonReplicaSilent, "demo-proxy-0 last reported at 2026-01-01T00:00:00Z")
	s.applyReplicaStatus("demo-proxy-0", healthyReplica+`, "heartbeatTime": "2026-01-01T00:00:09Z"`)
	s.waitForCondition(proxy, ready, metav1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "demo-proxy-0")
	within := v1alpha1.ConditionWithinLimits
	s.waitForCondition(proxy, within, metav1.ConditionTrue, v1alpha1.ReasonNoLimitReached, "")
	s.applyReplicaStatus("demo-proxy-0", healthyReplica+`, "limits": [{"name": "PortConnections", "port": 6443, "value": 17500, "refused": 12, "lastTime": "2026-01-01T00:00:00Z", "field": "limits.maxConnections"}]`)
	s.waitForCondition(proxy, within, metav1.ConditionFalse, "PortConnections",
		"pod demo-proxy-0: port 6443 had its limit of 17500 connections, last at 2026-01-01T00:00:00Z; 12 connections were refused since the start; to raise it, set infraComponents.proxy.limits.maxConnections of Infra demo")
	s.applyReplicaStatus("demo-proxy-0", healthyReplica+`, "limits": [{"name": "BackendConnections", "backend": "db", "value": 0, "refused": 3, "lastTime": "2026-01-01T00:00:00Z"}]`)
	s.waitForCondition(proxy, within, metav1.ConditionFalse, "BackendConnections", "backend db had its limit of connections, last at 2026-01-01T00:00:00Z; 3 connections were refused since the start")
	s.applyReplicaStatus("demo-proxy-0", healthyReplica+`, "limitFailure": "no module"`)
	s.waitForCondition(proxy, within, metav1.ConditionUnknown, v1alpha1.ReasonLimitsNotApplied, "the limits of sources do not apply: no module")
	s.applyReplicaStatus("demo-proxy-0", healthyReplica+`, "limits": [{"name": "SourceConnections", "sources": ["192.0.2.10"], "value": 9, "refused": 0, "lastTime": "2026-01-01T00:00:00Z", "field": "limits.perSource.maxConnections"}]`)
	s.waitForCondition(proxy, within, metav1.ConditionFalse, "SourceConnections",
		"clients 192.0.2.10 had their limit of 9 connections each, last at 2026-01-01T00:00:00Z; to raise it, set infraComponents.proxy.limits.perSource.maxConnections of Infra demo")
	s.applyReplicaStatus("demo-proxy-0", healthyReplica+`, "omitted": ["port 443, a.example.com: invalid"]`)
	s.waitForCondition(proxy, valid, metav1.ConditionFalse, v1alpha1.ReasonConfigRejected,
		"pod demo-proxy-0: left out, because Envoy would reject it: port 443, a.example.com: invalid")
	s.waitForCondition(proxy, ready, metav1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "demo-proxy-0")
	s.applyReplicaStatus("demo-proxy-0", healthyReplica)
	s.waitForCondition(proxy, within, metav1.ConditionTrue, v1alpha1.ReasonNoLimitReached, "")

	service := &corev1.Service{}
	lab.Must(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "demo-proxy"}, service))
	status := proxy.Status
	if status.ServiceIP != service.Spec.ClusterIP || status.ServiceName != "demo-proxy" || status.DeploymentName != "demo-proxy" ||
		status.ObservedGeneration != proxy.Generation || status.BackendCount < 1 {
		t.Errorf("got status %+v with a Service that has %s", status, service.Spec.ClusterIP)
	}

	s.applyPod("demo-proxy-1", "proxy", "")
	s.setPodReady("demo-proxy-1", "10.0.0.2")
	s.applyReplicaStatus("demo-proxy-1", strings.Replace(healthyReplica, `"acknowledged": "v1"`, `"acknowledged": "v0", "nack": "listener: chain clusters/demo: no"`, 1))
	s.waitForCondition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonConfigRejected, "Envoy rejected a part of its configuration, and uses the previous state of that part, if it has one: listener: chain clusters/demo: no")
	s.waitForCondition(proxy, valid, metav1.ConditionFalse, v1alpha1.ReasonConfigRejected, "demo-proxy-1")
	lab.Await(s, "an Event that names the rejected resource", func() string {
		return s.checkEvent("ProxyServer", v1alpha1.ReasonConfigRejected, "chain clusters/demo: no")
	})

	if n := testutil.CollectAndCount(s.registry, "xdsd_ready"); n != 2 {
		t.Errorf("got metrics of %d objects, want 2", n)
	}

	// The entry of a deleted pod is deleted, and no longer affects the conditions.
	if err := s.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "demo-proxy-1"}}, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.waitForCondition(proxy, ready, metav1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "demo-proxy-0")
	lab.Await(s, "the entry to be deleted", func() string { // a pod that is being deleted keeps its entry
		s.conditions(proxy)
		if len(proxy.Status.Replicas) != 1 {
			return fmt.Sprintf("%+v", proxy.Status.Replicas)
		}
		return ""
	})

	// A replica that has not observed the current generation makes the ProxyServer not ready, whatever else it
	// reports.
	before := proxy.DeepCopy()
	proxy.Spec.Backends = []v1alpha1.ProxyBackend{{Name: "late", Hostname: "api.demo." + s.namespace + ".example.com", Port: 6443, TargetService: "other", TargetNamespace: s.namespace}}
	proxy.Spec.Backends[0].TargetPort.IntVal = 443
	lab.Must(t, s.client.Patch(t.Context(), proxy, client.MergeFrom(before)))
	s.waitForCondition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonReplicaBehind, "has observed generation 1, not 2")
	s.applyReplicaStatus("demo-proxy-0", strings.Replace(healthyReplica, `"observedGeneration": 1`, `"observedGeneration": 2`, 1))
	s.waitForCondition(proxy, ready, metav1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "")
	s.waitForCondition(proxy, valid, metav1.ConditionFalse, string(model.ReasonNameConflict), "spec.backends[0] late")
}

// checkEvent returns an empty string if such an Event exists, otherwise all Events.
func (s *site) checkEvent(kind, reason, note string) string {
	s.Helper()
	var list eventsv1.EventList
	lab.Must(s, s.client.List(s.Context(), &list, client.InNamespace(s.namespace)))
	var all []string
	for _, e := range list.Items {
		if e.Regarding.Kind == kind && e.Reason == reason && strings.Contains(e.Note, note) {
			return ""
		}
		all = append(all, e.Regarding.Kind+" "+e.Reason+": "+e.Note)
	}
	return strings.Join(all, "\n")
}

func TestInfraIsReadyWhenItsComponentsAre(t *testing.T) {
	s := newSite(t)
	s.applyCluster("dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.120}, dns: {serverIP: 192.0.2.2}, proxy: {serverIP: 192.0.2.3}")
	s.startControl()
	infra, ready := &v1alpha1.Infra{}, v1alpha1.ConditionReady
	s.waitForCondition(infra, v1alpha1.ConditionHostedClusterBound, metav1.ConditionTrue, "Bound", "HostedCluster "+s.namespace+"/demo")
	s.waitForCondition(infra, v1alpha1.ConditionNetworkValid, metav1.ConditionTrue, "Valid", "")
	s.waitForCondition(infra, v1alpha1.ConditionNamesServed, metav1.ConditionFalse, "DNSNotReady", "1 of 1 replicas have no pod")
	s.waitForCondition(infra, ready, metav1.ConditionFalse, "DNSNotReady", "DHCPReady: 1 of 1 replicas have no pod")

	server := newDNSServer(t)
	dhcp := newProblemServer(t)
	s.applyPod("demo-dns-0", "dns", "{name: dns, containerPort: "+server.port+", protocol: UDP}")
	s.setPodReady("demo-dns-0", "127.0.0.1")
	s.waitForCondition(infra, v1alpha1.ConditionNamesServed, metav1.ConditionFalse, "DNSNotReady", "SERVFAIL")
	service := &corev1.Service{}
	lab.Must(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "demo-proxy"}, service))
	server.setAddress("10.9.9.9")
	s.waitForCondition(infra, v1alpha1.ConditionNamesServed, metav1.ConditionFalse, "DNSNotReady", "the answer is [10.9.9.9], expected ["+service.Spec.ClusterIP+"]")
	server.setAddress(service.Spec.ClusterIP)
	s.waitForCondition(infra, v1alpha1.ConditionNamesServed, metav1.ConditionTrue, "Served", "")

	s.applyPod("demo-dhcp-0", "dhcp", "{name: health, containerPort: "+dhcp.port+"}")
	s.waitForCondition(infra, ready, metav1.ConditionFalse, "DHCPNotReady", "pod demo-dhcp-0: its phase is Pending")
	s.setPodReady("demo-dhcp-0", "127.0.0.1")
	s.waitForCondition(infra, ready, metav1.ConditionFalse, "ProxyNotReady", "ProxyServer demo: no pod")
	s.applyPod("demo-proxy-0", "proxy", "")
	s.setPodReady("demo-proxy-0", "10.0.0.1")
	s.applyReplicaStatus("demo-proxy-0", healthyReplica)
	s.waitForCondition(infra, ready, metav1.ConditionTrue, "Ready", "")
	if c := infra.Status.ComponentStatus; c == nil || !c.DHCPReady || !c.DNSReady || !c.ProxyReady {
		t.Errorf("got components %+v", c)
	}
	lab.Await(s, "an Event", func() string { return s.checkEvent("Infra", "Ready", "Ready: all enabled components") })

	vlan := v1alpha1.ConditionVLANReady
	s.waitForCondition(infra, vlan, metav1.ConditionUnknown, "NotObserved", "")
	dhcp.setProblems(problem.Warned(problem.RangesFull, model.Ref{}, "few addresses are free"))
	s.waitForCondition(infra, vlan, metav1.ConditionTrue, "Ready", "")
	s.waitForCondition(infra, v1alpha1.ConditionDHCPReady, metav1.ConditionTrue, "Ready", "")
	dhcp.setProblems(problem.Failed(problem.LeaseStoreFailing, model.Ref{}, "leases cannot be stored"))
	s.waitForCondition(infra, v1alpha1.ConditionDHCPReady, metav1.ConditionFalse, "LeaseStoreFailing", "Pod demo-dhcp-0: leases cannot be stored; remedy: ")
	s.waitForCondition(infra, ready, metav1.ConditionFalse, "LeaseStoreFailing", "")
	if list := s.problems.Sites(); len(list["Infra "+s.namespace+"/demo"]) != 1 {
		t.Errorf("got problems %v, want that of DHCP", list)
	}
	lab.Await(s, "an Event of the problem", func() string { return s.checkEvent("Infra", "LeaseStoreFailing", "DHCPReady: Pod demo-dhcp-0") })
	dhcp.setProblems()
	s.waitForCondition(infra, ready, metav1.ConditionTrue, "Ready", "")

	s.setPodCondition("demo-dhcp-0", "127.0.0.1", corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: "containers with unready status: [main]"})
	s.waitForCondition(infra, ready, metav1.ConditionFalse, "DHCPNotReady", "")
	s.waitForCondition(infra, v1alpha1.ConditionDHCPReady, metav1.ConditionFalse, "DHCPNotReady", "containers with unready status: [main]")
	if c := infra.Status.ComponentStatus; c.DHCPReady || !c.DNSReady {
		t.Errorf("got components %+v", c)
	}
}

// dnsServer answers each query with one address, and with SERVFAIL until setAddress is called.
type dnsServer struct {
	port       string
	setAddress func(address string)
}

func newDNSServer(t *testing.T) *dnsServer {
	t.Helper()
	var address atomic.Pointer[string]
	_, port, _ := strings.Cut(lab.ServeDNS(t, "127.0.0.1:0", func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetRcode(r, dns.RcodeServerFailure)
		if a := address.Load(); a != nil {
			m = lab.DNSReply(r, *a)
		}
		_ = w.WriteMsg(m) // clients retry after a failed write
	}), ":")
	return &dnsServer{port: port, setAddress: func(a string) { address.Store(&a) }}
}

// problemServer serves /problems of a daemon as setProblems sets them.
type problemServer struct {
	port     string
	problems atomic.Pointer[problem.Report]
}

// setProblems sets the report of the daemon, which serves none before.
func (r *problemServer) setProblems(problems ...problem.Problem) {
	r.problems.Store(&problem.Report{Problems: problems, VLAN: &problem.VLAN{At: time.Now()}})
}

func newProblemServer(t *testing.T) *problemServer {
	t.Helper()
	r := &problemServer{}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	lab.Must(t, err)
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if report := r.problems.Load(); report != nil && request.URL.Path == "/problems" {
			_ = json.NewEncoder(w).Encode(report) // control requests it again
			return
		}
		http.NotFound(w, request)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // returns after Close
	}()
	t.Cleanup(func() {
		lab.Report(t, server.Close())
		<-done
	})
	r.port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port) //nolint:errcheck // always a TCPAddr
	return r
}
