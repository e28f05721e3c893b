// Package ingress_test tests the built xdsd ingress with the rights of its manifest, on a real API server
// with the real controller manager.
package ingress_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// cluster has an API server without streaming lists (WatchList), like older ones. The daemon then uses list
// and watch; with WatchList it uses only watch, and list as a fallback.
var cluster = lab.Shared{
	Config: lab.Config{Name: "cluster", ControllerManager: true, Audit: true, APIServerFlags: []string{"--feature-gates=WatchList=false"}, CRDs: []lab.CRDSet{lab.Oooi}},
}

var network = lab.Network{
	Build:   []string{"xdsd"},
	Sources: []string{"api", "internal", "xdsd", "manifests"},
	Prepare: func(ctx context.Context) error {
		_, helmErr := lab.BuildHelm(ctx, nil)
		_, kubeProxyErr := lab.Build(ctx, nil)
		return errors.Join(helmErr, kubeProxyErr)
	},
}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	if code := network.Main(m, &cluster); code != 0 {
		os.Exit(code)
	}
}

// account returns the user name of the ServiceAccount in the manifests.
func account(namespace string) string {
	return "system:serviceaccount:" + namespace + ":oooi-ingress"
}

// replica is an xdsd ingress process.
type replica struct {
	*lab.Daemon

	http string
}

// newReplica returns a replica that is not started, with the rights of a user.
func newReplica(t testing.TB, cp *lab.ControlPlane, name, user string, args ...string) *replica {
	t.Helper()
	kubeconfig, err := cp.UserKubeconfig(user, "system:serviceaccounts")
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{http: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"ingress", "--kubeconfig", kubeconfig, "--namespace", "oooi-system", "--http", r.http}, args...)
	r.Daemon = lab.NewDaemon(t, name, func() *exec.Cmd { return exec.Command(network.Binary(t, "xdsd"), args...) })
	return r
}

// start installs the RBAC objects, and starts a replica that leads. It is terminated when the test ends.
func start(t testing.TB, cp *lab.ControlPlane, args ...string) *replica {
	t.Helper()
	install(t, cp)
	r := newReplica(t, cp, "ingress", account("oooi-system"), args...)
	r.Start(t)
	t.Cleanup(func() {
		if !t.Failed() {
			r.Terminate(t) // releases the Lease for the next test
		}
	})
	r.awaitLead(t)
	return r
}

func (r *replica) awaitLead(t testing.TB) {
	t.Helper()
	await(t, "the replica to lead", func() string {
		if state := r.state(t); !state.Leads || !state.Synced {
			return fmt.Sprintf("%+v\n%s", state, r.Log.Tail())
		}
		return ""
	})
}

// install applies the objects that exist once in a cluster.
func install(t testing.TB, cp *lab.ControlPlane) {
	t.Helper()
	apply(t, cp, "apiVersion: v1\nkind: Namespace\nmetadata: {name: oooi-system}\n---\n"+manifest(t, "controller/rbac.yaml"))
}

// manifest returns a file of manifests/ingress.
func manifest(t testing.TB, name string) string {
	t.Helper()
	text := lab.ReadFile(t, "manifests", "ingress", name)
	return string(text)
}

// state is the content of /state.
type state struct{ Leads, Synced bool }

// state returns the replica's state, or the zero value if the replica does not respond.
func (r *replica) state(t testing.TB) state {
	t.Helper()
	var s state
	if status, body := r.get(t, "/state"); status == http.StatusOK {
		if err := json.Unmarshal(body, &s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// metric returns the value of a series in /metrics, or "" if it does not exist.
func (r *replica) metric(t testing.TB, line string) string {
	t.Helper()
	_, body := r.get(t, "/metrics")
	for one := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(one, line+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// get requests a path of the replica. It returns 0 and nil if the replica does not respond.
func (r *replica) get(t testing.TB, path string) (status int, body []byte) {
	t.Helper()
	return lab.Get(t, "http://"+r.http+path)
}

// await is lab.Await.
func await(t testing.TB, what string, check func() string) {
	t.Helper()
	lab.Await(t, what, check)
}

func apply(t testing.TB, cp *lab.ControlPlane, yaml string) {
	t.Helper()
	if err := cp.ApplyYAML(t.Context(), []byte(yaml)); err != nil {
		t.Fatal(err)
	}
}

// site is a namespace with objects of a test.
type site struct {
	t         testing.TB
	cp        *lab.ControlPlane
	client    client.Client
	namespace string
}

func newSite(t testing.TB, cp *lab.ControlPlane) *site {
	t.Helper()
	s := &site{t, cp, cp.Client(t), cp.Namespace(t)}
	t.Cleanup(func() { // until the namespace is deleted its VirtualIngresses would claim hosts of the next test
		if err := s.client.DeleteAllOf(context.Background(), &v1alpha1.VirtualIngress{}, client.InNamespace(s.namespace)); err != nil {
			t.Error(err)
		}
	})
	return s
}

// apply applies YAML in the namespace.
func (s *site) apply(yaml string) {
	s.t.Helper()
	objects, err := lab.ParseYAML([]byte(yaml))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, o := range objects {
		o.SetNamespace(s.namespace)
		if err := s.cp.Apply(s.t.Context(), o); err != nil {
			s.t.Fatal(err)
		}
	}
}

// service creates or updates a Service with labels and ports.
func (s *site) service(name, labels, ports string) {
	s.t.Helper()
	s.apply(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, labels: {%s}}, spec: {selector: {pod: %s}, ports: [%s]}}", name, labels, name, ports))
}

// remove deletes an object.
func (s *site) remove(object client.Object) {
	s.t.Helper()
	object.SetNamespace(s.namespace)
	if err := s.client.Delete(s.t.Context(), object); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) removeService(name string) {
	s.t.Helper()
	o := &corev1.Service{}
	o.Name = name
	s.remove(o)
}

// ingress returns an Ingress, or nil if it does not exist.
func (s *site) ingress(name string) *networkingv1.Ingress {
	s.t.Helper()
	i := &networkingv1.Ingress{}
	err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, i)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return i
}

// backend returns the Service that the first path of an Ingress leads to, or "" if the Ingress does not
// exist.
func (s *site) backend(name string) string {
	s.t.Helper()
	if i := s.ingress(name); i != nil {
		return i.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name
	}
	return ""
}

func (s *site) awaitBackend(name, want string) {
	s.t.Helper()
	await(s.t, "Ingress "+name+" to name "+want, func() string {
		if got := s.backend(name); got != want {
			return fmt.Sprintf("the Ingress names %q", got)
		}
		return ""
	})
}

// virtual returns a VirtualIngress.
func (s *site) virtual(name string) *v1alpha1.VirtualIngress {
	s.t.Helper()
	v := &v1alpha1.VirtualIngress{}
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, v); err != nil {
		s.t.Fatal(err)
	}
	return v
}

// awaitReason waits until the condition Ready of the current generation has a reason, and returns its
// message.
func (s *site) awaitReason(name, want string) (message string) {
	s.t.Helper()
	await(s.t, name+" to be "+want, func() string {
		v := s.virtual(name)
		ready := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != want || ready.ObservedGeneration != v.Generation || (ready.Status == "True") != (want == v1alpha1.ReasonResolved) {
			return fmt.Sprintf("condition is %+v", ready)
		}
		message = ready.Message
		return ""
	})
	return message
}

// virtualIngressYAML returns a VirtualIngress with one path, to the Service that has label.
func virtualIngressYAML(name, label, port, fields string) string {
	return fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: VirtualIngress
metadata: {name: %s}
spec:
  rules: [{host: %s.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {matchLabels: {%s}, port: {%s}}}}]}}]
%s`, name, name, label, port, fields)
}
