package api_test

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// TestStoredObjectsSurviveCRDReplacement replaces the CRDs of the earlier operator while etcd holds its
// objects. The objects must stay readable and their status writable. Otherwise no condition could report
// their faults.
func TestStoredObjectsSurviveCRDReplacement(t *testing.T) {
	cp := lab.New(t, lab.Config{Name: "upgrade"})
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	lab.Must(t, err)
	resource := func(u *unstructured.Unstructured) dynamic.ResourceInterface {
		plural := map[string]string{"Infra": "infras", "ProxyServer": "proxyservers"}[u.GetKind()]
		return client.Resource(v1alpha1.SchemeGroupVersion.WithResource(plural)).Namespace(namespace)
	}

	stored := objects(t, "testdata/legacy/*.yaml")
	// Stored objects may have values that are rejected in new objects.
	stored["apps-without-cluster"] = minimalObject(t, "Infra", "apps-without-cluster", `appsIngress: {enabled: true}`)
	stored["same-hostname-twice"] = minimalObject(t, "ProxyServer", "same-hostname-twice", `backends:
- {name: a, hostname: a.example.com, port: 6443, targetService: a, targetPort: 443, targetNamespace: a}
- {name: b, hostname: a.example.com, port: 6443, targetService: b, targetPort: 443, targetNamespace: b}`)
	crds, err := lab.CRDs(t.Context(), lab.Oooi)
	lab.Must(t, err)
	for _, crd := range crds { // CRDs without a schema accept every object, like the earlier operator's
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		lab.Must(t, err)
		anything := map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
		versions[0] = map[string]any{"name": "v1alpha1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}}, "schema": anything}
		lab.Must(t, errors.Join(unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"), cp.Apply(t.Context(), crd)))
	}
	for _, u := range stored {
		lab.Must(t, cp.Apply(t.Context(), u))
	}
	lab.Must(t, cp.InstallCRDs(t.Context(), lab.Oooi))

	for name, u := range stored {
		t.Run(name, func(t *testing.T) {
			read, err := resource(u).Get(context.Background(), u.GetName(), metav1.GetOptions{})
			lab.Must(t, err)
			lab.Must(t, unstructured.SetNestedField(read.Object, int64(7), "status", "observedGeneration"))
			if read, err = resource(u).UpdateStatus(t.Context(), read, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			read.SetAnnotations(map[string]string{"example.com/note": "seen"})
			if _, err := resource(u).Update(t.Context(), read, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
