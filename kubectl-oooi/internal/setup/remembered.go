package setup

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Remembered has the values of the remembered flags in an Infra's last successful setup or, if none has succeeded, in its last setup.
// Values are given or defaults.
type Remembered struct {
	// Version is the version of the plugin, such as "v1.2.3", or "(devel)" for a build without a version; empty if it
	// is unknown.
	Version string `json:"version,omitempty"`
	// Image and EnvoyImage are the images of workloads, unless the Infra specifies others.
	Image      string `json:"image,omitempty"`
	EnvoyImage string `json:"envoyImage,omitempty"`
	// Registry is the registry from which default images are pulled; empty for their original registries. PullSecret is the Secret with
	// registry credentials; empty for none.
	Registry   string `json:"registry,omitempty"`
	PullSecret string `json:"imagePullSecret,omitempty"`
	// Given are the names of the remembered flags that were given. A plugin with other defaults keeps their values.
	Given []string `json:"given,omitempty"`
	// OpenShift and ClusterDNS are the values of --openshift and --cluster-dns; empty if they are the defaults.
	OpenShift  string `json:"openshift,omitempty"`
	ClusterDNS string `json:"clusterDNS,omitempty"`
	// Source is the Infra from which a new Infra takes the flags; empty otherwise.
	Source string `json:"-"`
}

// Names of the flags that setup remembers.
const (
	FlagImage      = "image"
	FlagEnvoyImage = "envoy-image"
	FlagRegistry   = "registry"
	FlagPullSecret = "image-pull-secret" //nolint:gosec // a name
	FlagOpenShift  = "openshift"
	FlagClusterDNS = "cluster-dns"
)

// A RememberedFlag is a flag that setup remembers.
type RememberedFlag struct {
	Name  string
	reset string // the value that resets the flag; the empty value resets every flag
	value func(*Remembered) *string
}

// RememberedFlags are the flags that setup remembers. The first changes the default images.
var RememberedFlags = []RememberedFlag{
	{FlagRegistry, "", func(r *Remembered) *string { return &r.Registry }},
	{FlagImage, "", func(r *Remembered) *string { return &r.Image }},
	{FlagEnvoyImage, "", func(r *Remembered) *string { return &r.EnvoyImage }},
	{FlagPullSecret, "", func(r *Remembered) *string { return &r.PullSecret }},
	{FlagOpenShift, "auto", func(r *Remembered) *string { return &r.OpenShift }},
	{FlagClusterDNS, "print", func(r *Remembered) *string { return &r.ClusterDNS }},
}

// ResolveFlags returns the flags to use and to remember, from the given flags by name, the flags of the previous setup (nil for none),
// and the default images of this version of the plugin. The value "" resets any flag, "auto" resets --openshift, and "print" resets
// --cluster-dns. Without a default image, Image is the previous setup's image; it is empty if there is none. ResolveFlags also returns a
// line to print for each flag that is not given and keeps an earlier value instead of the default, or changes. It does not set Version.
func ResolveFlags(given map[string]string, before *Remembered, defaults render.Images) (*Remembered, []string) {
	now := &Remembered{Image: defaults.Oooi, EnvoyImage: defaults.Envoy}
	source := "kept from the previous setup"
	if before != nil && before.Source != "" {
		source = "taken from " + before.Source + ", which was set up last"
	}
	var lines []string
	for _, flag := range RememberedFlags {
		value := flag.value(now)
		*value = MirroredImage(*value, now.Registry)
		fallback, earlier := *value, ""
		if before != nil {
			earlier = *flag.value(before)
		}
		switch flagValue, isGiven := given[flag.Name]; {
		case isGiven && flagValue != "" && flagValue != flag.reset:
			*value, now.Given = flagValue, append(now.Given, flag.Name)
		case isGiven || before == nil:
		case slices.Contains(before.Given, flag.Name):
			*value, now.Given = earlier, append(now.Given, flag.Name)
			if earlier != fallback {
				lines = append(lines, fmt.Sprintf("--%s %s is %s; --%[1]s=%[4]s resets it", flag.Name, earlier, source, flag.reset))
			}
		case fallback == "" && flag.Name == FlagImage:
			*value = earlier
			lines = append(lines, fmt.Sprintf("--%s %s is %s, because this kubectl-oooi is not a release", flag.Name, earlier, source))
		case earlier != fallback && before.Source == "" && before.Registry == now.Registry: // otherwise --registry changes the image
			lines = append(lines, fmt.Sprintf("--%s changes from %s to %s, the default of this version of kubectl-oooi", flag.Name, earlier, fallback))
		}
	}
	return now, lines
}

// Images returns the images and PullSecret as the input of render.
func (r *Remembered) Images() render.Images {
	return render.Images{Oooi: r.Image, Envoy: r.EnvoyImage, PullSecret: r.PullSecret}
}

// UsesOpenShift reports whether setup renders for OpenShift: the value of --openshift or, if auto, whether OpenShift was detected.
func (r *Remembered) UsesOpenShift(detected bool) bool {
	return r.OpenShift == "true" || r.OpenShift != "false" && detected
}

// recall returns the remembered flags of an Infra. If there are none, it returns the images of the Infra's workloads, which a GitOps tool
// may have applied. For a new Infra, it returns the flags of the last setup of any Infra, without --cluster-dns. It returns nil if there
// was no setup, or if reading its record is forbidden.
func (h *history) recall(ctx context.Context, infra *v1alpha1.Infra) (*Remembered, error) {
	r, err := h.flags(ctx)
	if r == nil && err == nil {
		r, err = h.runningImages(ctx, infra)
	}
	if r == nil && err == nil {
		r, err = h.flagsOfOthers(ctx)
	}
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	return r, err
}

// flags returns the flags of the last deployed revision, or of the last revision if none was deployed, or the flags that a version
// without records has stored; nil if there are none.
func (h *history) flags(ctx context.Context) (*Remembered, error) {
	for _, r := range []*Record{h.last(StatusDeployed), h.last("")} {
		if r != nil && (r.Flags != nil || r.invalid != nil) {
			return r.Flags, r.invalid
		}
	}
	legacy := legacyObjects(h.infra)[0]
	stored, err := current(ctx, h.client, legacy.Object())
	if stored == nil {
		return nil, err
	}
	text, found, _ := unstructured.NestedString(stored.Object, "data", "setup.yaml")
	if !found {
		return nil, nil
	}
	r := &Remembered{}
	if err := yaml.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("decoding key setup.yaml of %s: %w; delete that key and run setup again with the flags of the previous setup", legacy, err)
	}
	return r, nil
}

// VersionOf returns the version of the plugin that set up an Infra or a standalone ProxyServer; empty if it is unknown.
func VersionOf(ctx context.Context, c client.Client, infra types.NamespacedName) (string, error) {
	h, err := readHistory(ctx, c, infra)
	if err != nil {
		return "", err
	}
	flags, err := h.flags(ctx)
	if err != nil || flags == nil {
		return "", err
	}
	return flags.Version, nil
}

// runningImages returns the images of an Infra's StatefulSets, without images that the Infra specifies. Images outside of the release's
// repository count as given flags. The result is nil without StatefulSets.
func (h *history) runningImages(ctx context.Context, infra *v1alpha1.Infra) (*Remembered, error) {
	list := &appsv1.StatefulSetList{}
	if err := h.client.List(ctx, list, client.InNamespace(infra.Namespace), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}); err != nil {
		return nil, fmt.Errorf("listing StatefulSets in namespace %s: %w", infra.Namespace, err)
	}
	defaults, own := DefaultImages(), specifiedImages(infra)
	r := &Remembered{Image: defaults.Oooi, EnvoyImage: defaults.Envoy}
	found := false
	for i := range list.Items {
		for _, c := range list.Items[i].Spec.Template.Spec.Containers {
			if list.Items[i].Annotations[v1alpha1.AnnotationInfra] != keyOf(infra) ||
				slices.ContainsFunc(own, func(s specifiedImage) bool { return s.image == c.Image }) {
				continue
			}
			flag, image, repository := FlagImage, &r.Image, cmp.Or(defaults.Oooi, release.Repository)
			if c.Name == "envoy" {
				flag, image, repository = FlagEnvoyImage, &r.EnvoyImage, defaults.Envoy
			}
			*image, found = c.Image, true
			if Repository(c.Image) != Repository(repository) && !slices.Contains(r.Given, flag) { // otherwise the image is the default of another release
				r.Given = append(r.Given, flag)
			}
		}
	}
	if !found {
		return nil, nil
	}
	return r, nil
}

// flagsOfOthers returns the flags of the last setup of any Infra or standalone ProxyServer; nil if there was none.
func (h *history) flagsOfOthers(ctx context.Context) (*Remembered, error) {
	records, err := listRecords(ctx, h.client, client.MatchingLabels{labelStatus: StatusDeployed})
	records = slices.DeleteFunc(records, func(r *Record) bool { return r.Flags == nil || r.invalid != nil })
	if len(records) == 0 {
		return nil, err
	}
	newest := slices.MaxFunc(records, func(a, b *Record) int { return a.Created().Compare(b.Created()) })
	flags := *newest.Flags
	flags.Source = newest.infra.String()
	flags.Given = slices.DeleteFunc(flags.Given, func(name string) bool { return name == FlagClusterDNS })
	return &flags, err
}

// Repository returns an image reference without tag and digest.
func Repository(image string) string {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return image
	}
	return named.Name()
}

// AnnotationVersion is the annotation with the version of the plugin that applied an object. Setup sets it on CRDs, and
// on the Deployments of control and of the VirtualIngress controller.
const AnnotationVersion = v1alpha1.GroupName + "/setup-version"

// Older reports whether version a of the plugin is older than b; false if one of them is not a version.
func Older(a, b string) bool {
	one, err1 := version.ParseSemantic(a)
	other, err2 := version.ParseSemantic(b)
	return err1 == nil && err2 == nil && one.LessThan(other)
}

// stampVersion sets AnnotationVersion on the plan's shared CRDs and Deployments.
func (p *Plan) stampVersion(pluginVersion string) {
	for _, o := range p.Objects {
		if kind := o.GetKind(); (kind == "CustomResourceDefinition" || kind == "Deployment") && p.shared(o) {
			_ = unstructured.SetNestedField(o.Object, pluginVersion, "metadata", "annotations", AnnotationVersion) // rendered as a map
		}
	}
}

// checkVersion returns an error if a newer version of the plugin applied an object that setup changes, or set up the Infra, unless
// AllowDowngrade is set. It is called after checkOwnership.
func (a *Applier) checkVersion(changes []*ObjectChange) error {
	newest := a.Remember.Version
	versions := []string{a.history.last("").Version()}
	for _, c := range changes {
		if c.Live != nil && c.Merged == nil {
			versions = append(versions, c.Live.GetAnnotations()[AnnotationVersion])
		}
	}
	for _, v := range versions {
		if Older(newest, v) {
			newest = v
		}
	}
	if newest == a.Remember.Version || a.AllowDowngrade {
		return nil
	}
	return fmt.Errorf("kubectl-oooi %s deployed the Infra or objects that all Infras share, but this is %s; use %[1]s or later, or --allow-downgrade to "+
		"downgrade CustomResourceDefinitions, control and workloads",
		newest, a.Remember.Version)
}

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
		list = append(list, specifiedImage{"spec.infraComponents.proxy.image", c.Proxy.Image},
			specifiedImage{"spec.infraComponents.proxy.proxyImage", c.Proxy.ProxyImage})
	}
	return list
}

// invalidImages returns an error for each invalid image reference, with its field or flag. The API server does not
// validate image references, and the kubelet cannot pull invalid ones.
func (k *Known) invalidImages(images render.Images) []error {
	references := append(specifiedImages(k.Infra), specifiedImage{"--image", images.Oooi}, specifiedImage{"--envoy-image", images.Envoy})
	if server := k.ProxyServer; server != nil {
		references = append(references, specifiedImage{"ProxyServer " + server.Name + ", spec.image", server.Spec.Image},
			specifiedImage{"ProxyServer " + server.Name + ", spec.proxyImage", server.Spec.ProxyImage})
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
		return fmt.Errorf("must be HOST[:PORT][/PATH], such as registry.example.com/oooi: %w", err)
	}
	return nil
}

// MissingPullSecret returns a warning for each namespace of the plan's pods without the pull secret; none if the user cannot read
// Secrets.
func (p *Plan) MissingPullSecret(ctx context.Context, c client.Client, name string) []string {
	if name == "" {
		return nil
	}
	var list []string
	for _, namespace := range []string{p.Infra.Namespace, render.SystemNamespace} {
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); apierrors.IsNotFound(err) {
			list = append(list, fmt.Sprintf("--%s: Secret %s/%s does not exist; pods there cannot pull images that need it; create it", FlagPullSecret, namespace, name))
		}
	}
	return list
}
