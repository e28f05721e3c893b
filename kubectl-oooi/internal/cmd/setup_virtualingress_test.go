package cmd

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

// TestVirtualIngressOnRequest has setup install what keeps Ingresses where it is asked to, and
// teardown take it away where it is asked to. VirtualIngresses stay until then, since their
// Ingresses would go with them.
func TestVirtualIngressOnRequest(t *testing.T) {
	s := newSite(t)
	s.WithoutSystem()
	before := slices.DeleteFunc(s.Everything(), func(o string) bool { // of the test before
		return strings.Contains(o, "oooi-") || strings.HasPrefix(o, "CustomResourceDefinition") && strings.Contains(o, "hostedcluster.densityops.com")
	})
	const controller = "Deployment oooi-system/oooi-ingress"
	if said := s.Setup(); strings.Contains(said, "oooi-ingress") {
		t.Errorf("nobody has asked for it: %s", said)
	}
	said := s.Setup("--virtual-ingress", "--image", "registry.example.com/oooi:next")
	for _, what := range []string{controller, "ClusterRole oooi-ingress-aliases", "Role oooi-system/oooi-ingress", "NetworkPolicy oooi-system/oooi-ingress"} {
		if !strings.Contains(said, what+" created\n") {
			t.Errorf("nothing is said of %s:\n%s", what, said)
		}
	}
	if said := s.Setup("--virtual-ingress", "--image", "registry.example.com/oooi:next"); said != "" {
		t.Errorf("the second time it says %s", said)
	}
	if image := s.image("oooi-ingress"); image != "registry.example.com/oooi:next" {
		t.Errorf("its image is %s", image)
	}
	if said := s.Setup("--image", "registry.example.com/oooi:other"); strings.Contains(said, "oooi-ingress") {
		t.Errorf("without the flag it does not stay as it is: %s", said)
	}
	s.Apply(strings.ReplaceAll(virtualIngress, "NS", s.Namespace))

	out, said, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes", "--crds")
	if code != 0 || strings.Contains(out, "oooi-ingress") ||
		!strings.Contains(said, controller+" and its namespace are kept: use --virtual-ingress to delete it\n") ||
		!strings.Contains(said, "CustomResourceDefinition virtualingresses.hostedcluster.densityops.com is kept: VirtualIngresses exist") {
		t.Errorf("teardown ended with %d and said\n%s%s", code, said, out)
	}
	s.image("oooi-ingress")
	shop := &unstructured.Unstructured{}
	shop.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("VirtualIngress"))
	if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "shop"}, shop); err != nil || shop.GetDeletionTimestamp() != nil {
		t.Errorf("the VirtualIngress does not stay: %v", err)
	}

	s.Setup()
	out, said, code = s.Run("teardown", "demo", "-n", s.Namespace, "--dry-run=client", "--virtual-ingress")
	if code != 0 || !strings.Contains(out, controller+"\n") || !strings.Contains(said, "VirtualIngress "+s.Namespace+"/shop and all others are kept") {
		t.Errorf("teardown ended with %d and said\n%s%s", code, said, out)
	}
	if _, said, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes", "--crds", "--virtual-ingress"); code != 0 {
		t.Fatalf("teardown ended with %d and said\n%s", code, said)
	}
	s.Unchanged(before)
	s.System()
}

// TestTeardownLeavesAControllerOfSomebodyElse has one that Helm has installed beside ours.
func TestTeardownLeavesAControllerOfSomebodyElse(t *testing.T) {
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
	_, said, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes", "--virtual-ingress")
	if code != 0 || !strings.Contains(said, "Deployment oooi-system/oooi-ingress and its namespace are kept: setup did not create it") || strings.Contains(said, "Namespace oooi-system deleted") {
		t.Errorf("teardown ended with %d and said\n%s", code, said)
	}
	s.image("oooi-ingress")
	theirs := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "oooi-system", Name: "oooi-ingress"}}
	if err := s.Client.Delete(t.Context(), theirs); err != nil {
		t.Error(err)
	}
}

// image is that of a Deployment of what there is once.
func (s *site) image(deployment string) string {
	s.Helper()
	d := &appsv1.Deployment{}
	if err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: "oooi-system", Name: deployment}, d); err != nil {
		s.Fatal(err)
	}
	return d.Spec.Template.Spec.Containers[0].Image
}
