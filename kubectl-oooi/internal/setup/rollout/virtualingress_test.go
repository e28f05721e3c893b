package rollout_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

const virtualIngress = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: VirtualIngress
metadata: {name: shop, namespace: NS}
spec: {rules: [{host: shop.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {matchLabels: {app: shop}, port: {number: 80}}}}]}}]}
`

// TestVirtualIngressOnRequest checks that setup deploys the VirtualIngress controller, and teardown deletes it, only
// with --virtual-ingress. Without the flag teardown keeps VirtualIngresses, because their Ingresses would be deleted
// with them.
func TestVirtualIngressOnRequest(t *testing.T) {
	s := newSite(t)
	s.DeleteSystemNamespace()
	before := slices.DeleteFunc(s.Everything(), func(o string) bool { // left by other tests
		return strings.Contains(o, "oooi-") || strings.HasPrefix(o, "CustomResourceDefinition") && strings.Contains(o, "hostedcluster.densityops.com")
	})
	const controller = "Deployment oooi-system/oooi-ingress"
	if stderr := s.Setup(); strings.Contains(stderr, "oooi-ingress") {
		t.Errorf("the controller is deployed without --virtual-ingress: %s", stderr)
	}
	stderr := s.Setup("--virtual-ingress", "--image", "registry.example.com/oooi:next")
	for _, what := range []string{controller, "ClusterRole oooi-ingress-aliases", "Role oooi-system/oooi-ingress", "NetworkPolicy oooi-system/oooi-ingress"} {
		if !strings.Contains(stderr, what+" created\n") {
			t.Errorf("%s was not created:\n%s", what, stderr)
		}
	}
	if stderr := s.Setup("--virtual-ingress", "--image", "registry.example.com/oooi:next"); stderr != "" {
		t.Errorf("a second setup changes objects: %s", stderr)
	}
	if image := s.image("oooi-ingress"); image != "registry.example.com/oooi:next" {
		t.Errorf("the image of the controller is %s", image)
	}
	if stderr := s.Setup("--image", "registry.example.com/oooi:other"); strings.Contains(stderr, "oooi-ingress") {
		t.Errorf("setup without --virtual-ingress changes the controller: %s", stderr)
	}
	s.Apply(strings.ReplaceAll(virtualIngress, "NS", s.Namespace))

	out, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes", "--crds")
	if code != 0 || strings.Contains(out, "oooi-ingress") ||
		!strings.Contains(stderr, controller+" is kept: use --virtual-ingress to delete it\n") || !strings.Contains(stderr, "Namespace oooi-system is kept: ") ||
		!strings.Contains(stderr, "CustomResourceDefinition virtualingresses.hostedcluster.densityops.com is kept: VirtualIngress "+s.Namespace+"/shop exists") {
		t.Errorf("teardown exited with %d, stderr\n%s%s", code, stderr, out)
	}
	s.image("oooi-ingress")
	shop := &unstructured.Unstructured{}
	shop.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("VirtualIngress"))
	if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "shop"}, shop); err != nil || shop.GetDeletionTimestamp() != nil {
		t.Errorf("the VirtualIngress is not kept: %v", err)
	}

	s.Setup()
	out, stderr, code = s.Run("teardown", "demo", "-n", s.Namespace, "--dry-run=client", "--virtual-ingress")
	if code != 0 || !strings.Contains(out, controller+"\n") {
		t.Errorf("teardown exited with %d, stderr\n%s%s", code, stderr, out)
	}
	s.Expect(0, "teardown demo -n $NS --yes --crds --virtual-ingress")
	s.Unchanged(before)
	s.WaitForSystemNamespace()
}

// TestTeardownKeepsAControllerInstalledByHelm creates the controller with the label that Helm sets.
func TestTeardownKeepsAControllerInstalledByHelm(t *testing.T) {
	s := newSite(t)
	s.Setup()
	s.Apply(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: oooi-ingress, namespace: oooi-system, labels: {app.kubernetes.io/managed-by: Helm}}
spec:
  selector: {matchLabels: {app: x}}
  template: {metadata: {labels: {app: x}}, spec: {containers: [{name: x, image: x}]}}
`)
	_, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes", "--virtual-ingress")
	if code != 0 || !strings.Contains(stderr, "Deployment oooi-system/oooi-ingress is kept: setup did not create it\n") || strings.Contains(stderr, "Namespace oooi-system deleted") {
		t.Errorf("teardown exited with %d, stderr\n%s", code, stderr)
	}
	s.image("oooi-ingress")
	controller := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "oooi-system", Name: "oooi-ingress"}}
	if err := s.Client.Delete(t.Context(), controller); err != nil {
		t.Error(err)
	}
}

// image returns the image of a Deployment in oooi-system.
func (s *site) image(deployment string) string {
	s.Helper()
	d := &appsv1.Deployment{}
	s.Must(s.Client.Get(s.Context(), client.ObjectKey{Namespace: "oooi-system", Name: deployment}, d))
	return d.Spec.Template.Spec.Containers[0].Image
}
