package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
)

// withBackends returns the Infra and a ProxyServer of it with a backend for each Service.
func (s *runningSite) withBackends(services ...string) string {
	text := fmt.Sprintf("%s---\napiVersion: %s\nkind: ProxyServer\nmetadata: {name: demo, namespace: %s}\nspec:\n", strings.TrimSuffix(s.Infra, "---\n"), v1alpha1.SchemeGroupVersion, s.Namespace) +
		"  infraRef: {name: demo}\n  networkConfig: {serverIP: 192.0.2.4, networkAttachmentName: vlan}\n  backends:\n"
	for i, service := range services {
		text += fmt.Sprintf("  - {name: b%d, hostname: b%d.example.com, port: 443, targetService: %s, targetPort: 443, targetNamespace: %s}\n", i, i, service, s.Namespace)
	}
	return text
}

// backends returns the Services of the ProxyServer's backends.
func (s *runningSite) backends() []string {
	s.Helper()
	live := s.Object(v1alpha1.SchemeGroupVersion.WithKind("ProxyServer"), "demo")
	var services []string
	list, _, _ := unstructured.NestedSlice(live.Object, "spec", "backends")
	for _, b := range list {
		fields, _ := b.(map[string]any)
		service, _, _ := unstructured.NestedString(fields, "targetService")
		services = append(services, service)
	}
	return services
}

// TestBackendThatStopsWorkingIsRolledBack changes the Service of a backend that works, which replaces no pod. A backend
// that did not work before does not matter.
func TestBackendThatStopsWorkingIsRolledBack(t *testing.T) {
	s := newRunningSite(t)
	infra := s.Infra
	setup := func(want []string, services ...string) (string, int) {
		t.Helper()
		s.Infra = infra
		s.Infra = s.withBackends(services...)
		stderr, code := s.setup()
		if now := s.backends(); !slices.Equal(now, want) {
			t.Errorf("the backends are %q, want %q; setup printed %s", now, want, stderr)
		}
		if strings.Contains(s.history(), "pending") {
			t.Errorf("revisions: %s", s.history())
		}
		return stderr, code
	}
	first := []string{"one", "missing"}
	if stderr, code := setup(first, first...); code != 0 {
		t.Fatalf("setup exited with %d: %s", code, stderr)
	}
	pods := s.podUIDs()
	stderr, code := setup(first, "missing-too", "missing")
	for _, want := range []string{
		"rolling out proxy: waiting for backend b0 to have a healthy endpoint, as before the change: Service missing-too does not exist",
		"; correct the cause and run setup again",
	} {
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("setup exited with %d, want %q in %s", code, want, stderr)
		}
	}
	if stderr, code := setup([]string{"two", "missing"}, "two", "missing"); code != 0 || !strings.Contains(stderr, "proxy works") {
		t.Errorf("setup exited with %d: %s", code, stderr)
	}

	stderr, code = setup([]string{"two", "missing"}, "ignored", "missing")
	if want := "waiting for backend b0 to have a healthy endpoint, as before the change: it is ignored"; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("setup exited with %d, want %q in %s", code, want, stderr)
	}

	s.Infra = infra
	s.Infra = s.withBackends("missing-too", "missing")
	s.killSetup("backend b0 to have a healthy endpoint")
	stderr, code = setup([]string{"two", "missing"}, "missing-too", "missing")
	if code != 1 || !strings.Contains(stderr, "everything is rolled back") {
		t.Errorf("after a killed setup, setup exited with %d: %s", code, stderr)
	}
	if now := s.podUIDs(); !slices.Equal(now, pods) {
		t.Errorf("the pods were %q and are %q", pods, now)
	}
}
