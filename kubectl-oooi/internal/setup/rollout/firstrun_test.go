package rollout_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/test/lab"
)

// TestFirstSetupEndsWithoutItsImage deletes all workloads, so that setup deploys them as in a first setup, with images
// that cannot be pulled.
func TestFirstSetupEndsWithoutItsImage(t *testing.T) {
	s := newRunningSite(t)
	s.behave(func(*corev1.Pod) bool { return false }, func(pod *corev1.Pod) bool { return pod.Namespace == s.Namespace })
	for _, name := range []string{"demo-dhcp", "demo-dns", "demo-proxy"} {
		s.Must(s.Client.Delete(t.Context(), s.statefulSet(name)))
	}
	lab.Poll(t, "the pods to be deleted", func() bool { return len(s.podUIDs()) == 0 })
	stderr, code := s.setup("--timeout=90s")
	for _, want := range []string{"pods do not become ready: ", "InvalidImageName", "; correct the image or --image-pull-secret, or push the image, and run setup again; the applied objects are kept"} {
		if code != 1 || !strings.Contains(stderr, want) || strings.Contains(stderr, "--timeout 1m30s") {
			t.Errorf("setup exited with %d, want %q in %s", code, want, stderr)
		}
	}
}
