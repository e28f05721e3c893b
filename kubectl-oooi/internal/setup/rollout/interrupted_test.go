package rollout_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
	"github.com/densityops/oooi/test/lab"
)

// An interrupter interrupts setup when it prints a text.
type interrupter struct {
	strings.Builder

	text      string
	interrupt context.CancelCauseFunc
}

func (w *interrupter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.interrupt(cmd.InterruptedError{Signal: syscall.SIGINT})
	}
	return w.Builder.Write(p)
}

// interruptSetup runs setup, interrupts it when it prints a text to standard error, and returns its standard error and
// exit code.
func (s *runningSite) interruptSetup(text string) (stderr string, code int) {
	s.Helper()
	file := filepath.Join(s.TempDir(), "infra.yaml")
	if err := os.WriteFile(file, []byte(s.Infra), 0o600); err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	out := &interrupter{text: text, interrupt: cancel}
	code = cmd.Main(ctx, []string{"kubectl-oooi", "--kubeconfig", s.Kubeconfig, "setup", "-f", file}, genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: out})
	return out.String(), code
}

// startDNSAfterCheck keeps the pod of DNS from starting until a check runs. Pods for which invalid is true never start.
func (s *runningSite) startDNSAfterCheck(invalid func(*corev1.Pod) bool) {
	var checked atomic.Bool
	s.behave(func(pod *corev1.Pod) bool {
		if pod.Labels[batchv1.JobNameLabel] != "" {
			checked.Store(true)
		}
		return pod.Name == "demo-dns-0" && !checked.Load()
	}, invalid)
}

// setImage returns the Infra with another image of DNS.
func (s *runningSite) setImage(image string) string {
	return strings.Replace(s.Infra, "dns: {serverIP: 192.0.2.3", "dns: {serverIP: 192.0.2.3, image: "+image, 1)
}

// expectRefusedImage runs setup with an image of DNS that cannot be pulled, which must keep the previous one.
func (s *runningSite) expectRefusedImage(want string) {
	s.Helper()
	good := s.Infra
	image := s.statefulSet("demo-dns").Spec.Template.Spec.Containers[0].Image
	s.Infra = s.setImage("example.com/missing:1")
	stderr, code := s.setup()
	if code != 1 || !strings.Contains(stderr, "checking images") || !strings.Contains(stderr, want) {
		s.Errorf("setup exited with %d, want %q in %s", code, want, stderr)
	}
	if now := s.statefulSet("demo-dns").Spec.Template.Spec.Containers[0].Image; now != image {
		s.Errorf("the image was %s and is %s", image, now)
	}
	s.Infra = good
}

// TestInterruptedRollbackIsUnfinishedUntilThePodIsReady interrupts a setup that waits for DNS. Its previous pod is not
// ready yet when the next setup, with an invalid image, starts.
func TestInterruptedRollbackIsUnfinishedUntilThePodIsReady(t *testing.T) {
	s := newRunningSite(t)
	no := func(*corev1.Pod) bool { return false }
	good := s.Infra
	s.behave(func(pod *corev1.Pod) bool { return pod.Name == "demo-dns-0" && !isReady(pod) }, no)
	s.Infra = strings.Replace(good, "serverIP: 192.0.2.3", "serverIP: 192.0.2.5", 1)
	stderr, code := s.interruptSetup("/demo-dns: pod demo-dns-0: ")
	if code != 130 || !strings.Contains(stderr, "dns is rolled back, but is not ready yet") || s.journal() == "" {
		t.Fatalf("setup exited with %d, journal %q, stderr %s", code, s.journal(), stderr)
	}
	s.Infra = good
	s.startDNSAfterCheck(no)
	s.expectRefusedImage("this change was not applied; dns, which an earlier setup left unfinished, was rolled back")
	if !isReady(s.pod("demo-dns-0")) || s.journal() != "" {
		t.Errorf("DNS is not as before the interrupted setup; journal: %s", s.journal())
	}
}

// deleteDNSPod deletes the pod of DNS, when the next one cannot be taken for the first one of its StatefulSet.
func (s *runningSite) deleteDNSPod() {
	s.Helper()
	time.Sleep(time.Until(s.statefulSet("demo-dns").CreationTimestamp.Add(7 * time.Second)))
	if err := s.Client.Delete(s.Context(), s.pod("demo-dns-0")); err != nil {
		s.Fatal(err)
	}
}

// TestRestartingPodCountsAsWorking deletes the pod of DNS before setup runs.
func TestRestartingPodCountsAsWorking(t *testing.T) {
	s := newRunningSite(t)
	s.startDNSAfterCheck(func(*corev1.Pod) bool { return false })
	s.deleteDNSPod()
	s.expectRefusedImage("nothing was applied")
	revision := s.statefulSet("demo-dns").Status.UpdateRevision
	s.startDNSAfterCheck(func(pod *corev1.Pod) bool {
		return pod.Name == "demo-dns-0" && pod.Labels[appsv1.ControllerRevisionHashLabelKey] != revision
	})
	s.deleteDNSPod()
	s.Infra = s.setImage("example.com/fails:1")
	if stderr, code := s.setup(); code != 1 || !strings.Contains(stderr, "dns is rolled back; ") {
		t.Errorf("setup exited with %d, stderr %s", code, stderr)
	}
	if now := s.statefulSet("demo-dns").Status.UpdateRevision; now != revision || !isReady(s.pod("demo-dns-0")) {
		t.Errorf("DNS was of revision %s, and is of revision %s", revision, now)
	}
}

// TestPodsThatFailedBefore changes the image of DNS to one with which its pod does not start, as another field manager.
func TestPodsThatFailedBefore(t *testing.T) {
	s := newRunningSite(t)
	s.behave(func(*corev1.Pod) bool { return false }, func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return strings.HasPrefix(c.Image, "example.com/invalid") })
	})
	patch := `{"spec": {"template": {"spec": {"containers": [{"name": "coredns", "image": "example.com/invalid:1"}]}}}}`
	if err := s.Client.Patch(t.Context(), s.statefulSet("demo-dns"), client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.FieldOwner("kubectl-patch")); err != nil {
		t.Fatal(err)
	}
	lab.Poll(t, "the pod of DNS to fail", func() bool {
		pod := &corev1.Pod{}
		err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "demo-dns-0"}, pod)
		return err == nil && pod.Status.Phase == corev1.PodPending && len(pod.Status.ContainerStatuses) > 0 && s.statefulSet("demo-dns").Status.ReadyReplicas == 0
	})
	good := s.Infra
	s.Infra = s.setImage("example.com/invalid:2")
	if stderr, code := s.setup("--force-conflicts"); code != 1 || !strings.Contains(stderr, "dns did not work before this change either, and is kept as applied") {
		t.Errorf("setup exited with %d, stderr %s", code, stderr)
	}
	s.Infra = good
	if stderr, code := s.setup("--force-conflicts"); code != 0 || !isReady(s.pod("demo-dns-0")) {
		t.Errorf("setup with the previous image exited with %d, stderr %s", code, stderr)
	}
}

// TestJournalInTheInfrasNamespaceIsNotApplied stores a journal where users who may not change control can write it.
func TestJournalInTheInfrasNamespaceIsNotApplied(t *testing.T) {
	s := newRunningSite(t)
	journal := `
component: dns
before:
- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: ` + s.Namespace + `-forged}, rules: []}
absent: [{apiVersion: apps/v1, kind: StatefulSet, namespace: ` + s.Namespace + `, name: demo-dns}]
`
	for _, name := range []string{"demo-oooi-inventory", s.Namespace + ".demo-oooi-rollout"} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
		if _, err := controllerutil.CreateOrUpdate(t.Context(), s.Client, m, func() error {
			m.Data = map[string]string{"rollout.yaml": journal, "inventory.yaml": m.Data["inventory.yaml"], "setup.yaml": m.Data["setup.yaml"]}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	before := s.podUIDs()
	if stderr, code := s.setup(); code != 0 || strings.Contains(stderr, "unfinished") {
		t.Errorf("setup exited with %d: %s", code, stderr)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-forged"}}
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(role), role); !apierrors.IsNotFound(err) {
		t.Errorf("reading the ClusterRole of the forged journal: %v, want that it does not exist", err)
	}
	if now := s.podUIDs(); !slices.Equal(now, before) {
		t.Errorf("pods were %v and are %v", before, now)
	}
}

// TestStuckPodThatDiffersIsCreatedAgain changes the image of the pod of DNS, and not of its StatefulSet, to one with
// which it does not start.
func TestStuckPodThatDiffersIsCreatedAgain(t *testing.T) {
	s := newRunningSite(t)
	s.behave(func(*corev1.Pod) bool { return false }, func(pod *corev1.Pod) bool {
		return strings.HasPrefix(pod.Spec.Containers[0].Image, "example.com/invalid")
	})
	pod := s.pod("demo-dns-0")
	if err := s.Client.Patch(t.Context(), pod, client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec": {"containers": [{"name": "coredns", "image": "example.com/invalid:1"}]}}`))); err != nil {
		t.Fatal(err)
	}
	lab.Poll(t, "the pod of DNS to fail", func() bool { return !isReady(s.pod("demo-dns-0")) })
	stderr, code := s.setup()
	if want := "Pod " + s.Namespace + "/demo-dns-0 deleted: it is not ready, and differs from what"; code != 0 || strings.Count(stderr, want) != 1 {
		t.Errorf("setup exited with %d, want once %q in %s", code, want, stderr)
	}
	if !isReady(s.pod("demo-dns-0")) {
		t.Error("the pod of DNS is not ready")
	}
}
