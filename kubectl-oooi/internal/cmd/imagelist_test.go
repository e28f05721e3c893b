package cmd

import (
	"strings"
	"testing"

	"github.com/densityops/oooi/kubectl-oooi/internal/release"
)

// TestDigestMirrors prints the ImageDigestMirrorSet of a release, and of a snapshot, whose image is in the mirror already.
func TestDigestMirrors(t *testing.T) {
	image, envoy := release.Image, release.EnvoyImage
	t.Cleanup(func() { release.Image, release.EnvoyImage = image, envoy })
	digest := "@sha256:" + strings.Repeat("0", 64)
	release.EnvoyImage = "docker.io/envoyproxy/envoy" + digest
	const envoyMirror = "  - source: docker.io/envoyproxy/envoy\n    mirrors:\n    - registry.example.com/oooi/envoy\n"
	for image, want := range map[string]string{
		release.Repository + digest:               "  - source: ghcr.io/densityops/oooi\n    mirrors:\n    - registry.example.com/oooi/oooi\n" + envoyMirror,
		"registry.example.com/oooi/oooi" + digest: envoyMirror,
	} {
		release.Image = image
		out, stderr, code := runMain(t, "kubectl-oooi", "images", "--registry", "registry.example.com/oooi", "-o", formatDigestMirrors)
		if code != 0 || out != digestMirrorSet+want {
			t.Errorf("of %s: exit code %d, %s%s", image, code, out, stderr)
		}
	}
}
