package api_test

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// TestIngressManifestIsAVirtualIngress creates a VirtualIngress from an Ingress as the API server returns it,
// with only apiVersion and kind changed.
func TestIngressManifestIsAVirtualIngress(t *testing.T) {
	written := &unstructured.Unstructured{}
	unmarshalYAML(t, read(t, "testdata/ingress.yaml"), &written.Object)
	c, err := dynamic.NewForConfig(server.Get(t).RESTConfig())
	lab.Must(t, err)
	ingresses := c.Resource(networkingv1.SchemeGroupVersion.WithResource("ingresses")).Namespace(namespace)
	ingress, err := ingresses.Create(t.Context(), written, metav1.CreateOptions{})
	lab.Must(t, err)
	ingress.SetAPIVersion(v1alpha1.SchemeGroupVersion.String())
	ingress.SetKind("VirtualIngress")
	ingress.SetResourceVersion("")
	created, err := client(t, "VirtualIngress").Create(t.Context(), ingress, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatalf("rejected: %v", err)
	}
	specBefore, specAfter := flatten("", ingress.Object["spec"]), flatten("", created.Object["spec"])
	for path, value := range specBefore {
		if specAfter[path] != value {
			t.Errorf("%s changed from %q to %q", path, value, specAfter[path])
		}
	}
	if len(specAfter) != len(specBefore) {
		t.Errorf("fields were added: %v", specAfter)
	}
}
