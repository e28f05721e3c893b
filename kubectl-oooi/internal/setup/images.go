package setup

import (
	"fmt"

	"github.com/distribution/reference"

	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// invalidImages returns an error for each invalid image reference, with its field or flag. The API server does not
// validate these, and the kubelet cannot pull them.
func (k *Known) invalidImages(images render.Images) []error {
	components := &k.Infra.Spec.InfraComponents
	references := []struct{ where, image string }{{"--image", images.Oooi}, {"--envoy-image", images.Envoy}}
	add := func(where, image string) {
		references = append(references, struct{ where, image string }{where, image})
	}
	if components.DHCP != nil {
		add("spec.infraComponents.dhcp.image", components.DHCP.Image)
	}
	if components.DNS != nil {
		add("spec.infraComponents.dns.image", components.DNS.Image)
	}
	if components.Proxy != nil && !k.standalone() {
		add("spec.infraComponents.proxy.image", components.Proxy.Image)
		add("spec.infraComponents.proxy.proxyImage", components.Proxy.ProxyImage)
	}
	if k.ProxyServer != nil {
		add("ProxyServer "+k.ProxyServer.Name+", spec.image", k.ProxyServer.Spec.Image)
		add("ProxyServer "+k.ProxyServer.Name+", spec.proxyImage", k.ProxyServer.Spec.ProxyImage)
	}
	var errs []error
	for _, w := range references {
		if w.image == "" {
			continue
		}
		if _, err := reference.ParseDockerRef(w.image); err != nil {
			errs = append(errs, fmt.Errorf("%s: invalid image reference %q: %w", w.where, w.image, err))
		}
	}
	return errs
}
