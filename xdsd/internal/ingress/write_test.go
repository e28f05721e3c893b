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

func TestAliasNamesAreValidAndUnique(t *testing.T) {
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
				// Names contain no "=", so that such a source does not exist.
				continue
			}
		}
	}
}

func TestMergePatch(t *testing.T) {
	list := func(all ...any) []any { return all }
	type m = map[string]any
	for _, tc := range []struct {
		name          string
		current, want m
		patch         m
		fields        []string
	}{
		{"the same", m{"a": "b"}, m{"a": "b"}, m{}, nil},
		{"an extra field", m{"a": "b", "c": "d"}, m{"a": "b"}, m{"c": nil}, []string{"c"}},
		{"a missing field", m{}, m{"a": "b"}, m{"a": "b"}, []string{"a"}},
		{"another value", m{"a": "c"}, m{"a": "b"}, m{"a": "b"}, []string{"a"}},
		{"nested fields", m{"a": m{"b": "c", "d": "e"}}, m{"a": m{"b": "x"}}, m{"a": m{"b": "x", "d": nil}}, []string{"a.d", "a.b"}},
		{"a longer list", m{"a": list("b", "c")}, m{"a": list("b")}, m{"a": list("b")}, []string{"a"}},
		{"another order", m{"a": list("b", "c")}, m{"a": list("c", "b")}, m{"a": list("c", "b")}, []string{"a"}},
		{"an extra field in a list item", m{"a": list(m{"b": "c", "d": "e"})}, m{"a": list(m{"b": "c"})}, m{"a": list(m{"b": "c"})}, []string{"a"}},
		{"a missing field in a list item", m{"a": list(m{"b": "c"})}, m{"a": list(m{"b": "c", "d": "e"})}, m{"a": list(m{"b": "c", "d": "e"})}, []string{"a"}},
		{"unset and empty values", m{"a": list(), "b": nil, "c": m{}, "d": ""}, m{"e": list(), "f": nil, "g": m{}, "a": nil}, m{}, nil},
		{"a missing map", m{}, m{"a": m{"b": "c"}}, m{"a": m{"b": "c"}}, []string{"a"}},
		{"fields that the API server sets", m{"status": m{"a": "b"}, "spec": m{"clusterIP": "192.0.2.1"}, "metadata": m{"uid": "a"}}, m{"spec": m{}, "metadata": m{}}, m{}, nil},
	} {
		var fields []string
		patch := mergePatch("", tc.current, tc.want, &fields)
		if !reflect.DeepEqual(patch, tc.patch) || !slices.Equal(fields, tc.fields) {
			t.Errorf("%s: %v of %q", tc.name, patch, fields)
		}
	}
}

func TestHolderOfAHost(t *testing.T) {
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
		{"same age, first by name", all{of("b", "b"): at(1, ""), of("a", "c"): at(1, "")}, of("b", "b"), of("a", "c")},
		{"same namespace", all{of("b", "b"): at(1, ""), of("b", "a"): at(2, "")}, of("b", "a"), of("b", "a")},
		{"with an older one of its namespace that does not hold it", all{of("b", "b"): at(1, ""), of("a", "a"): at(2, ""), of("b", "c"): at(3, "")}, of("b", "c"), of("b", "c")},
		{"another class", all{of("b", "b"): at(1, "x"), of("a", "a"): at(2, "y")}, of("a", "a"), of("a", "a")},
		{"no class", all{of("b", "b"): at(1, "x"), of("a", "a"): at(2, "")}, of("a", "a"), of("b", "b")},
	} {
		if got := holderOf(tc.claims, tc.of); got != tc.holder {
			t.Errorf("%s: got holder %s, want %s", tc.name, got, tc.holder)
		}
	}
}

func TestCopiedMetadata(t *testing.T) {
	got := copiedMetadata(map[string]string{
		"a.example.com/x": "1", "helm.sh/chart": "x", "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/name": "web",
		"dropped": "x", "kept": "y", "value": "this",
	}, append(Tracking(), "dropped", "value=that"))
	want := map[string]string{"a.example.com/x": "1", "app.kubernetes.io/name": "web", "kept": "y", "value": "this"}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("got %s=%q", key, got[key])
		}
	}
}

func TestGuardDelaysCorrections(t *testing.T) {
	now := time.Unix(0, 0)
	x := newGuard()
	x.now = func() time.Time { return now }
	g := generated{"Ingress", types.NamespacedName{Namespace: "web", Name: "shop"}}
	of := types.NamespacedName{Namespace: "web", Name: "shop"}
	check := func(hash, version string, wait time.Duration, behind bool) {
		t.Helper()
		if w, b := x.check(g, hash, version); w != wait || b != behind {
			t.Errorf("at %s: got wait %s and behind %v, want %s and %v", now.Sub(time.Unix(0, 0)), w, b, wait, behind)
		}
	}
	check("one", "1", 0, false) // not written yet
	x.recordWrite(g, of, "one", []string{"1"})
	check("one", "1", 0, true)  // the cache has not received the write
	check("two", "1", 0, false) // something else is wanted
	check("one", "3", 0, false) // the first change of another client is corrected immediately
	x.recordWrite(g, of, "one", []string{"3"})
	check("one", "5", time.Second, false)
	now = now.Add(time.Second)
	check("one", "5", 0, false)
	x.recordWrite(g, of, "one", []string{"5"})
	check("one", "7", 2*time.Second, false)
	now = now.Add(time.Hour)
	check("one", "7", 0, false) // a new conflict
	x.recordWrite(g, of, "one", []string{"7"})
	check("one", "9", time.Second, false)
	x.forget(of)
	check("one", "9", 0, false)
}

func TestCompare(t *testing.T) {
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
		{"an annotation of another client", func(i *networkingv1.Ingress) { i.Annotations["c"] = "d" }, ""},
		{"a deleted annotation", func(i *networkingv1.Ingress) { delete(i.Annotations, "a") }, "metadata.annotations.a"},
		{"an earlier hash", func(i *networkingv1.Ingress) { i.Annotations[v1alpha1.AnnotationSpecHash] = "before" }, "metadata.annotations." + v1alpha1.AnnotationSpecHash},
		{"an additional owner", func(i *networkingv1.Ingress) {
			i.OwnerReferences = append(i.OwnerReferences, metav1.OwnerReference{Name: "other", UID: "b"})
		}, ""},
		{"no owner", func(i *networkingv1.Ingress) { i.OwnerReferences = nil }, "metadata.ownerReferences"},
		{"another Secret", func(i *networkingv1.Ingress) { i.Spec.TLS[0].SecretName = "b" }, "spec.tls"},
		{"a rule", func(i *networkingv1.Ingress) { i.Spec.Rules = []networkingv1.IngressRule{{Host: "a"}} }, "spec.rules"},
		{"the default class", func(i *networkingv1.Ingress) { i.Spec.IngressClassName = new("nginx") }, ""},
		{"addresses", func(i *networkingv1.Ingress) {
			i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
		}, ""},
	} {
		current := i.DeepCopy()
		current.Annotations[v1alpha1.AnnotationSpecHash] = want.GetAnnotations()[v1alpha1.AnnotationSpecHash]
		tc.change(current)
		if _, differing, err := compare(current, want); err != nil || strings.Join(differing, " ") != tc.differ {
			t.Errorf("%s: %q, %v", tc.name, differing, err)
		}
	}
}
