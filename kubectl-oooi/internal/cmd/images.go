package cmd

import (
	"strings"

	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// envoyImage is the Envoy that a release was tested with.
const envoyImage = "docker.io/envoyproxy/envoy:distroless-v1.40.0"

// defaultImages are those of the release; of a build that is none, the newest.
func defaultImages() render.Images {
	tag := release()
	if strings.ContainsAny(tag, "(+") || strings.Count(tag, "-") > 1 { // of no tag
		tag = "latest"
	}
	return render.Images{Oooi: "ghcr.io/densityops/oooi:" + tag, Envoy: envoyImage}
}
