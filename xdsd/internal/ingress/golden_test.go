package ingress

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

var defaults = Policy{OnMultiple: v1alpha1.OnMultipleFail, OnNoMatch: v1alpha1.OnNoMatchKeep, Suffix: v1alpha1.DefaultIngressSuffix, Aliases: true, CrossNamespace: true}

// newClient returns a client with the indexes of the controller's cache.
func newClient(objects ...client.Object) client.Client {
	b := fake.NewClientBuilder().WithScheme(scheme()).WithObjects(objects...)
	for _, w := range watches(defaults) {
		for index, by := range w.indexes {
			b = b.WithIndex(w.object, index, by)
		}
	}
	return b.Build()
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

// load returns a client with the objects of a YAML text, and its VirtualIngresses.
func load(t *testing.T, text string) (client.Client, []*v1alpha1.VirtualIngress) {
	t.Helper()
	var all []client.Object
	var virtual []*v1alpha1.VirtualIngress
	objects, err := lab.ParseYAML([]byte(text))
	lab.Must(t, err)
	for _, o := range objects {
		data, err := yaml.Marshal(o.Object)
		lab.Must(t, err)
		var object client.Object
		switch o.GetKind() {
		case "Service":
			object = &corev1.Service{}
		case "Namespace":
			object = &corev1.Namespace{}
		case "EndpointSlice":
			object = &discoveryv1.EndpointSlice{}
		case kindVirtualIngress:
			v := &v1alpha1.VirtualIngress{}
			v.UID = types.UID("uid-of-" + o.GetName())
			object, virtual = v, append(virtual, v)
		default:
			continue
		}
		lab.Must(t, yaml.UnmarshalStrict(data, object))
		if object.GetDeletionTimestamp() != nil { // required by the fake client
			object.SetFinalizers([]string{"example.com/hold"})
		}
		all = append(all, object)
	}
	return newClient(all...), virtual
}

// resolved resolves a VirtualIngress.
func resolved(t *testing.T, c client.Client, v *v1alpha1.VirtualIngress) *resolution {
	t.Helper()
	r, err := resolve(t.Context(), c, v, defaults)
	lab.Must(t, err)
	return r
}

// translated returns the Ingress or the routes of a VirtualIngress.
func translated(t *testing.T, v *v1alpha1.VirtualIngress, r *resolution) []client.Object {
	t.Helper()
	objects, err := translate(v, defaults, r)
	lab.Must(t, err)
	return objects
}

// TestGolden compares resolutions and generated objects with golden files.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			lab.Must(t, err)
			c, all := load(t, string(text))
			var out strings.Builder
			for _, v := range all {
				printObjects(t, &out, v, resolved(t, c, v))
			}
			golden.Check(t, filepath.Join("testdata", name+".golden"), out.String())
		})
	}
}

// TestExampleIngressIsCurrent compares the generated Ingress with that in manifests/examples/virtual-ingress.
func TestExampleIngressIsCurrent(t *testing.T) {
	const folder = "manifests/examples/virtual-ingress"
	text := slices.Concat(lab.ReadFile(t, folder, "virtualingress.yaml"), []byte("---\n"), lab.ReadFile(t, folder, "cluster.yaml"))
	c, all := load(t, string(text))
	if len(all) != 1 {
		t.Fatalf("got %d VirtualIngresses, want 1", len(all))
	}
	r := resolved(t, c, all[0])
	if !r.complete() {
		t.Fatal(r.fault())
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(translated(t, all[0], r)[0])
	lab.Must(t, err)
	delete(fields, "status")
	ingress, err := yaml.Marshal(fields)
	lab.Must(t, err)
	golden.Check(t, filepath.Join("..", "..", "..", folder, "ingress.yaml"), "# The Ingress that 'xdsd ingress' generates from virtualingress.yaml.\n"+string(ingress))
}

// printObjects writes the resolution of a VirtualIngress and its generated objects.
func printObjects(t *testing.T, out *strings.Builder, v *v1alpha1.VirtualIngress, r *resolution) {
	t.Helper()
	reason, message := r.fault()
	fmt.Fprintf(out, "# %s/%s: complete %v, remove %v, %s %s\n", v.Namespace, v.Name, r.complete(), r.remove, reason, message)
	var objects []client.Object
	for _, b := range r.backends {
		fmt.Fprintf(out, "#   %s: Service %q, alias %q, %s\n", b.source.key(), b.inUse, b.alias, b.reason)
		if b.alias != "" && b.service != nil {
			objects = append(objects, aliasService(v, b))
		}
	}
	if r.complete() && !r.remove {
		objects = append(objects, translated(t, v, r)...)
	}
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		lab.Must(t, err)
		out.WriteString("---\n" + strings.ReplaceAll(strings.ReplaceAll(string(text), "status:\n  loadBalancer: {}\n", ""), "status:\n  parents: null\n", ""))
	}
}

// TestReferencesFindServices compares Services and VirtualIngresses that are found through the index with the result of a
// search through all objects.
func TestReferencesFindServices(t *testing.T) {
	labelSets := []map[string]v1alpha1.LabelValue{
		{"a": "0"}, {"a": "1"}, {"b": "0"}, {"a": "0", "b": "0"}, {"a": "0", "b": "1", "c": "0"}, {labelTenantName: "x", "a": "1"},
	}
	var services, virtual []client.Object
	for _, namespace := range []string{"0", "1"} {
		for i, labels := range labelSets {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("x", i), Labels: map[string]string{}}}
			for key, value := range labels {
				s.Labels[key] = string(value)
			}
			services = append(services, s)
			for j, backend := range []v1alpha1.VirtualIngressService{{MatchLabels: labels}, {MatchLabels: labels, Namespace: "1"}, {Name: s.Name, Namespace: "1"}} {
				v := &v1alpha1.VirtualIngress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("v", i, "-", j)}}
				v.Spec.BackendMode, v.Spec.DefaultBackend = v1alpha1.BackendModeAlias, &v1alpha1.VirtualIngressBackend{Service: &backend}
				virtual = append(virtual, v)
			}
		}
	}
	c := newClient(slices.Concat(services, virtual)...)
	r := &reconciler{client: c}
	for _, o := range virtual {
		v, ok := o.(*v1alpha1.VirtualIngress)
		if !ok {
			t.Fatal(o)
		}
		for _, s := range sourcesOf(v) {
			found, err := servicesOf(t.Context(), c, s)
			lab.Must(t, err)
			for _, service := range services {
				matches := s.matches(service)
				if got := slices.ContainsFunc(found, func(f *corev1.Service) bool { return keyOf(f) == keyOf(service) }); got != matches {
					t.Errorf("%s finds %s: %v, want %v", s.key(), keyOf(service), got, matches)
				}
				requests := r.requests(t.Context(), service, serviceReferences(service))
				if got := slices.Contains(requests, reconcile.Request{NamespacedName: keyOf(v)}); got != matches {
					t.Errorf("%s affects %s: %v, want %v", keyOf(service), s.key(), got, matches)
				}
			}
		}
	}
}
