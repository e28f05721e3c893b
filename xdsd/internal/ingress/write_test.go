package ingress

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/densityops/oooi/api/v1alpha1"
)

func TestNamesOfAliases(t *testing.T) {
	s := source{namespace: "web", labels: map[string]string{"app": "web"}}
	seen := map[string]string{}
	for _, name := range []string{"shop", "shop.example.com", "1-shop", "1", "." + strings.Repeat("a", 200), strings.Repeat("9", 253), strings.Repeat("a", 53) + "-", strings.Repeat("a", 53) + "-b"} {
		for _, suffix := range []string{"", "-generated"} {
			v := &v1alpha1.VirtualIngress{}
			v.Namespace, v.Name = "web", name
			got := aliasName(v, s, suffix)
			if wrong := validation.IsDNS1035Label(got); len(wrong) > 0 {
				t.Errorf("%s%s has the alias %q: %s", name, suffix, got, wrong)
			}
			if other := seen[got]; other != "" {
				t.Errorf("%s%s and %s have the same alias", name, suffix, other)
			}
			seen[got] = name + suffix
			if another := aliasName(v, source{namespace: "web", name: "app=web"}, suffix); another == got {
				// A name has no "=", so that this cannot be.
				continue
			}
		}
	}
}

func TestCorrection(t *testing.T) {
	list := func(all ...any) []any { return all }
	type m = map[string]any
	for _, tc := range []struct {
		name     string
		is, want m
		patch    m
		fields   []string
	}{
		{"the same", m{"a": "b"}, m{"a": "b"}, m{}, nil},
		{"more", m{"a": "b", "c": "d"}, m{"a": "b"}, m{"c": nil}, []string{"c"}},
		{"less", m{}, m{"a": "b"}, m{"a": "b"}, []string{"a"}},
		{"another", m{"a": "c"}, m{"a": "b"}, m{"a": "b"}, []string{"a"}},
		{"deep", m{"a": m{"b": "c", "d": "e"}}, m{"a": m{"b": "x"}}, m{"a": m{"b": "x", "d": nil}}, []string{"a.d", "a.b"}},
		{"a longer list", m{"a": list("b", "c")}, m{"a": list("b")}, m{"a": list("b")}, []string{"a"}},
		{"another order", m{"a": list("b", "c")}, m{"a": list("c", "b")}, m{"a": list("c", "b")}, []string{"a"}},
		{"more in a list's item", m{"a": list(m{"b": "c", "d": "e"})}, m{"a": list(m{"b": "c"})}, m{"a": list(m{"b": "c"})}, []string{"a"}},
		{"less in a list's item", m{"a": list(m{"b": "c"})}, m{"a": list(m{"b": "c", "d": "e"})}, m{"a": list(m{"b": "c", "d": "e"})}, []string{"a"}},
		{"nothing and what is empty", m{"a": list(), "b": nil, "c": m{}, "d": ""}, m{"e": list(), "f": nil, "g": m{}, "a": nil}, m{}, nil},
		{"no map", m{}, m{"a": m{"b": "c"}}, m{"a": m{"b": "c"}}, []string{"a"}},
		{"what the API server sets", m{"status": m{"a": "b"}, "spec": m{"clusterIP": "192.0.2.1"}, "metadata": m{"uid": "a"}}, m{"spec": m{}, "metadata": m{}}, m{}, nil},
	} {
		var fields []string
		patch := correction("", tc.is, tc.want, &fields)
		if !reflect.DeepEqual(patch, tc.patch) || !slices.Equal(fields, tc.fields) {
			t.Errorf("%s: %v of %q", tc.name, patch, fields)
		}
	}
}

func TestWhoHasAHost(t *testing.T) {
	type all = map[types.NamespacedName]*claim
	of := func(namespace, name string) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	at := func(second int64, class string) *claim { return &claim{class: class, created: time.Unix(second, 0)} }
	for _, tc := range []struct {
		name   string
		claims all
		of     types.NamespacedName
		holder types.NamespacedName
	}{
		{"alone", all{of("b", "b"): at(1, "")}, of("b", "b"), of("b", "b")},
		{"younger", all{of("b", "b"): at(1, ""), of("a", "a"): at(2, "")}, of("a", "a"), of("b", "b")},
		{"older", all{of("b", "b"): at(1, ""), of("a", "a"): at(2, "")}, of("b", "b"), of("b", "b")},
		{"as old, by name", all{of("b", "b"): at(1, ""), of("a", "c"): at(1, "")}, of("b", "b"), of("a", "c")},
		{"of one namespace", all{of("b", "b"): at(1, ""), of("b", "a"): at(2, "")}, of("b", "a"), of("b", "a")},
		{"after one that does not have it", all{of("b", "b"): at(1, ""), of("a", "a"): at(2, ""), of("b", "c"): at(3, "")}, of("b", "c"), of("b", "c")},
		{"another class", all{of("b", "b"): at(1, "x"), of("a", "a"): at(2, "y")}, of("a", "a"), of("a", "a")},
		{"no class", all{of("b", "b"): at(1, "x"), of("a", "a"): at(2, "")}, of("a", "a"), of("b", "b")},
	} {
		if got := holderOf(tc.claims, tc.of); got != tc.holder {
			t.Errorf("%s: %s has it, not %s", tc.name, got, tc.holder)
		}
	}
}

func TestKeptMetadata(t *testing.T) {
	got := kept(map[string]string{
		"a.example.com/x": "1", "helm.sh/chart": "x", "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/name": "web",
		"dropped": "x", "kept": "y", "value": "this",
	}, append(Tracking(), "dropped", "value=that"))
	want := map[string]string{"a.example.com/x": "1", "app.kubernetes.io/name": "web", "kept": "y", "value": "this"}
	if len(got) != len(want) {
		t.Errorf("kept are %v", got)
	}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s is %q", key, got[key])
		}
	}
}

func TestTheGuardGivesOthersTime(t *testing.T) {
	now := time.Unix(0, 0)
	x := newGuard()
	x.now = func() time.Time { return now }
	g := generated{"Ingress", types.NamespacedName{Namespace: "web", Name: "shop"}}
	of := types.NamespacedName{Namespace: "web", Name: "shop"}
	ask := func(hash, version string, wait time.Duration, behind bool) {
		t.Helper()
		if w, b := x.ask(g, hash, version); w != wait || b != behind {
			t.Errorf("at %s: wait %s, behind %v; not %s, %v", now.Sub(time.Unix(0, 0)), w, b, wait, behind)
		}
	}
	ask("one", "1", 0, false) // not written yet
	x.wrote(g, of, "one", []string{"1"})
	ask("one", "1", 0, true)  // what was written has not come back
	ask("two", "1", 0, false) // it is to be something else
	ask("one", "3", 0, false) // somebody has changed it: at once
	x.wrote(g, of, "one", []string{"3"})
	ask("one", "5", time.Second, false)
	now = now.Add(time.Second)
	ask("one", "5", 0, false)
	x.wrote(g, of, "one", []string{"5"})
	ask("one", "7", 2*time.Second, false)
	now = now.Add(time.Hour)
	ask("one", "7", 0, false) // that is another time
	x.wrote(g, of, "one", []string{"7"})
	ask("one", "9", time.Second, false)
	x.forget(of)
	ask("one", "9", 0, false)
}

func TestWhatIsHeld(t *testing.T) {
	i := &networkingv1.Ingress{}
	i.APIVersion, i.Kind, i.Namespace, i.Name = "networking.k8s.io/v1", "Ingress", "web", "shop"
	i.Annotations = map[string]string{"a": "b"}
	i.OwnerReferences = []metav1.OwnerReference{{Name: "shop", UID: "a", Controller: new(true)}}
	i.Spec.TLS = []networkingv1.IngressTLS{{SecretName: "a"}}
	want, err := fieldsOf(i)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*networkingv1.Ingress)
		differ string
	}{
		{"as written", func(*networkingv1.Ingress) {}, ""},
		{"others' annotations", func(i *networkingv1.Ingress) { i.Annotations["c"] = "d" }, ""},
		{"an annotation gone", func(i *networkingv1.Ingress) { delete(i.Annotations, "a") }, "metadata.annotations.a"},
		{"what was once written", func(i *networkingv1.Ingress) { i.Annotations[v1alpha1.AnnotationSpecHash] = "before" }, "metadata.annotations." + v1alpha1.AnnotationSpecHash},
		{"another owner", func(i *networkingv1.Ingress) {
			i.OwnerReferences = append(i.OwnerReferences, metav1.OwnerReference{Name: "other", UID: "b"})
		}, ""},
		{"no owner", func(i *networkingv1.Ingress) { i.OwnerReferences = nil }, "metadata.ownerReferences"},
		{"another Secret", func(i *networkingv1.Ingress) { i.Spec.TLS[0].SecretName = "b" }, "spec.tls"},
		{"a rule", func(i *networkingv1.Ingress) { i.Spec.Rules = []networkingv1.IngressRule{{Host: "a"}} }, "spec.rules"},
		{"a class of the cluster's", func(i *networkingv1.Ingress) { i.Spec.IngressClassName = new("nginx") }, ""},
		{"addresses", func(i *networkingv1.Ingress) {
			i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
		}, ""},
	} {
		is := i.DeepCopy()
		is.Annotations[v1alpha1.AnnotationSpecHash] = want.GetAnnotations()[v1alpha1.AnnotationSpecHash]
		tc.change(is)
		if _, differing, err := compare(is, want); err != nil || strings.Join(differing, " ") != tc.differ {
			t.Errorf("%s: %q, %v", tc.name, differing, err)
		}
	}
}
