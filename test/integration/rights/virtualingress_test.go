package rights_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// ingressPod is the address of the pod of xdsd ingress.
const ingressPod = "198.19.1.11"

// ingressSite is a namespace with VirtualIngresses, and xdsd ingress as its manifests deploy it.
type ingressSite struct {
	*site

	namespace string
	daemon    *pod
	created   *int // counter for unique names
}

// TestRightsOfVirtualIngress revokes each right of xdsd ingress in turn. That all granted rights are used is
// checked in test/integration/ingress.
func TestRightsOfVirtualIngress(t *testing.T) {
	network.Need(t)
	s := &ingressSite{site: &site{T: t, management: management.Get(t), image: map[string]string{"/xdsd": network.Binary(t, "xdsd")}}, created: new(int)}
	s.client, s.kube = clients(t, s.management)
	lab.SharedInterfaces(t, map[string][]string{"eth1": {ingressPod}})
	s.apply(s.management, s.manifests())
	s.namespace = s.management.Namespace(t)
	s.daemon = s.start(&s.pods("oooi-system", "ingress", 2)[0], ingressPod)
	s.virtual("steady", "Alias", s.mirrored("steady"))
	s.virtual("alias", "Alias", s.mirrored("alias"))
	s.virtual("changing", "Alias", s.mirrored("changing"))
	s.virtual("deleting", "Direct\n  onNoMatch: Delete", s.mirrored("deleting"))
	for _, name := range []string{"steady", "alias", "changing", "deleting"} {
		await(t, name+" to be resolved", func() string { return s.checkResolved(name) })
	}
	s.removalTest().run(t)
}

// manifests returns the objects of manifests/ingress with the component for other namespaces.
func (s *ingressSite) manifests() string {
	s.Helper()
	root, err := lab.Root()
	if err != nil {
		s.Fatal(err)
	}
	copied := s.TempDir()
	for _, part := range []string{"crds", "ingress"} {
		if err := os.CopyFS(filepath.Join(copied, part), os.DirFS(filepath.Join(root, "manifests", part))); err != nil {
			s.Fatal(err)
		}
	}
	overlay := filepath.Join(copied, "overlay")
	if err := os.Mkdir(overlay, 0o750); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte("resources: [../ingress]\ncomponents: [../ingress/cross-namespace]\n"), 0o600); err != nil {
		s.Fatal(err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	if err != nil {
		s.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}

// mirrored creates a Service with a label and without a selector, and an EndpointSlice for it, and returns
// the label.
func (s *ingressSite) mirrored(label string) string {
	s.Helper()
	s.apply(s.management, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: a-%[1]s, namespace: %[2]s, labels: {app: %[1]s}}
spec: {ports: [{name: http, port: 80, targetPort: 30080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a-%[1]s-x, namespace: %[2]s, labels: {kubernetes.io/service-name: a-%[1]s, endpointslice.kubernetes.io/managed-by: lab}}
addressType: IPv4
endpoints: [{addresses: [198.51.100.7], conditions: {ready: true}}]
ports: [{name: http, port: 30080, protocol: TCP}]
`, label, s.namespace))
	return label
}

// virtual creates a VirtualIngress for the Service with a label.
func (s *ingressSite) virtual(name, mode, label string) {
	s.Helper()
	s.apply(s.management, fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: VirtualIngress
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  rules: [{host: %[1]s.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {matchLabels: {app: %[4]s}, port: {number: 80}}}}]}}]
  backendMode: %[3]s
`, name, s.namespace, mode, label))
}

// addVirtualIngress returns a function that creates a new VirtualIngress and its Service.
func (s *ingressSite) addVirtualIngress(mode string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		x := s.in(t)
		*s.created++
		name := fmt.Sprintf("another-%d", *s.created)
		x.virtual(name, mode, x.mirrored(name))
	}
}

// patch returns a function that applies a JSON merge patch to an object of the namespace.
func (s *ingressSite) patch(o client.Object, name, text string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		o.SetNamespace(s.namespace)
		o.SetName(name)
		if err := s.client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
			t.Fatal(err)
		}
	}
}

// delete deletes an object of the namespace.
func (s *ingressSite) delete(t *testing.T, o client.Object, name string) {
	t.Helper()
	o.SetNamespace(s.namespace)
	o.SetName(name)
	if err := s.client.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// service returns an empty Service, to delete one by name.
func service() client.Object {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	return o
}

// checkResolved returns "" if a VirtualIngress is resolved.
func (s *ingressSite) checkResolved(name string) string {
	s.Helper()
	if ready := s.ready(name); ready == nil || ready.Reason != v1alpha1.ReasonResolved {
		return fmt.Sprintf("%+v", ready)
	}
	return ""
}

// ready returns the condition Ready of a VirtualIngress, or nil if it has none.
func (s *ingressSite) ready(name string) *metav1.Condition {
	s.Helper()
	return meta.FindStatusCondition(s.read(name).Status.Conditions, v1alpha1.ConditionReady)
}

func (s *ingressSite) read(name string) *v1alpha1.VirtualIngress {
	s.Helper()
	v := &v1alpha1.VirtualIngress{}
	if err := s.client.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, v); err != nil {
		s.Fatal(err)
	}
	return v
}

// checkConditions returns a check for the API server's message about a missing right in the conditions of
// VirtualIngresses.
func (s *ingressSite) checkConditions(missing right) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		list := &v1alpha1.VirtualIngressList{}
		if err := s.client.List(t.Context(), list, client.InNamespace(s.namespace)); err != nil {
			t.Fatal(err)
		}
		problem := "no VirtualIngress is rejected"
		for i := range list.Items {
			ready := meta.FindStatusCondition(list.Items[i].Status.Conditions, v1alpha1.ConditionReady)
			if ready == nil || ready.Reason != v1alpha1.ReasonRejected {
				continue
			}
			if problem = checkDenied(ready.Message, missing); problem == "" {
				return ""
			}
		}
		return problem
	}
}

func (s *ingressSite) removalTest() *removalTest {
	ingresses := func(verb string) right { return right{verb, "networking.k8s.io", "ingresses", "", ""} }
	services := func(verb string) right { return right{verb, "", "services", "", ""} }
	slices := func(verb string) right { return right{verb, "discovery.k8s.io", "endpointslices", "", ""} }
	events := func(verb string) right { return right{verb, "events.k8s.io", "events", "", ""} }
	endpoints := right{"delete", "", "endpoints", "", ""}
	direct, alias := s.addVirtualIngress("Direct"), s.addVirtualIngress("Alias")
	x := &removalTest{
		account: account{s.kube, "oooi-system", "oooi-ingress"}, pod: s.daemon, container: "ingress",
		ready: "http://" + ingressPod + ":9905/readyz", needs: []string{"virtualingresses", "ingresses", "services", "endpointslices", "namespaces"},
		stopped: func(t *testing.T) { // so that the new process does not wait for the Lease of the killed one
			err := s.kube.CoordinationV1().Leases("oooi-system").Delete(t.Context(), "oooi-ingress", metav1.DeleteOptions{})
			if client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		},
		after: map[right]func(*testing.T){
			{"patch", v1alpha1.GroupName, "virtualingresses/status", "", ""}: direct,
			events("create"):    direct,
			ingresses("create"): direct, ingresses("update"): s.patch(&v1alpha1.VirtualIngress{}, "changing", `{"metadata":{"annotations":{"example.com/changed":"true"}}}`),
			ingresses("delete"): func(t *testing.T) { s.delete(t, service(), "a-deleting") },
			services("create"):  alias, services("update"): s.patch(&corev1.Service{}, "a-changing", `{"spec":{"ports":[{"name":"http","port":80,"targetPort":30081}]}}`),
			services("delete"): func(t *testing.T) { s.in(t).virtual("alias", "Direct", "alias") },
			slices("create"):   alias, slices("update"): s.patch(&discoveryv1.EndpointSlice{}, "a-changing-x", `{"endpoints":[{"addresses":["198.51.100.8"]}]}`),
			slices("delete"): func(t *testing.T) { s.delete(t, &discoveryv1.EndpointSlice{}, "a-steady-x") },
			// Such Endpoints remain of an alias that used to select pods.
			endpoints: func(t *testing.T) {
				x := s.in(t)
				x.apply(s.management, fmt.Sprintf("{apiVersion: v1, kind: Endpoints, metadata: {name: %s, namespace: %s}, subsets: [{addresses: [{ip: 198.51.100.9}], ports: [{name: http, port: 30080}]}]}",
					x.read("steady").Status.Backends[0].Alias, s.namespace))
			},
		},
		signs: map[right]func(*testing.T) string{},
		// The first is only checked by OpenShift.
		others: []right{{"create", "discovery.k8s.io", "endpointslices/restricted", "", ""}, patchEvent},
	}
	for r := range maps.Keys(x.after) {
		if r != events("create") && r.resource != "virtualingresses/status" {
			x.signs[r] = s.checkConditions(r)
		}
	}
	return x
}

// in returns a copy for another test.
func (s *ingressSite) in(t *testing.T) *ingressSite {
	copied, of := *s, *s.site
	of.T, copied.site = t, &of
	return &copied
}
