package setup

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// MirroredImage returns the reference of an image in another registry: the last element of its repository, with its tag
// and digest, below registry. Without a registry, it returns image.
func MirroredImage(image, registry string) string {
	if registry == "" || image == "" {
		return image
	}
	return strings.TrimSuffix(registry, "/") + "/" + path.Base(image)
}

// registryOf returns the registry of which image is the mirrored image of release; empty if it is not.
func registryOf(image, release string) string {
	registry := strings.TrimSuffix(image, "/"+path.Base(image))
	if image == release || registry == image || MirroredImage(release, registry) != image {
		return ""
	}
	return registry
}

// CheckRegistry returns an error if registry is not a host with an optional port and path.
func CheckRegistry(registry string) error {
	if registry == "" {
		return nil
	}
	if _, err := reference.ParseNamed(MirroredImage("image", registry)); err != nil {
		return fmt.Errorf("want HOST[:PORT][/PATH], for instance registry.example.com/oooi: %w", err)
	}
	return nil
}

// MissingPullSecret returns a warning for each namespace of the plan's pods without the pull secret. It returns none
// without the right to read Secrets.
func (p *Plan) MissingPullSecret(ctx context.Context, c client.Client, name string) []string {
	if name == "" {
		return nil
	}
	var list []string
	for _, namespace := range []string{p.Infra.Namespace, render.SystemNamespace} {
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); apierrors.IsNotFound(err) {
			list = append(list, fmt.Sprintf("--%s: Secret %s/%s does not exist; pods there cannot pull images that need it: create it", FlagPullSecret, namespace, name))
		}
	}
	return list
}
