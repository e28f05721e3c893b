package cmd

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
)

func TestAnOlderVersionDowngradesNothing(t *testing.T) {
	s := cmdtest.New(t, management.Get(t), Main)
	s.Setup()
	m := &corev1.ConfigMap{}
	m.Namespace, m.Name = s.Namespace, "demo-oooi-inventory"
	control := &appsv1.Deployment{}
	control.Namespace, control.Name = "oooi-system", "oooi-control"
	was := version
	version = func() string { return "v0.2.0" }
	t.Cleanup(func() { version = was })
	for _, tc := range []struct {
		name  string
		of    client.Object
		patch string
	}{
		{"workloads", m, `{"data": {"setup.yaml": %s}}`},
		{"control", control, `{"metadata": {"annotations": {"hostedcluster.densityops.com/setup-version": %s}}}`},
	} {
		values := map[client.Object][2]string{m: {`"version: v0.10.0"`, "null"}, control: {`"v0.10.0"`, "null"}}[tc.of]
		patch := func(value string) {
			if err := s.Client.Patch(t.Context(), tc.of, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, tc.patch, value))); err != nil {
				t.Fatal(err)
			}
		}
		patch(values[0])
		t.Log(tc.name)
		s.Refused("kubectl-oooi v0.10.0 deployed these objects, and this is v0.2.0")
		patch(values[1])
	}
	if said := s.Setup(); !strings.Contains(said, "Deployment oooi-system/oooi-control configured") {
		t.Errorf("a newer version said %s", said)
	}
	version = func() string { return "v0.1.0" }
	s.Refused("kubectl-oooi v0.2.0 deployed these objects, and this is v0.1.0; use that version or a newer one")
	s.Setup("--allow-downgrade")
	version = func() string { return "(devel)" } // which has no order, and leaves the mark
	s.Setup()
	version = func() string { return "v0.0.9" }
	s.Refused("kubectl-oooi v0.1.0 deployed these objects")
	s.Setup("--allow-downgrade")
}

// TestVersionHasWhatIsDeployed asks with a cluster, without one, and with one that does not answer.
func TestVersionHasWhatIsDeployed(t *testing.T) {
	s := cmdtest.New(t, management.Get(t), Main)
	was := version
	version = func() string { return "v0.0.1" }
	t.Cleanup(func() { version = was })
	s.Setup("--image", "registry.example.com/oooi:v7", "--allow-downgrade")
	out, said, code := s.Run("version", "-o", "json")
	r := &versionReport{}
	if err := json.Unmarshal([]byte(out), r); code != 0 || err != nil || r.Server == nil || r.Server.Control == nil {
		t.Fatalf("it ended with %d, said %s and printed %s", code, said, out)
	}
	images := map[string]map[string]string{}
	for _, w := range r.Server.Workloads {
		if w.Namespace == s.Namespace {
			images[w.Name] = w.Images
			if w.Version != "v0.0.1" {
				t.Errorf("%s is of %q", w.Name, w.Version)
			}
		}
	}
	if r.Client.Version != release() || images["demo-dns"]["coredns"] != "registry.example.com/oooi:v7" || images["demo-proxy"]["envoy"] != envoyImage || r.Server.Control.Images["control"] == "" {
		t.Errorf("%s", out)
	}
	for line, want := range map[string]string{"version": "demo-dns", "version -o yaml": "kind: Version", "version --client": "kubectl-oooi " + release()} {
		if out, said, code := s.Run(strings.Fields(line)...); code != 0 || said != "" || !strings.Contains(out, want) {
			t.Errorf("%s ended with %d, said %q and printed\n%s", line, code, said, out)
		}
	}
	out, said, code = call(t, "kubectl-oooi", "version", "--server", "https://127.0.0.1:1")
	if code != 0 || !strings.Contains(out, "kubectl-oooi "+release()) || !strings.Contains(said, "Warning: reading deployed versions") {
		t.Errorf("without an answer it ended with %d, said %q and printed %s", code, said, out)
	}
	if out, said, code := call(t, "kubectl-oooi", "version", "--client", "--server", "https://127.0.0.1:1"); code != 0 || said != "" || strings.Count(out, "\n") != 3 {
		t.Errorf("with --client it ended with %d, said %q and printed %s", code, said, out)
	}
}
