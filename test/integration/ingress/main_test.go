// Package ingress_test tests the built xdsd ingress with the rights of its manifest, on a real API server
// with the real controller manager.
package ingress_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
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
		_, err := lab.BuildHelm(ctx, nil)
		return err
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

// newReplica returns a replica that is not started, with the rights of a user.
func newReplica(t testing.TB, cp *lab.ControlPlane, name, user string, args ...string) *lab.Replica {
	t.Helper()
	return lab.NewReplica(t, cp, name, network.Binary(t, "xdsd"), user, append([]string{"ingress"}, args...)...)
}

// start starts a replica that leads the shared cluster. It is terminated when the test ends.
func start(t *testing.T, args ...string) *lab.Replica {
	t.Helper()
	cp := cluster.Get(t)
	install(t, cp)
	r := newReplica(t, cp, "ingress", account("oooi-system"), args...)
	t.Cleanup(func() {
		if !t.Failed() {
			r.Terminate(t) // releases the Lease for the next test
		}
	})
	r.Lead(t)
	return r
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

func apply(t testing.TB, cp *lab.ControlPlane, yaml string) {
	t.Helper()
	lab.Must(t, cp.ApplyYAML(t.Context(), []byte(yaml)))
}

// site is a namespace with objects of a test.
type site struct {
	t         testing.TB
	cp        *lab.ControlPlane
	client    client.Client
	namespace string
}

// newSite returns a site in the shared cluster.
func newSite(t testing.TB) *site {
	t.Helper()
	return newSiteIn(t, cluster.Get(t))
}

func newSiteIn(t testing.TB, cp *lab.ControlPlane) *site {
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
	lab.Must(s.t, err)
	for _, o := range objects {
		o.SetNamespace(s.namespace)
		lab.Must(s.t, s.cp.Apply(s.t.Context(), o))
	}
}

// service creates or updates a Service with labels and ports.
func (s *site) service(name, labels, ports string) {
	s.t.Helper()
	s.apply(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, labels: {%s}}, spec: {selector: {pod: %s}, ports: [%s]}}", name, labels, name, ports))
}

// get reads an object, and reports whether it exists.
func (s *site) get(o client.Object, name string) bool {
	s.t.Helper()
	err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	return err == nil
}

// remove deletes an object, if it exists.
func (s *site) remove(o client.Object, name string) {
	s.t.Helper()
	o.SetNamespace(s.namespace)
	o.SetName(name)
	lab.Must(s.t, client.IgnoreNotFound(s.client.Delete(s.t.Context(), o)))
}

func (s *site) removeService(name string) {
	s.t.Helper()
	s.remove(&corev1.Service{}, name)
}

// patch applies a JSON merge patch to an object as another field manager.
func (s *site) patch(o client.Object, name, json string) {
	s.t.Helper()
	o.SetNamespace(s.namespace)
	o.SetName(name)
	lab.Must(s.t, s.client.Patch(s.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(json)), client.FieldOwner("other-client")))
}

// ingress returns an Ingress, or nil if it does not exist.
func (s *site) ingress(name string) *networkingv1.Ingress {
	s.t.Helper()
	if i := (&networkingv1.Ingress{}); s.get(i, name) {
		return i
	}
	return nil
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
	lab.Await(s.t, "Ingress "+name+" to name "+want, func() string {
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
	if !s.get(v, name) {
		s.t.Fatalf("no VirtualIngress %s", name)
	}
	return v
}

// awaitReason waits until the condition Ready of the current generation has a reason, and returns its
// message.
func (s *site) awaitReason(name, want string) (message string) {
	s.t.Helper()
	lab.Await(s.t, name+" to be "+want, func() string {
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

// awaitMessage is awaitReason for a message with a part.
func (s *site) awaitMessage(name, reason, part string) {
	s.t.Helper()
	if message := s.awaitReason(name, reason); !strings.Contains(message, part) {
		s.t.Errorf("%s is %s with the message %q, want %q in it", name, reason, message, part)
	}
}

// virtualIngress returns a VirtualIngress with one path, to port 80 of the Service with the label app=web. fields are lines
// of its spec.
func virtualIngress(name string, fields ...string) string {
	return virtualIngressOf(name, "app: web", "number: 80", fields...)
}

// virtualIngressOf is virtualIngress for any labels and port.
func virtualIngressOf(name, labels, port string, fields ...string) string {
	return fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: VirtualIngress
metadata: {name: %s}
spec:
  rules: [{host: %[1]s.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {matchLabels: {%[2]s}, port: {%[3]s}}}}]}}]
  %[4]s
`, name, labels, port, strings.Join(fields, "\n  "))
}
