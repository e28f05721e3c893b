package ingress

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
		}
	}
}

func TestHolderOfAHost(t *testing.T) {
	claimant := func(namespace, name string, second int64, class string) v1alpha1.VirtualIngress {
		v := v1alpha1.VirtualIngress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(second, 0)}}
		if class != "" {
			v.Spec.IngressClassName = &class
		}
		return v
	}
	for _, tc := range []struct {
		name   string
		v      v1alpha1.VirtualIngress
		others []v1alpha1.VirtualIngress
		holder string
	}{
		{"alone", claimant("b", "b", 1, ""), nil, "b/b"},
		{"younger", claimant("a", "a", 2, ""), []v1alpha1.VirtualIngress{claimant("b", "b", 1, "")}, "b/b"},
		{"older", claimant("b", "b", 1, ""), []v1alpha1.VirtualIngress{claimant("a", "a", 2, "")}, "b/b"},
		{"same age, first by name", claimant("b", "b", 1, ""), []v1alpha1.VirtualIngress{claimant("a", "c", 1, "")}, "a/c"},
		{"same namespace", claimant("b", "a", 2, ""), []v1alpha1.VirtualIngress{claimant("a", "a", 3, "")}, "b/a"},
		{"the oldest is in the same namespace", claimant("b", "c", 3, ""), []v1alpha1.VirtualIngress{claimant("b", "b", 1, ""), claimant("a", "a", 2, "")}, "b/b"},
		{"another class", claimant("a", "a", 2, "y"), []v1alpha1.VirtualIngress{claimant("b", "b", 1, "x")}, "a/a"},
		{"no class", claimant("a", "a", 2, ""), []v1alpha1.VirtualIngress{claimant("b", "b", 1, "x")}, "b/b"},
	} {
		if got := keyOf(holderOf(append(tc.others, tc.v), &tc.v, "a.example.com")).String(); got != tc.holder {
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
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestGuardDelaysCorrections(t *testing.T) {
	now := time.Unix(0, 0)
	x := newGuard()
	x.now = func() time.Time { return now }
	const what = "Ingress shop-generated"
	v := types.NamespacedName{Namespace: "web", Name: "shop"}
	check := func(hash, version string, wait time.Duration, behind bool) {
		t.Helper()
		if w, b := x.check(v, what, hash, version); w != wait || b != behind {
			t.Errorf("at %s: got wait %s and behind %v, want %s and %v", now.Sub(time.Unix(0, 0)), w, b, wait, behind)
		}
	}
	check("one", "1", 0, false) // not written yet
	x.record(v, what, "one", "1", "2")
	check("one", "1", 0, true)  // the cache has not received the write
	check("two", "1", 0, false) // something else is wanted
	check("one", "3", 0, false) // the first change by another client is reverted immediately
	x.record(v, what, "one", "3", "4")
	check("one", "5", time.Second, false)
	now = now.Add(time.Second)
	check("one", "5", 0, false)
	x.record(v, what, "one", "5", "6")
	check("one", "7", 2*time.Second, false)
	now = now.Add(time.Hour)
	check("one", "7", 0, false) // a new conflict
	x.record(v, what, "one", "7", "7")
	check("one", "7", time.Second, false) // a webhook has reverted the write
	x.record(v, what, "one", "", "8")
	check("one", "9", time.Second, false) // a creation corrects nothing
	x.forget(v)
	check("one", "9", 0, false)
}

func TestMerge(t *testing.T) {
	want := &networkingv1.Ingress{}
	want.APIVersion, want.Kind, want.Namespace, want.Name = "networking.k8s.io/v1", "Ingress", "web", "shop"
	want.Annotations = map[string]string{"a": "b"}
	want.OwnerReferences = []metav1.OwnerReference{{Name: "shop", UID: "a", Controller: new(true)}}
	want.Spec.TLS = []networkingv1.IngressTLS{{SecretName: "a"}}
	written := `{"f:metadata":{"f:annotations":{".":{},"f:a":{},"f:earlier":{}}},"f:spec":{"f:ingressClassName":{}}}`
	for _, tc := range []struct {
		name   string
		change func(*networkingv1.Ingress)
		differ string
	}{
		{"as written", func(*networkingv1.Ingress) {}, ""},
		{"an annotation of another client", func(i *networkingv1.Ingress) { i.Annotations["c"] = "d" }, ""},
		{"a deleted annotation", func(i *networkingv1.Ingress) { i.Annotations = map[string]string{"c": "d"} }, "metadata.annotations.a"},
		{"an annotation that is no longer wanted", func(i *networkingv1.Ingress) { i.Annotations["earlier"] = "e" }, "metadata.annotations.earlier"},
		{"an additional owner", func(i *networkingv1.Ingress) {
			i.OwnerReferences = append(i.OwnerReferences, metav1.OwnerReference{Name: "other", UID: "b"})
		}, ""},
		{"no owner", func(i *networkingv1.Ingress) { i.OwnerReferences = nil }, "metadata.ownerReferences"},
		{"another Secret", func(i *networkingv1.Ingress) { i.Spec.TLS[0].SecretName = "b" }, "spec.tls"},
		{"a rule", func(i *networkingv1.Ingress) { i.Spec.Rules = []networkingv1.IngressRule{{Host: "a"}} }, "spec.rules"},
		{"a class that is no longer wanted", func(i *networkingv1.Ingress) { i.Spec.IngressClassName = new("nginx") }, "spec.ingressClassName"},
		{"the default class", func(i *networkingv1.Ingress) { i.Spec.IngressClassName, i.ManagedFields = new("nginx"), nil }, ""},
		{"addresses", func(i *networkingv1.Ingress) {
			i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
		}, ""},
	} {
		current := want.DeepCopy()
		current.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: fieldManager, FieldsV1: metav1.NewFieldsV1(written)}}
		tc.change(current)
		merged := current.DeepCopy()
		merge(merged, want)
		if got := strings.Join(differing(current, merged), " "); got != tc.differ {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.differ)
		}
	}
}
