package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// TestUpgradeFromAStrategyWithoutPartitionRestartsNoPod applies the StatefulSets as a plugin did that did not render
// spec.updateStrategy.rollingUpdate.
func TestUpgradeFromAStrategyWithoutPartitionRestartsNoPod(t *testing.T) {
	s := newRunningSite(t)
	names := []string{"demo-dhcp", "demo-dns", "demo-proxy"}
	for _, name := range names {
		set := s.statefulSet(name)
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(set)
		s.Must(err)
		o := &unstructured.Unstructured{Object: fields}
		o.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		delete(o.Object, "status")
		unstructured.RemoveNestedField(o.Object, "spec", "updateStrategy", "rollingUpdate")
		s.Must(s.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(setup.Manager), client.ForceOwnership))
		if fields := fmt.Sprint(s.statefulSet(name).ManagedFields); strings.Contains(fields, "f:partition") {
			t.Fatalf("the partition of %s has a manager", name)
		}
	}
	pods := s.podUIDs()
	if out, stderr, code := s.Run("setup", "-f", "FILE", "--dry-run=server"); code != 0 || !strings.HasSuffix(out, "restarts no pod\n") {
		t.Errorf("a dry run exited with %d, stderr %s, stdout %s", code, stderr, out)
	}
	if stderr, code := s.setup(); code != 0 || strings.Contains(stderr, "checking images") {
		t.Errorf("setup exited with %d, stderr %s", code, stderr)
	}
	if now := s.podUIDs(); !slices.Equal(now, pods) {
		t.Errorf("the pods were %s and are %s", pods, now)
	}
	for _, name := range names {
		set := s.statefulSet(name)
		if !strings.Contains(fmt.Sprint(set.ManagedFields), "f:partition") {
			t.Errorf("%s has no manager of the partition", name)
		}
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}
