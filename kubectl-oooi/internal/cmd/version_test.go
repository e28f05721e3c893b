package cmd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
)

func TestOlderVersionIsRefused(t *testing.T) {
	s := cmdtest.New(t, management.Get(t), Main)
	original := release.Version
	t.Cleanup(func() { release.Version = original })
	control := &appsv1.Deployment{}
	control.Namespace, control.Name = "oooi-system", "oooi-control"
	annotate := func(value string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"metadata": {"annotations": {"hostedcluster.densityops.com/setup-version": %s}}}`, value)
		s.Must(s.Client.Patch(t.Context(), control, client.RawPatch(types.MergePatchType, patch)))
	}
	release.Version = func() string { return "v0.10.0" }
	s.Setup("--allow-downgrade")
	const refused = "kubectl-oooi v0.10.0 deployed the Infra or objects that all Infras share, but this is v0.2.0"
	release.Version = func() string { return "v0.2.0" }
	annotate("null") // the record has the version, too
	s.Refused(refused)
	s.Setup("--allow-downgrade")
	annotate(`"v0.10.0"`)
	s.Refused(refused)
	annotate("null")
	s.Expect(0, "setup -f FILE --wait=false", "Deployment oooi-system/oooi-control configured")
	release.Version = func() string { return "v0.1.0" }
	s.Refused("kubectl-oooi v0.2.0 deployed the Infra or objects that all Infras share, but this is v0.1.0; use v0.2.0 or later")
	s.Setup("--allow-downgrade")
	release.Version = func() string { return "(devel)" } // not comparable
	s.Setup()
}

// TestVersionReportsDeployedWorkloads runs version with a cluster, with --client, and with a server that does not
// answer.
func TestVersionReportsDeployedWorkloads(t *testing.T) {
	s := cmdtest.New(t, management.Get(t), Main)
	original := release.Version
	release.Version = func() string { return "v0.0.1" }
	t.Cleanup(func() { release.Version = original })
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
	if r.Client.Version != release.Version() || images["demo-dns"]["coredns"] != "registry.example.com/oooi:v7" || images["demo-proxy"]["envoy"] != release.EnvoyImage || r.Server.Control.Images["control"] == "" {
		t.Errorf("version printed %s", out)
	}
	release.Version = func() string { return "v0.0.2" }
	out, _, _ = s.Run("version", "-o", "json")
	r = &versionReport{}
	if err := json.Unmarshal([]byte(out), r); err != nil || r.Server == nil {
		t.Fatalf("version printed %s: %v", out, err)
	}
	for _, w := range r.Server.Workloads {
		if w.Namespace == s.Namespace && !slices.Equal(w.Skew, []string{"older", "image"}) {
			t.Errorf("the skew of %s is %q", w.Name, w.Skew)
		}
	}
	for line, want := range map[string]string{"version": "demo-dns", "version -o yaml": "kind: Version", "version --client": "kubectl-oooi " + release.Version()} {
		if out, stderr, code := s.Run(strings.Fields(line)...); code != 0 || stderr != "" || !strings.Contains(out, want) {
			t.Errorf("%s exited with %d, stderr %q, stdout\n%s", line, code, stderr, out)
		}
	}
	out, stderr, code = runMain(t, "kubectl-oooi", "version", "--server", "https://127.0.0.1:1")
	if code != 0 || !strings.Contains(out, "kubectl-oooi "+release.Version()) || !strings.Contains(stderr, "Warning: reading deployed versions") {
		t.Errorf("without an answer version exited with %d, stderr %q, stdout %s", code, stderr, out)
	}
	if out, stderr, code := runMain(t, "kubectl-oooi", "version", "--client", "--server", "https://127.0.0.1:1"); code != 0 || stderr != "" || strings.Count(out, "\n") != 3 {
		t.Errorf("with --client version exited with %d, stderr %q, stdout %s", code, stderr, out)
	}
}

// TestImageWithoutRelease checks that setup does not deploy an image that does not exist.
func TestImageWithoutRelease(t *testing.T) {
	s := newSite(t)
	original := release.Image
	t.Cleanup(func() { release.Image = original })
	release.Image = ""
	s.Refused("is not a release and has no default image; specify --image", "--dry-run=client")
	if out, _, _ := s.Run("version", "--client"); !strings.Contains(out, "oooi image   none") {
		t.Errorf("version printed %s", out)
	}
	s.Setup("--image", "registry.example.com/oooi:1")
	s.Setup() // with the remembered image
	if image := s.Images()["coredns"]; image != "registry.example.com/oooi:1" {
		t.Errorf("setup deployed %s", image)
	}
}

// TestMirrorSkew checks that an image in a mirror has no skew if its digest is the release's.
func TestMirrorSkew(t *testing.T) {
	client := &clientVersion{Image: "ghcr.io/densityops/oooi@sha256:00", EnvoyImage: "docker.io/envoyproxy/envoy@sha256:11"}
	for _, c := range []struct {
		oooi, envoy string
		want        []string
	}{
		{"registry.example.com/oooi/oooi@sha256:00", "registry.example.com/oooi/envoy@sha256:11", nil},
		{"registry.example.com/oooi/oooi@sha256:22", "registry.example.com/oooi/envoy@sha256:22", []string{"image", "envoy"}},
		{"ghcr.io/densityops/oooi", "docker.io/envoyproxy/envoy:v1.40.0", []string{"image", "envoy"}},
	} {
		w := &workload{Images: map[string]string{"xdsd": c.oooi, "envoy": c.envoy}}
		if skew := client.skewOf(w); !slices.Equal(skew, c.want) {
			t.Errorf("the skew of %s and %s is %q, want %q", c.oooi, c.envoy, skew, c.want)
		}
	}
}
