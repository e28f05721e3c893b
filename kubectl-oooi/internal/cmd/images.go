package cmd

import (
	"fmt"

	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// defaultImages returns the images of the release. A plugin that 'make release' did not build has no image of oooi.
func defaultImages() render.Images {
	return render.Images{Oooi: release.Image, Envoy: release.EnvoyImage}
}

// withImages is setup.ResolveFlags with the images of this plugin. It returns an error if there is no image of oooi.
func withImages(given map[string]string, before *setup.Remembered) (*setup.Remembered, []string, error) {
	remembered, lines := setup.ResolveFlags(given, before, defaultImages())
	if remembered.Image == "" {
		return nil, nil, fmt.Errorf("kubectl-oooi %s is not a release, so it has no image to deploy; specify --image (see 'make image'), or install a release", release.Version())
	}
	return remembered, lines, nil
}
