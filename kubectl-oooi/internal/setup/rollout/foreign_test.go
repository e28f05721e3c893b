package rollout_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestFieldsWithWhichPodsDoNotStart adds a field to the pods of DNS as another field manager, so that they do not
// start. Setup must not wait for --timeout, and name the field and the option that removes it.
func TestFieldsWithWhichPodsDoNotStart(t *testing.T) {
	s := newRunningSite(t)
	s.behave(func(*corev1.Pod) bool { return false }, func(pod *corev1.Pod) bool { return len(pod.Spec.NodeSelector) > 0 })
	patch := `{"spec": {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}}}`
	if err := s.Client.Patch(t.Context(), s.statefulSet("demo-dns"), client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.FieldOwner("kubectl-patch")); err != nil {
		t.Fatal(err)
	}
	stderr, code := s.setup("--timeout=1h")
	_, failed, _ := strings.Cut(stderr, "checking that every component works: ")
	for _, want := range []string{"pod demo-dns-0", ".spec.template.spec.nodeSelector", `"kubectl-patch"`, "use --force-conflicts to remove it"} {
		if code != 1 || !strings.Contains(failed, want) {
			t.Errorf("setup exited with %d, want %s in %s", code, want, stderr)
		}
	}
	if stderr, code := s.setup("--force-conflicts"); code != 0 {
		t.Fatalf("setup --force-conflicts exited with %d: %s", code, stderr)
	}
	if selector := s.statefulSet("demo-dns").Spec.Template.Spec.NodeSelector; len(selector) > 0 {
		t.Errorf("the StatefulSet has node selector %v", selector)
	}
}
