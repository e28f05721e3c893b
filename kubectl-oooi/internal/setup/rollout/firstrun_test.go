package rollout_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

// TestFirstSetupEndsWithoutItsImage deletes all workloads, so that setup deploys them as in a first setup, with images
// that cannot be pulled.
func TestFirstSetupEndsWithoutItsImage(t *testing.T) {
	s := newRunningSite(t)
	s.behave(func(*corev1.Pod) bool { return false }, func(pod *corev1.Pod) bool { return pod.Namespace == s.Namespace })
	for _, name := range []string{"demo-dhcp", "demo-dns", "demo-proxy"} {
		if err := s.Client.Delete(t.Context(), s.statefulSet(name)); err != nil {
			t.Fatal(err)
		}
	}
	lab.Poll(t, "the pods to be deleted", func() bool { return len(s.podUIDs()) == 0 })
	stderr, code := s.setup("--timeout=90s")
	for _, want := range []string{"pods do not become ready: ", "InvalidImageName", "; correct the image or --image-pull-secret, or push the image, and run setup again; the applied objects are kept"} {
		if code != 1 || !strings.Contains(stderr, want) || strings.Contains(stderr, "--timeout 1m30s") {
			t.Errorf("setup exited with %d, want %q in %s", code, want, stderr)
		}
	}
}

// TestSlowWebhookIsRefused changes DNS while the API server waits for a webhook before it admits pods.
func TestSlowWebhookIsRefused(t *testing.T) {
	s := newRunningSite(t)
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	s.Apply(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: silent.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 7
  clientConfig: {url: "https://%[2]s/"}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  objectSelector: {matchLabels: {app.kubernetes.io/component: dns}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
`, s.Namespace, silent.Addr()))
	pods := s.podUIDs()
	s.Infra = strings.Replace(s.Infra, "203.0.113.53", "203.0.113.54", 1)
	lab.Poll(t, "the API server to call the webhook", func() bool {
		probe := s.pod("demo-dns-0")
		probe.Name, probe.ResourceVersion, probe.UID, probe.Spec.NodeName = "probe", "", "", ""
		began := time.Now()
		_ = s.Client.Create(t.Context(), probe, client.DryRunAll)
		return time.Since(began) > 5*time.Second
	})
	stderr, code := s.setup()
	if want := "the API server takes 7s to admit its pod, as with a slow webhook, and VMs do without dns meanwhile; repair the webhook, or use --allow-loss"; code != 1 || !strings.Contains(stderr, want) || !slices.Equal(pods, s.podUIDs()) {
		t.Errorf("setup exited with %d, want %q in %s", code, want, stderr)
	}
	stderr, code = s.setup("--allow-loss")
	if want := "dns restarts: about 3 s without names\n"; code != 0 || !strings.Contains(stderr, want) {
		t.Errorf("setup exited with %d, want %q in %s", code, want, stderr)
	}
	if line, change := strings.Index(stderr, "dns restarts: "), strings.Index(stderr, " configured\n"); line > change {
		t.Errorf("setup says after the first change what restarts: %s", stderr)
	}
}
