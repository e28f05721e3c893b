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

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// A specifiedImage is an image that a field or flag specifies; empty if it is not set.
type specifiedImage struct{ where, image string }

// specifiedImages returns the images that an Infra specifies.
func specifiedImages(infra *v1alpha1.Infra) []specifiedImage {
	var list []specifiedImage
	c := &infra.Spec.InfraComponents
	if c.DHCP != nil {
		list = append(list, specifiedImage{"spec.infraComponents.dhcp.image", c.DHCP.Image})
	}
	if c.DNS != nil {
		list = append(list, specifiedImage{"spec.infraComponents.dns.image", c.DNS.Image})
	}
	if c.Proxy != nil {
		list = append(list, specifiedImage{"spec.infraComponents.proxy.image", c.Proxy.Image}, specifiedImage{"spec.infraComponents.proxy.proxyImage", c.Proxy.ProxyImage})
	}
	return list
}

// invalidImages returns an error for each invalid image reference, with its field or flag. The API server does not
// validate these, and the kubelet cannot pull them.
func (k *Known) invalidImages(images render.Images) []error {
	references := append(specifiedImages(k.Infra), specifiedImage{"--image", images.Oooi}, specifiedImage{"--envoy-image", images.Envoy})
	if server := k.ProxyServer; server != nil {
		references = append(references, specifiedImage{"ProxyServer " + server.Name + ", spec.image", server.Spec.Image}, specifiedImage{"ProxyServer " + server.Name + ", spec.proxyImage", server.Spec.ProxyImage})
	}
	var errs []error
	for _, r := range references {
		if _, err := reference.ParseDockerRef(r.image); r.image != "" && err != nil {
			errs = append(errs, fmt.Errorf("%s: invalid image reference %q: %w", r.where, r.image, err))
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
