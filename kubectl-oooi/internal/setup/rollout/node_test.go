package rollout_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRequestsThatNoNodeHasAreRefused changes the memory request of DNS.
func TestRequestsThatNoNodeHasAreRefused(t *testing.T) {
	s := newRunningSite(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
	if err := s.Client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Client.Delete(s.AfterTest(), node); err != nil {
			t.Error(err)
		}
	})
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi")}
	if err := s.Client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	good, pods := s.Infra, s.podUIDs()
	requests := func(memory string) (string, int) {
		t.Helper()
		s.Infra = strings.Replace(good, "dns: {serverIP: 192.0.2.3", "dns: {serverIP: 192.0.2.3, resources: {requests: {memory: "+memory+"}}", 1)
		return s.setup()
	}
	want := "the pod of StatefulSet " + s.Namespace + "/demo-dns requests 9Gi of memory, and no node has more than 8Gi; lower the requests in the Infra's resources"
	if stderr, code := requests("9Gi"); code != 1 || !strings.Contains(stderr, want) || !strings.Contains(stderr, "nothing was applied") || !slices.Equal(pods, s.podUIDs()) {
		t.Errorf("setup exited with %d, want %q in %s", code, want, stderr)
	}
	if stderr, code := requests("7Gi"); code != 0 {
		t.Errorf("setup exited with %d: %s", code, stderr)
	}
}

// TestPodsThatCannotBeRolledBack changes DNS after a LimitRange was created that the present pod does not comply with.
func TestPodsThatCannotBeRolledBack(t *testing.T) {
	s := newRunningSite(t)
	s.Apply("{apiVersion: v1, kind: LimitRange, metadata: {name: small, namespace: " + s.Namespace + "}, spec: {limits: [{type: Container, default: {memory: 50Mi}}]}}")
	s.Infra = strings.Replace(s.Infra, "dns: {serverIP: 192.0.2.3", "dns: {serverIP: 192.0.2.3, resources: {requests: {memory: 32Mi}}", 1)
	stderr, code := s.setup()
	if want := "Warning: StatefulSet " + s.Namespace + "/demo-dns cannot be rolled back: the API server would refuse its present pods: "; code != 0 || !strings.Contains(stderr, want) {
		t.Errorf("setup exited with %d, want %q in %s", code, want, stderr)
	}
}
