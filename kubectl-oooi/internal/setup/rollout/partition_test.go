package rollout_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// setPartition sets a partition, so that the StatefulSet controller keeps the pod at its revision.
func (s *runningSite) setPartition(name string) {
	s.Helper()
	patch := `{"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}}`
	if err := s.Client.Patch(s.Context(), s.statefulSet(name), client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.FieldOwner("kubectl-patch")); err != nil {
		s.Fatal(err)
	}
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
	if stderr, code := s.setup("--force-conflicts"); code != 0 {
		t.Fatalf("setup --force-conflicts exited with %d: %s", code, stderr)
	}
	set := s.statefulSet("demo-dns")
	if partition := *set.Spec.UpdateStrategy.RollingUpdate.Partition; partition != 0 {
		t.Errorf("the partition is %d", partition)
	}
	pod := s.pod("demo-dns-0")
	if revision := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; revision != set.Status.UpdateRevision || slices.Contains(pods, pod.Name+" "+string(pod.UID)) {
		t.Errorf("the pod is of revision %s, want %s; the pods before were %s", revision, set.Status.UpdateRevision, pods)
	}
}

// TestPodOfAnEarlierRevisionIsNotRolledOut keeps a ready pod at the previous revision by a partition. kstatus
// considers the StatefulSet complete; setup must not.
func TestPodOfAnEarlierRevisionIsNotRolledOut(t *testing.T) {
	s := newRunningSite(t)
	s.setPartition("demo-dns")
	patch := `{"spec": {"template": {"metadata": {"annotations": {"x": "y"}}}}}`
	set := s.statefulSet("demo-dns")
	if err := s.Client.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(set)
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: fields}
	o.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	plan := &setup.Plan{Objects: []*unstructured.Unstructured{o}, Infra: &v1alpha1.Infra{}}
	plan.Infra.Namespace, plan.Infra.Name = s.Namespace, "demo"
	wait := func(long time.Duration) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		var out strings.Builder
		err := (&setup.Waiter{Client: s.Client, Out: &out}).Wait(ctx, plan)
		return out.String(), err
	}
	uid := s.pod("demo-dns-0").UID
	const want = "/demo-dns: pod demo-dns-0 is of an earlier revision, and spec.updateStrategy.rollingUpdate.partition is 1"
	if out, err := wait(3 * time.Second); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("with a partition: %v, want %s\n%s", err, want, out)
	}
	s.behave(func(*corev1.Pod) bool { return false }, func(pod *corev1.Pod) bool { return pod.Name == "demo-dns-0" })
	// It would be created again with the earlier revision.
	if out, err := wait(3 * time.Second); err == nil || strings.Contains(out, "deleted") || s.pod("demo-dns-0").UID != uid {
		t.Errorf("a pod that is not ready, with a partition: %v\n%s", err, out)
	}
	s.behave(func(*corev1.Pod) bool { return false }, func(*corev1.Pod) bool { return false })
	patch = `{"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}`
	if err := s.Client.Patch(t.Context(), s.statefulSet("demo-dns"), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	if out, err := wait(time.Minute); err != nil || s.pod("demo-dns-0").UID == uid {
		t.Errorf("without a partition: %v\n%s", err, out)
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
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{Object: fields}
		o.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		delete(o.Object, "status")
		unstructured.RemoveNestedField(o.Object, "spec", "updateStrategy", "rollingUpdate")
		if err := s.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(setup.Manager), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
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

// TestJournalIsRemovedBySuccessfulSetup makes a change and its rollback fail, and then runs setup with the
// previous input, which changes nothing.
func TestJournalIsRemovedBySuccessfulSetup(t *testing.T) {
	s := newRunningSite(t)
	no := func(*corev1.Pod) bool { return false }
	good := s.Infra
	s.behave(no, func(pod *corev1.Pod) bool { return strings.HasPrefix(pod.Name, "demo-dns") && !isReady(pod) })
	s.Infra = strings.Replace(s.Infra, "serverIP: 192.0.2.3", "serverIP: 192.0.2.5", 1)
	if stderr, code := s.setup(); code != 1 || !strings.Contains(stderr, "rolling back dns: ") || s.journal() == "" {
		t.Fatalf("setup exited with %d, journal %q, stderr %s", code, s.journal(), stderr)
	}
	s.behave(no, no)
	s.Infra = good
	if stderr, code := s.setup(); code != 0 || !strings.Contains(stderr, "every component works") {
		t.Fatalf("setup exited with %d, stderr %s", code, stderr)
	}
	if j := s.journal(); j != "" {
		t.Errorf("the journal is still there:\n%s", j)
	}
	if stderr, code := s.setup("--image", "example.com/missing:1"); code != 1 || !strings.Contains(stderr, "nothing was applied") || strings.Contains(stderr, "rolled back") {
		t.Errorf("setup without an image exited with %d, stderr %s", code, stderr)
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// TestUnfinishedRolloutIsRestoredBeforeTheChecks kills a setup after it deleted the StatefulSet of DHCP, which it
// replaces by two. The next setup is refused by its checks; DHCP must not wait for these.
func TestUnfinishedRolloutIsRestoredBeforeTheChecks(t *testing.T) {
	s := newRunningSite(t)
	no := func(*corev1.Pod) bool { return false }
	s.behave(func(pod *corev1.Pod) bool {
		return strings.HasPrefix(pod.Name, "demo-dhcp-192") && pod.Labels[batchv1.JobNameLabel] == ""
	}, no)
	good := s.Infra
	s.Infra = strings.Replace(s.Infra, "dhcp: {serverIP: 192.0.2.2,", "dhcp: {instances: [{ip: 192.0.2.7}, {ip: 192.0.2.8}],", 1)
	s.killSetup("StatefulSet " + s.Namespace + "/demo-dhcp deleted")
	if s.exists("demo-dhcp") || s.journal() == "" {
		t.Fatal("the killed setup left StatefulSet demo-dhcp, or no journal")
	}
	stderr, code := s.setup("--image", "example.com/missing:1")
	restored, checked := strings.Index(stderr, "dhcp is rolled back\n"), strings.Index(stderr, "checking images")
	if code != 1 || restored < 0 || checked < restored {
		t.Errorf("setup exited with %d; want a rollback before the checks:\n%s", code, stderr)
	}
	const want = "this change was not applied; dhcp, which an earlier setup left unfinished, was rolled back"
	if !strings.Contains(stderr, want) || strings.Contains(stderr, "nothing was applied") {
		t.Errorf("want %q in %s", want, stderr)
	}
	if !s.exists("demo-dhcp") || !isReady(s.pod("demo-dhcp-0")) || s.exists("demo-dhcp-192-0-2-7") || s.journal() != "" {
		t.Errorf("DHCP is not as before the killed setup; pods: %s, journal: %s", s.podUIDs(), s.journal())
	}
	s.Infra = good
	pods := s.podUIDs()
	if stderr, code := s.setup(); code != 0 || !slices.Equal(pods, s.podUIDs()) {
		t.Errorf("the previous input: setup exited with %d, pods before %s, after %s: %s", code, pods, s.podUIDs(), stderr)
	}
}
