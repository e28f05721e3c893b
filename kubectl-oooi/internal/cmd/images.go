package cmd

import (
	"strings"

	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// envoyImage is the Envoy image that the release was tested with.
const envoyImage = "docker.io/envoyproxy/envoy:distroless-v1.40.0"

// defaultImages returns the images of the release. A build without a release tag uses the tag latest.
func defaultImages() render.Images {
	tag := release()
	if strings.ContainsAny(tag, "(+") || strings.Count(tag, "-") > 1 { // not built from a tag
		tag = "latest"
	}
	return render.Images{Oooi: "ghcr.io/densityops/oooi:" + tag, Envoy: envoyImage}
}
