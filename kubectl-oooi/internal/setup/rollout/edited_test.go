package rollout_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// An edit changes the content of an object that pods of DNS read when they start.
type edit struct {
	object inventory.Entry
	patch  string
	field  []string
}

func (s *runningSite) edits() map[string]edit {
	return map[string]edit{
		"ConfigMap": {
			inventory.Entry{APIVersion: "v1", Kind: "ConfigMap", Namespace: s.Namespace, Name: "demo-dns"},
			`{"data": {"Corefile": ". { erratic }"}}`, []string{"data", "Corefile"},
		},
		"NetworkAttachmentDefinition": {
			inventory.Entry{APIVersion: "k8s.cni.cncf.io/v1", Kind: "NetworkAttachmentDefinition", Namespace: s.Namespace, Name: s.NetworkOf("demo-dns")},
			`{"spec": {"config": "{\"cniVersion\": \"1.0.0\", \"type\": \"bridge\", \"bridge\": \"other\"}"}}`, []string{"spec", "config"},
		},
	}
}

// apply makes the edit as another field manager. Times of managed fields and of containers are in seconds.
func (s *runningSite) apply(e *edit) {
	s.Helper()
	time.Sleep(1100 * time.Millisecond)
	if err := s.Client.Patch(s.Context(), e.object.Object(), client.RawPatch(types.MergePatchType, []byte(e.patch)), client.FieldOwner("kubectl-edit")); err != nil {
		s.Fatal(err)
	}
}

// content returns the edited field of an object.
func (s *runningSite) content(e *edit) string {
	s.Helper()
	o := e.object.Object()
	if err := s.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		s.Fatal(err)
	}
	text, _, _ := unstructured.NestedString(o.Object, e.field...)
	return text
}

// awaitReady waits for at most 30 seconds until a pod is ready.
func (s *runningSite) awaitReady(name string) {
	s.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		pod := &corev1.Pod{}
		err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, pod)
		if err == nil && pod.DeletionTimestamp == nil && isReady(pod) {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("pod %s is not ready: %v", name, err)
		}
	}
}

// TestPodsThatStartedWithAnEditAreReplaced edits an object, and restores it by setup.
func TestPodsThatStartedWithAnEditAreReplaced(t *testing.T) {
	s := newRunningSite(t)
	for name, e := range s.edits() {
		t.Run(name, func(t *testing.T) {
			rendered, before := s.content(&e), s.podUIDs()
			s.apply(&e)
			if stderr, code := s.setup(); code != 1 || !strings.Contains(stderr, "use --force-conflicts") {
				t.Errorf("setup exited with %d: %s", code, stderr)
			}
			if stderr, code := s.setup("--force-conflicts"); code != 0 || !slices.Equal(s.podUIDs(), before) || s.content(&e) != rendered {
				t.Errorf("pods that started before the edit are replaced, or the edit is kept; setup exited with %d: %s", code, stderr)
			}

			s.apply(&e)
			s.deleteDNSPod()
			s.awaitReady("demo-dns-0")
			edited := s.podUIDs()
			want := "restarts pod " + s.Namespace + "/demo-dns-0\n"
			if _, stderr, code := s.Run("diff", "-f", "FILE", "--force-conflicts"); code != 1 || !strings.Contains(stderr, want) {
				t.Errorf("diff exited with %d, want %q in %s", code, want, stderr)
			}
			stderr, code := s.setup("--force-conflicts")
			for _, want := range []string{"Pod " + s.Namespace + "/demo-dns-0 deleted: it started with a configuration that was edited", "dns works"} {
				if code != 0 || !strings.Contains(stderr, want) {
					t.Errorf("setup exited with %d, want %q in %s", code, want, stderr)
				}
			}
			replaced := 0
			for _, pod := range s.podUIDs() {
				if !slices.Contains(edited, pod) {
					replaced++
				}
			}
			if replaced != 1 || s.content(&e) != rendered || s.journal() != "" {
				t.Errorf("%d pods were replaced, want 1; content %s; journal %q", replaced, s.content(&e), s.journal())
			}
			restored := s.podUIDs()
			if stderr, code := s.setup("--force-conflicts"); code != 0 || !slices.Equal(s.podUIDs(), restored) {
				t.Errorf("the second setup replaces pods; it exited with %d: %s", code, stderr)
			}
		})
	}
}

// TestEditIsKeptIfPodsDoNotStartWithoutIt restores an object with which the pod of DNS does not start.
func TestEditIsKeptIfPodsDoNotStartWithoutIt(t *testing.T) {
	s := newRunningSite(t)
	e := s.edits()["ConfigMap"]
	s.apply(&e)
	s.deleteDNSPod()
	s.awaitReady("demo-dns-0")
	edited, present := s.content(&e), s.pod("demo-dns-0").UID
	var next types.UID // of the pod that gets the rendered configuration
	s.behave(func(*corev1.Pod) bool { return false }, func(pod *corev1.Pod) bool {
		if next == "" && pod.Name == "demo-dns-0" && pod.UID != present {
			next = pod.UID
		}
		return pod.UID == next
	})
	stderr, code := s.setup("--force-conflicts")
	if want := "dns is rolled back"; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("setup exited with %d, want %q in %s", code, want, stderr)
	}
	s.awaitReady("demo-dns-0")
	if s.content(&e) != edited || s.journal() != "" {
		t.Errorf("content %s; journal %q", s.content(&e), s.journal())
	}
}
