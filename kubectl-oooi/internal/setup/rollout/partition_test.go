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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// setPartition sets a partition, so that the StatefulSet controller keeps the pod at its revision.
func (s *runningSite) setPartition(name string) {
	s.Helper()
	patch := `{"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}}`
	s.Must(s.Client.Patch(s.Context(), s.statefulSet(name), client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.FieldOwner("kubectl-patch")))
}

// TestPartitionOfAnotherManagerIsAConflict sets a partition, with which the StatefulSet controller keeps DNS at
// its present address, as another field manager. Setup must refuse a new address, to which DHCP would direct
// clients.
func TestPartitionOfAnotherManagerIsAConflict(t *testing.T) {
	s := newRunningSite(t)
	s.setPartition("demo-dns")
	pods := s.podUIDs()
	s.Infra = strings.Replace(s.Infra, "serverIP: 192.0.2.3", "serverIP: 192.0.2.5", 1)
	for _, command := range []string{"setup", "diff"} {
		_, stderr, code := s.Run(command, "-f", "FILE")
		for _, want := range []string{"StatefulSet " + s.Namespace + "/demo-dns", `"kubectl-patch"`, ".spec.updateStrategy.rollingUpdate.partition", "--force-conflicts"} {
			if code == 0 || !strings.Contains(stderr, want) {
				t.Errorf("%s exited with %d, want %s in %s", command, code, want, stderr)
			}
		}
	}
	if now := s.podUIDs(); !slices.Equal(now, pods) {
		t.Errorf("the pods were %s and are %s", pods, now)
	}
	s.Expect(0, "setup -f FILE --force-conflicts")
	set := s.statefulSet("demo-dns")
	if partition := *set.Spec.UpdateStrategy.RollingUpdate.Partition; partition != 0 {
		t.Errorf("the partition is %d", partition)
	}
	pod := s.pod("demo-dns-0")
	if revision := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; revision != set.Status.UpdateRevision || slices.Contains(pods, pod.Name+" "+string(pod.UID)) {
		t.Errorf("the pod is of revision %s, want %s; the pods before were %s", revision, set.Status.UpdateRevision, pods)
	}
}

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
