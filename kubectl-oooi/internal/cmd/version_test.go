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

func TestOlderVersionIsRefused(t *testing.T) {
	s := cmdtest.New(t, management.Get(t), Main)
	s.Setup()
	m := &corev1.ConfigMap{}
	m.Namespace, m.Name = s.Namespace, "demo-oooi-inventory"
	control := &appsv1.Deployment{}
	control.Namespace, control.Name = "oooi-system", "oooi-control"
	original := release
	release = func() string { return "v0.2.0" }
	t.Cleanup(func() { release = original })
	for _, tc := range []struct {
		name   string
		object client.Object
		patch  string
	}{
		{"workloads", m, `{"data": {"setup.yaml": %s}}`},
		{"control", control, `{"metadata": {"annotations": {"hostedcluster.densityops.com/setup-version": %s}}}`},
	} {
		values := map[client.Object][2]string{m: {`"version: v0.10.0"`, "null"}, control: {`"v0.10.0"`, "null"}}[tc.object]
		patch := func(value string) {
			if err := s.Client.Patch(t.Context(), tc.object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, tc.patch, value))); err != nil {
				t.Fatal(err)
			}
		}
		patch(values[0])
		t.Log(tc.name)
		s.Refused("kubectl-oooi v0.10.0 deployed the Infra or objects that all Infras share, and this is v0.2.0")
		patch(values[1])
	}
	if stderr := s.Setup(); !strings.Contains(stderr, "Deployment oooi-system/oooi-control configured") {
		t.Errorf("setup by a newer version did not update control: %s", stderr)
	}
	release = func() string { return "v0.1.0" }
	s.Refused("kubectl-oooi v0.2.0 deployed the Infra or objects that all Infras share, and this is v0.1.0; use v0.2.0 or later")
	s.Setup("--allow-downgrade")
	release = func() string { return "(devel)" } // not comparable, so the stored version is kept
	s.Setup()
	release = func() string { return "v0.0.9" }
	s.Refused("kubectl-oooi v0.1.0 deployed the Infra or objects that all Infras share")
	s.Setup("--allow-downgrade")
}

// TestVersionReportsDeployedWorkloads runs version with a cluster, with --client, and with a server that does not
// answer.
func TestVersionReportsDeployedWorkloads(t *testing.T) {
	s := cmdtest.New(t, management.Get(t), Main)
	original := release
	release = func() string { return "v0.0.1" }
	t.Cleanup(func() { release = original })
	s.Setup("--image", "registry.example.com/oooi:v7", "--allow-downgrade")
	out, stderr, code := s.Run("version", "-o", "json")
	r := &versionReport{}
	if err := json.Unmarshal([]byte(out), r); code != 0 || err != nil || r.Server == nil || r.Server.Control == nil {
		t.Fatalf("version exited with %d, stderr %s, stdout %s", code, stderr, out)
	}
	images := map[string]map[string]string{}
	for _, w := range r.Server.Workloads {
		if w.Namespace == s.Namespace {
			images[w.Name] = w.Images
			if w.Version != "v0.0.1" {
				t.Errorf("the version of %s is %q", w.Name, w.Version)
			}
		}
	}
	if r.Client.Version != release() || images["demo-dns"]["coredns"] != "registry.example.com/oooi:v7" || images["demo-proxy"]["envoy"] != envoyImage || r.Server.Control.Images["control"] == "" {
		t.Errorf("version printed %s", out)
	}
	for line, want := range map[string]string{"version": "demo-dns", "version -o yaml": "kind: Version", "version --client": "kubectl-oooi " + release()} {
		if out, stderr, code := s.Run(strings.Fields(line)...); code != 0 || stderr != "" || !strings.Contains(out, want) {
			t.Errorf("%s exited with %d, stderr %q, stdout\n%s", line, code, stderr, out)
		}
	}
	out, stderr, code = runMain(t, "kubectl-oooi", "version", "--server", "https://127.0.0.1:1")
	if code != 0 || !strings.Contains(out, "kubectl-oooi "+release()) || !strings.Contains(stderr, "Warning: reading deployed versions") {
		t.Errorf("without an answer version exited with %d, stderr %q, stdout %s", code, stderr, out)
	}
	if out, stderr, code := runMain(t, "kubectl-oooi", "version", "--client", "--server", "https://127.0.0.1:1"); code != 0 || stderr != "" || strings.Count(out, "\n") != 3 {
		t.Errorf("with --client version exited with %d, stderr %q, stdout %s", code, stderr, out)
	}
}
