package control_test

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/golden"
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

// controlKubeconfig returns a kubeconfig with the permissions of control's ServiceAccount.
func (s *site) controlKubeconfig() string {
	s.Helper()
	file, err := s.cp.UserKubeconfig("system:serviceaccount:oooi-system:oooi-control", "system:serviceaccounts")
	lab.Must(s, err)
	return file
}

// startControl runs a replica with the permissions of its ServiceAccount until stop is called or the test ends.
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
	s.Cleanup(func() { // their names must not conflict with names of the next test
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

// setPodCondition sets the status of a running pod as a kubelet does.
func (s *site) setPodCondition(name, ip string, ready corev1.PodCondition) {
	s.Helper()
	pod := &corev1.Pod{}
	lab.Must(s, s.client.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, pod))
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
	pod.Status.Conditions = []corev1.PodCondition{ready}
	lab.Must(s, s.client.Status().Update(s.Context(), pod))
}

// applyReplicaStatus applies the entry in the status of a healthy replica, with changes, as that replica does.
func (s *site) applyReplicaStatus(pod string, changes ...string) {
	s.Helper()
	entry := lab.Merge(`{observedGeneration: 1, version: v1, acknowledged: v1, listeners: [{port: 443, ready: true}, {port: 6443, ready: true}],
		backends: [{name: api, endpoints: 2, healthy: 2}]}`, append(changes, "{pod: "+pod+"}")...)
	u := &unstructured.Unstructured{Object: map[string]any{}}
	lab.Must(s, yaml.Unmarshal([]byte(entry), &u.Object))
	patch, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "ProxyServer", "metadata": map[string]any{"name": "demo", "namespace": s.namespace},
		"status": map[string]any{"replicas": []any{u.Object}},
	})
	lab.Must(s, err)
	proxy := &v1alpha1.ProxyServer{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "demo"}}
	lab.Must(s, s.client.Status().Patch(s.Context(), proxy, client.RawPatch("application/apply-patch+yaml", patch),
		client.FieldOwner(serve.ReplicaManager(pod)), client.ForceOwnership))
}

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
	s.setPodCondition("demo-proxy-0", "10.0.0.1", corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	s.applyReplicaStatus("demo-proxy-0")
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
			t.Errorf("the status is %+v, want the status of generation %d", proxy.Status, generation)
		}
	}
	change("debug")
	s.waitForCondition(proxy, valid, metav1.ConditionTrue, v1alpha1.ReasonConfigApplied, "")
	staysReady(1)
	const replica = "{observedGeneration: 2, version: v2}"
	s.applyReplicaStatus("demo-proxy-0", replica)
	s.waitForCondition(proxy, valid, metav1.ConditionUnknown, v1alpha1.ReasonNotAcknowledged, "")
	staysReady(1)
	s.applyReplicaStatus("demo-proxy-0", replica, "{acknowledged: v2}")
	s.waitForCondition(proxy, ready, metav1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "demo-proxy-0")
	staysReady(2)

	stop()
	s.changeTime, s.registry = time.Second, prometheus.NewRegistry()
	s.startControl()
	change("info")
	s.waitForCondition(proxy, ready, metav1.ConditionFalse, v1alpha1.ReasonReplicaBehind, "has observed generation 2, not 3")
}

// TestScripts runs the files testdata/scripts/*.txt. A line is a command:
//
//	cluster COMPONENTS                          create a hosted cluster, its Infra and its ProxyServer, and start control
//	pod NAME COMPONENT [PORTS]                  create a pod, which is not ready; $DNS and $HEALTH are ports of servers of this test
//	ready NAME IP [MESSAGE]                     make a pod ready, or not ready with a message
//	delete POD
//	replica POD [CHANGE]                        write the entry in the status of a healthy replica, with changes
//	backend NAME                                add a backend to the ProxyServer whose Service does not exist
//	dns ADDRESS                                 what DNS answers
//	problems [warn|fail CODE MESSAGE]           what DHCP reports
//	infra|proxy CONDITION STATUS REASON [TEXT]  wait for a condition whose message contains a text
//	event KIND REASON TEXT                      wait for an Event
//	replicas N                                  wait until the status has the entries of so many replicas
//	status                                      print the status of both objects except conditions
//
// $SERVICE is the cluster IP of the proxy's Service, and $NAMESPACE the namespace.
func TestScripts(t *testing.T) {
	golden.Files(t, "testdata/scripts/*.txt", func(t *testing.T, file string) {
		r := &script{site: newSite(t), dns: newDNSServer(t), dhcp: newProblemServer(t)}
		golden.Transcript(t, file, r.run)
	})
}

// A script is the state of a file of TestScripts.
type script struct {
	*site

	dns   *dnsServer
	dhcp  *problemServer
	infra v1alpha1.Infra
	proxy v1alpha1.ProxyServer
}

func (r *script) run(line string) []string {
	service := &corev1.Service{}
	err := r.client.Get(r.Context(), client.ObjectKey{Namespace: r.namespace, Name: "demo-proxy"}, service)
	lab.Must(r, client.IgnoreNotFound(err))
	line = strings.NewReplacer("$DNS", r.dns.port, "$HEALTH", r.dhcp.port, "$SERVICE", service.Spec.ClusterIP, "$NAMESPACE", r.namespace).Replace(line)
	command, argument, _ := strings.Cut(line, " ")
	words := append(strings.SplitN(argument, " ", 3), "", "")
	switch command {
	case "cluster":
		r.applyCluster(argument)
		r.startControl()
	case "pod":
		r.applyPod(words[0], words[1], words[2])
	case "ready":
		condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
		if words[2] != "" {
			condition.Status, condition.Message = corev1.ConditionFalse, words[2]
		}
		r.setPodCondition(words[0], words[1], condition)
	case "delete":
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: argument}}
		lab.Must(r, r.client.Delete(r.Context(), pod, client.GracePeriodSeconds(0)))
	case "replica":
		pod, change, _ := strings.Cut(argument, " ")
		r.applyReplicaStatus(pod, cmp.Or(change, "{}"))
	case "backend":
		before := r.proxy.DeepCopy()
		backend := v1alpha1.ProxyBackend{Name: argument, Port: 6443, TargetService: "other", TargetNamespace: r.namespace}
		backend.Hostname, backend.TargetPort.IntVal = "api.demo."+r.namespace+".example.com", 443
		r.proxy.Spec.Backends = []v1alpha1.ProxyBackend{backend}
		lab.Must(r, r.client.Patch(r.Context(), &r.proxy, client.MergeFrom(before)))
	case "dns":
		r.dns.setAddress(argument)
	case "problems":
		r.dhcp.setProblems(map[string][]problem.Problem{
			"warn": {problem.Warned(problem.Code(words[1]), model.Ref{}, "%s", words[2])},
			"fail": {problem.Failed(problem.Code(words[1]), model.Ref{}, "%s", words[2])},
		}[words[0]]...)
	case "infra", "proxy":
		object := map[string]client.Object{"infra": &r.infra, "proxy": &r.proxy}[command]
		reason, message, _ := strings.Cut(words[2], " ")
		r.waitForCondition(object, words[0], metav1.ConditionStatus(words[1]), reason, message)
	case "event":
		lab.Await(r, line, func() string { return r.checkEvent(words[0], words[1], words[2]) })
	case "replicas":
		lab.Await(r, line, func() string {
			r.conditions(&r.proxy)
			if fmt.Sprint(len(r.proxy.Status.Replicas)) != argument {
				return fmt.Sprintf("%+v", r.proxy.Status.Replicas)
			}
			return ""
		})
	case "status":
		p := r.proxy.Status
		if p.ServiceIP != service.Spec.ClusterIP || p.BackendCount < 1 {
			r.Errorf("got status %+v with a Service that has %s", p, service.Spec.ClusterIP)
		}
		return []string{
			fmt.Sprintf("proxy: Service %s, Deployment %s, generation %d", p.ServiceName, p.DeploymentName, p.ObservedGeneration),
			fmt.Sprintf("Infra: %+v, %d problems, %d metrics of readiness", r.infra.Status.ComponentStatus,
				len(r.problems.Sites()["Infra "+r.namespace+"/demo"]), testutil.CollectAndCount(r.registry, "xdsd_ready")),
		}
	default:
		r.Fatalf("unknown command %s", line)
	}
	return nil
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
