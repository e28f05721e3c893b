package setup

import (
	"fmt"

	"github.com/distribution/reference"

	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// wrongImages names the images that no kubelet could pull, by where they are written: an API
// server takes anything.
func (k *Known) wrongImages(images render.Images) []error {
	components := &k.Infra.Spec.InfraComponents
	written := []struct{ where, image string }{{"--image", images.Oooi}, {"--envoy-image", images.Envoy}}
	add := func(where, image string) { written = append(written, struct{ where, image string }{where, image}) }
	if components.DHCP != nil {
		add("spec.infraComponents.dhcp.image", components.DHCP.Image)
	}
	if components.DNS != nil {
		add("spec.infraComponents.dns.image", components.DNS.Image)
	}
	if components.Proxy != nil && !k.alone() {
		add("spec.infraComponents.proxy.image", components.Proxy.Image)
		add("spec.infraComponents.proxy.proxyImage", components.Proxy.ProxyImage)
	}
	if k.ProxyServer != nil {
		add("ProxyServer "+k.ProxyServer.Name+", spec.image", k.ProxyServer.Spec.Image)
		add("ProxyServer "+k.ProxyServer.Name+", spec.proxyImage", k.ProxyServer.Spec.ProxyImage)
	}
	var wrong []error
	for _, w := range written {
		if w.image == "" {
			continue
		}
		if _, err := reference.ParseDockerRef(w.image); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: invalid image reference %q: %w", w.where, w.image, err))
		}
	}
	return wrong
}
