package lab

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestParseYAML(t *testing.T) {
	objects, err := ParseYAML([]byte(`# only a comment
---
{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: x}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
---
`))
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, o := range objects {
		keys = append(keys, o.GetKind()+" "+key(o))
	}
	if want := []string{"Namespace a", "ConfigMap x/b", "ConfigMap c"}; !slices.Equal(keys, want) {
		t.Errorf("got %q, want %q", keys, want)
	}

	for stream, want := range map[string]string{
		"a: 1\na: 2": "document 1",
		"apiVersion: v1\nkind: Pod\n---\nkind: Pod": "document 2: apiVersion or kind is missing",
	} {
		if _, err := ParseYAML([]byte(stream)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q in it", stream, err, want)
		}
	}
}

func TestToUnstructured(t *testing.T) {
	items, err := toUnstructured(&corev1.ConfigMapList{Items: []corev1.ConfigMap{{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(items) != 1 || items[0].GetName() != "a" {
		t.Errorf("got %v", items)
	}
	if _, err := toUnstructured(&metav1.PartialObjectMetadata{}); err == nil {
		t.Error("no error for an object of unknown kind")
	}
}

func TestUniqueName(t *testing.T) {
	a, b := uniqueName("TestX/a case_(of many)"), uniqueName("TestX/a case_(of many)")
	if a == b || !strings.HasPrefix(a, "testx-a-case-of-many-") {
		t.Errorf("got %q and %q", a, b)
	}
	if long := uniqueName(strings.Repeat("x", 100)); len(long) > 63 {
		t.Errorf("%q is no DNS label", long)
	}
}
