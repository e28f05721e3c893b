package rollout_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// networkOf returns the CNI configuration of a StatefulSet's pods.
func (s *runningSite) networkOf(set string) string {
	s.Helper()
	o := s.Object(read.AttachmentKind, s.NetworkOf(set))
	config, _, _ := unstructured.NestedString(o.Object, "spec", "config")
	return config
}

// TestDNSMovesTogetherWithDHCP moves DNS to another address, with DHCP that does not start. Clients have the address of
// DNS from DHCP, so DNS must go back as well: after the same setup, after a second one, and after one that was killed
// while DHCP changed.
func TestDNSMovesTogetherWithDHCP(t *testing.T) {
	s := newRunningSite(t)
	no := func(*corev1.Pod) bool { return false }
	good, dns, dhcp := s.Infra, s.networkOf("demo-dns"), s.statefulSet("demo-dhcp").Spec.Template.Spec.Containers[0].Image
	s.behave(no, func(pod *corev1.Pod) bool {
		return strings.HasPrefix(pod.Name, "demo-dhcp-") && strings.Contains(pod.Spec.Containers[0].Image, "fails")
	})
	s.Infra = strings.NewReplacer("dns: {serverIP: 192.0.2.3", "dns: {serverIP: 192.0.2.5", "dhcp: {serverIP: 192.0.2.2,", "dhcp: {serverIP: 192.0.2.2, image: example.com/fails:1,").Replace(good)
	moved := s.Infra
	failing := func(what string) {
		t.Helper()
		stderr, code := s.setup()
		if want := "everything is rolled back to revision 1; correct"; code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: setup exited with %d, want %q in %s", what, code, want, stderr)
		}
		if now := s.networkOf("demo-dns"); now != dns || s.statefulSet("demo-dhcp").Spec.Template.Spec.Containers[0].Image != dhcp || strings.Contains(s.history(), "pending") {
			t.Errorf("%s: DNS had the network %s and has %s; revisions: %s", what, dns, now, s.history())
		}
	}
	failing("the first setup")
	failing("the second setup")
	s.killSetup("/demo-dhcp configured")
	if !strings.HasSuffix(s.history(), "pending") || s.networkOf("demo-dns") == dns {
		t.Fatalf("the killed setup did not change DNS, or left no pending revision: %s", s.networkOf("demo-dns"))
	}
	failing("after a killed setup")

	// A kill between the two components.
	s.killSetup("dns works")
	failing("after a setup that was killed between DNS and DHCP")

	s.Infra = strings.ReplaceAll(moved, "example.com/fails:1", "example.com/works:1")
	if stderr, code := s.setup(); code != 0 || s.networkOf("demo-dns") == dns || !strings.HasSuffix(s.history(), "deployed") {
		t.Errorf("setup exited with %d, revisions %s: %s", code, s.history(), stderr)
	}
}
