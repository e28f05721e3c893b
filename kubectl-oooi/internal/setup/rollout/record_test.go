package rollout_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
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
	s.Must(os.WriteFile(file, []byte(s.Infra), 0o600))
	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	out := &interrupter{text: text, interrupt: cancel}
	code = cmd.Main(ctx, []string{"kubectl-oooi", "--kubeconfig", s.Kubeconfig, "setup", "-f", file}, genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: out})
	return out.String(), code
}

// startsNot keeps the pods of a component from starting if their first container has an image.
func (s *runningSite) startsNot(image string) {
	no := func(*corev1.Pod) bool { return false }
	s.behave(no, func(pod *corev1.Pod) bool {
		return pod.Labels[batchv1.JobNameLabel] == "" && pod.Spec.Containers[0].Image == image
	})
}

// withDNSImage returns the Infra with another image of DNS.
func (s *runningSite) withDNSImage(image string) string {
	return strings.Replace(s.Infra, "dns: {serverIP: 192.0.2.3", "dns: {serverIP: 192.0.2.3, image: "+image, 1)
}

// TestRevisionThatDoesNotWorkIsRolledBack rolls out images of DNS that do not start and that do, and goes back.
func TestRevisionThatDoesNotWorkIsRolledBack(t *testing.T) {
	s := newRunningSite(t)
	good, image := s.Infra, s.statefulSet("demo-dns").Spec.Template.Spec.Containers[0].Image
	pods := s.podUIDs()
	if stderr, code := s.setup(); code != 0 || s.history() != "deployed" || !slices.Equal(pods, s.podUIDs()) {
		t.Errorf("setup without changes exited with %d, revisions %s: %s", code, s.history(), stderr)
	}

	s.startsNot("example.com/bad:1")
	s.Infra = s.withDNSImage("example.com/bad:1")
	stderr, code := s.setup()
	if want := "everything is rolled back to revision 1; correct the cause and run setup again"; code != 1 || !strings.Contains(stderr, want) || s.history() != "deployed failed" {
		t.Errorf("setup exited with %d, revisions %s, want %q in %s", code, s.history(), want, stderr)
	}
	if now := s.statefulSet("demo-dns").Spec.Template.Spec.Containers[0].Image; now != image || !isReady(s.pod("demo-dns-0")) {
		t.Errorf("DNS has image %s, and had %s", now, image)
	}
	if now := s.podUIDs(); len(now) != len(pods) || now[0] != pods[0] || now[2] != pods[2] {
		t.Errorf("the pods were %s and are %s; only that of DNS may differ", pods, now)
	}

	s.Infra = good
	s.Infra = s.withDNSImage("example.com/good:1")
	s.Expect(0, "setup -f FILE")
	s.expectHistory("superseded failed deployed")
	if out, stderr, code := s.Run("history", "demo", "-n", s.Namespace); code != 0 || strings.Count(out, "\n") != 4 || !strings.Contains(out, "rolling out dns") {
		t.Errorf("history exited with %d, stderr %s, stdout\n%s", code, stderr, out)
	}
	s.Expect(0, "rollback demo -n $NS")
	s.expectHistory("superseded failed superseded deployed")
	if now := s.statefulSet("demo-dns").Spec.Template.Spec.Containers[0].Image; now != image {
		t.Errorf("after the rollback DNS has image %s, and had %s", now, image)
	}
	s.Infra = good
	s.Expect(0, "setup -f FILE")
	s.expectHistory("superseded failed superseded deployed")
	for number, want := range map[string]string{"9": "has no revision 9", "x": "is not a revision"} {
		if _, stderr, code := s.Run("rollback", "demo", number, "-n", s.Namespace); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("rollback to %s exited with %d: %s", number, code, stderr)
		}
	}
}

func TestInterruptedSetupIsRolledBack(t *testing.T) {
	s := newRunningSite(t)
	s.startsNot("example.com/bad:1")
	good, image := s.Infra, s.statefulSet("demo-dns").Spec.Template.Spec.Containers[0].Image
	s.Infra = s.withDNSImage("example.com/bad:1")
	stderr, code := s.interruptSetup("StatefulSet " + s.Namespace + "/demo-dns configured")
	if code != 130 || !strings.Contains(stderr, "restoring revision 1\n") || s.history() != "deployed failed" {
		t.Fatalf("setup exited with %d, revisions %s, stderr %s", code, s.history(), stderr)
	}
	if now := s.statefulSet("demo-dns").Spec.Template.Spec.Containers[0].Image; now != image {
		t.Errorf("DNS has image %s, and had %s", now, image)
	}
	s.awaitReady("demo-dns-0")
	s.Infra = good
	s.Expect(0, "setup -f FILE")
}

// TestKilledSetupIsRolledBackFirst kills a setup after it deleted the StatefulSet of DHCP, which it replaces by two. The checks
// of the next setup refuse it; DHCP must not wait for these.
func TestKilledSetupIsRolledBackFirst(t *testing.T) {
	s := newRunningSite(t)
	no := func(*corev1.Pod) bool { return false }
	s.behave(func(pod *corev1.Pod) bool {
		return strings.HasPrefix(pod.Name, "demo-dhcp-192") && pod.Labels[batchv1.JobNameLabel] == ""
	}, no)
	good := s.Infra
	s.Infra = strings.Replace(s.Infra, "dhcp: {serverIP: 192.0.2.2,", "dhcp: {instances: [{ip: 192.0.2.7}, {ip: 192.0.2.8}],", 1)
	s.killSetup("StatefulSet " + s.Namespace + "/demo-dhcp deleted")
	if s.exists("demo-dhcp") || s.history() != "deployed pending" {
		t.Fatalf("the killed setup left StatefulSet demo-dhcp, or the revisions %s", s.history())
	}
	stderr, code := s.setup("--image", "example.com/missing:1")
	restored, checked := strings.Index(stderr, "revision 2 is unfinished; restoring revision 1\n"), strings.Index(stderr, "checking images")
	if code != 1 || restored < 0 || checked < restored || !strings.Contains(stderr, "nothing was applied") {
		t.Errorf("setup exited with %d; want a rollback before the checks:\n%s", code, stderr)
	}
	if !s.exists("demo-dhcp") || !isReady(s.pod("demo-dhcp-0")) || s.exists("demo-dhcp-192-0-2-7") || s.history() != "deployed failed" {
		t.Errorf("DHCP is not as before the killed setup; pods: %s, revisions %s", s.podUIDs(), s.history())
	}
	s.Infra = good
	pods := s.podUIDs()
	if stderr, code := s.setup(); code != 0 || !slices.Equal(pods, s.podUIDs()) {
		t.Errorf("the previous input: setup exited with %d, pods before %s, after %s: %s", code, pods, s.podUIDs(), stderr)
	}
}

// TestRollbackThatFailsIsRepeated makes a change and its rollback fail, and then runs setup with the previous input.
func TestRollbackThatFailsIsRepeated(t *testing.T) {
	s := newRunningSite(t)
	no := func(*corev1.Pod) bool { return false }
	good := s.Infra
	s.behave(no, func(pod *corev1.Pod) bool { return strings.HasPrefix(pod.Name, "demo-dns") && !isReady(pod) })
	s.Infra = strings.Replace(s.Infra, "serverIP: 192.0.2.3", "serverIP: 192.0.2.5", 1)
	s.Expect(1, "setup -f FILE", "restoring revision 1: ")
	s.expectHistory("deployed pending")
	s.behave(no, no)
	s.Infra = good
	if stderr, code := s.setup(); code != 0 || !strings.Contains(stderr, "revision 2 is unfinished; restoring revision 1\n") || strings.Contains(stderr, "another setup") || s.history() != "superseded failed deployed" {
		t.Fatalf("setup exited with %d, revisions %s, stderr %s", code, s.history(), stderr)
	}
}

// TestForgedRecordIsNotApplied stores a revision with an object that setup does not render, and one that is not compressed.
func TestForgedRecordIsNotApplied(t *testing.T) {
	s := newRunningSite(t)
	record := func(data map[string][]byte) *corev1.Secret {
		o := s.Records()[0].DeepCopy()
		o.ResourceVersion, o.UID, o.Name = "", "", "oooi.v1."+s.Namespace+".demo.v2"
		o.Data = data
		return o
	}
	text, err := json.Marshal(map[string]any{"objects": []any{map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "forged", "namespace": s.Namespace}}}})
	s.Must(err)
	for want, data := range map[string]map[string][]byte{
		"has Secret " + s.Namespace + "/forged, which setup does not create for it": s.RecordData(string(text)),
		"delete the Secret": {"record": []byte("x")},
	} {
		forged := record(data)
		s.Must(s.Client.Create(t.Context(), forged))
		s.Expect(1, "rollback demo 2 -n $NS", want)
		s.Must(s.Client.Delete(t.Context(), forged))
	}
	s.Expect(0, "setup -f FILE")
}

// TestSiteWithoutRecordsIsTakenOver sets up a site as a version without records did. An upgrade that does not work must be rolled
// back.
func TestSiteWithoutRecordsIsTakenOver(t *testing.T) {
	s := newRunningSite(t)
	s.DeleteRecords()
	image := s.statefulSet("demo-dns").Spec.Template.Spec.Containers[0].Image
	legacy := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "demo-oooi-inventory"}, Data: map[string]string{
		"inventory.yaml": "[]", "setup.yaml": "image: " + image + "\ngiven: [image]\nversion: (devel)\n",
	}}
	s.Must(s.Client.Create(t.Context(), legacy))
	pods := s.podUIDs()
	s.startsNot("example.com/bad:1")
	s.Expect(1, "setup -f FILE --image example.com/bad:1", "everything is rolled back to revision 1")
	s.expectHistory("deployed failed")
	if now := s.statefulSet("demo-dns").Spec.Template.Spec.Containers[0].Image; now != image || len(s.podUIDs()) != len(pods) {
		t.Errorf("DNS has image %s, and had %s", now, image)
	}
	pods = s.podUIDs()
	if stderr, code := s.setup(); code != 0 || !slices.Equal(pods, s.podUIDs()) {
		t.Errorf("setup exited with %d, pods before %s, after %s: %s", code, pods, s.podUIDs(), stderr)
	}
	if stderr, code := s.setup("--image", "example.com/good:1"); code != 0 || !strings.HasSuffix(s.history(), "deployed") {
		t.Errorf("setup exited with %d, revisions %s: %s", code, s.history(), stderr)
	}
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(legacy), legacy); !apierrors.IsNotFound(err) {
		t.Errorf("reading the inventory: %v, want that it does not exist", err)
	}
}
