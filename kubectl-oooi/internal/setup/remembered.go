package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Remembered has the values of the remembered flags in the last successful setup of an Infra; before one has succeeded,
// those in its last setup. A value is either given or the default.
type Remembered struct {
	// Version is the version of the plugin, such as "v1.2.3", or "(devel)" for a build without a version; empty if it
	// is unknown.
	Version string `json:"version,omitempty"`
	// Image and EnvoyImage are the images of workloads, unless the Infra specifies others.
	Image      string `json:"image,omitempty"`
	EnvoyImage string `json:"envoyImage,omitempty"`
	// Registry is the registry from which the default images are pulled; empty for their own. PullSecret is the Secret
	// with credentials of registries; empty for none.
	Registry   string `json:"registry,omitempty"`
	PullSecret string `json:"imagePullSecret,omitempty"`
	// Given are the names of the remembered flags that were given. Their values are kept, even by a plugin with other
	// defaults.
	Given []string `json:"given,omitempty"`
	// OpenShift and ClusterDNS are the values of --openshift and --cluster-dns; empty if they are the defaults.
	OpenShift  string `json:"openshift,omitempty"`
	ClusterDNS string `json:"clusterDNS,omitempty"`
	// Previous is the version of the plugin in the previous setup; empty if it is unknown.
	Previous string `json:"-"`
	// FromControl is set if Image and PullSecret are those of control, because the Infra is new. EnvoyImageOf is then the
	// Infra that EnvoyImage was given for; empty for none.
	FromControl  bool   `json:"-"`
	EnvoyImageOf string `json:"-"`
}

// VersionOf returns the version of the plugin that set up an Infra or a standalone ProxyServer; empty if it is unknown.
func VersionOf(ctx context.Context, c client.Client, infra types.NamespacedName) (string, error) {
	r, err := recall(ctx, c, infra)
	if r == nil || err != nil {
		return "", err
	}
	return r.Version, nil
}

// same reports whether two setups use the same flags and version of the plugin; r may be nil.
func (r *Remembered) same(other *Remembered) bool {
	if r == nil {
		return false
	}
	one, two := *r, *other
	for _, x := range []*Remembered{&one, &two} {
		x.Previous, x.FromControl, x.EnvoyImageOf = "", false, ""
	}
	return equality.Semantic.DeepEqual(one, two)
}

// Images returns the images and PullSecret as the input of render.
func (r *Remembered) Images() render.Images {
	return render.Images{Oooi: r.Image, Envoy: r.EnvoyImage, PullSecret: r.PullSecret}
}

// UsesOpenShift reports whether setup renders for OpenShift: as --openshift says, or as detected if it is auto.
func (r *Remembered) UsesOpenShift(detected bool) bool {
	switch r.OpenShift {
	case "true":
		return true
	case "false":
		return false
	default:
		return detected
	}
}

// recall returns the remembered flags of an Infra; nil if there are none, or if reading records is forbidden.
func recall(ctx context.Context, c client.Client, infra types.NamespacedName) (*Remembered, error) {
	h, err := readHistory(ctx, c, infra)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	if h != nil {
		for _, r := range []*Record{h.last(StatusDeployed), h.last("")} {
			if r != nil && r.Flags != nil {
				return r.Flags, nil
			}
		}
	}
	return recallLegacy(ctx, c, infra)
}

// recallLegacy returns the flags that a version without records has stored; nil if there are none.
func recallLegacy(ctx context.Context, c client.Client, infra types.NamespacedName) (*Remembered, error) {
	stored, err := current(ctx, c, legacyObjects(infra)[0].Object())
	if apierrors.IsForbidden(err) || stored == nil && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, _, _ := unstructured.NestedString(stored.Object, "data", "setup.yaml")
	r := &Remembered{}
	if err := yaml.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("decoding key setup.yaml of %s: %w; delete that key and run setup again with the flags of the previous setup", inventory.Of(stored), err)
	}
	if text == "" {
		return nil, nil
	}
	return r, nil
}

// runningImages returns the images of an Infra's StatefulSets, without those that the Infra specifies. They are empty
// if it has no StatefulSet.
func runningImages(ctx context.Context, c client.Client, infra *v1alpha1.Infra) (render.Images, error) {
	list := &appsv1.StatefulSetList{}
	if err := c.List(ctx, list, client.InNamespace(infra.Namespace), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}); err != nil {
		return render.Images{}, fmt.Errorf("listing StatefulSets in namespace %s: %w", infra.Namespace, err)
	}
	named := []string{""}
	components := &infra.Spec.InfraComponents
	if components.DHCP != nil {
		named = append(named, components.DHCP.Image)
	}
	if components.DNS != nil {
		named = append(named, components.DNS.Image)
	}
	if components.Proxy != nil {
		named = append(named, components.Proxy.Image, components.Proxy.ProxyImage)
	}
	var images render.Images
	for i := range list.Items {
		set := &list.Items[i]
		if set.Annotations[v1alpha1.AnnotationInfra] != keyOf(infra) {
			continue
		}
		for _, container := range set.Spec.Template.Spec.Containers {
			switch image := container.Image; {
			case slices.Contains(named, image):
			case container.Name == "envoy":
				images.Envoy = cmp.Or(images.Envoy, image)
			default:
				images.Oooi = cmp.Or(images.Oooi, image)
			}
		}
	}
	return images, nil
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

// RememberedFlags are the names of the flags that setup remembers.
var RememberedFlags = []string{FlagRegistry, FlagImage, FlagEnvoyImage, FlagPullSecret, FlagOpenShift, FlagClusterDNS}

// Recall returns the remembered flags of an Infra. For an Infra that a version without remembered flags set up, they
// are the images of its workloads. For a new Infra, Image and PullSecret are those of control, which all Infras share; if
// control runs the default image from a mirror, Registry is that mirror; EnvoyImage is the one that was given for another
// Infra. An image that is found in none of these is taken from defaults. Recall returns nil for a new Infra if there is
// neither a control that setup deployed nor such an image, or if reading them is forbidden.
func Recall(ctx context.Context, c client.Client, infra *v1alpha1.Infra, defaults render.Images) (*Remembered, error) {
	r, err := recall(ctx, c, client.ObjectKeyFromObject(infra))
	if err != nil || r != nil {
		return r, err
	}
	images, err := runningImages(ctx, c, infra)
	isNew := images == (render.Images{})
	envoyOf := ""
	if err == nil && isNew {
		images, err = controlImages(ctx, c)
	}
	if err == nil && isNew {
		envoyOf, images.Envoy, err = givenEnvoyImage(ctx, c)
	}
	if err != nil || images == (render.Images{}) {
		return nil, err
	}
	r = &Remembered{FromControl: isNew, EnvoyImageOf: envoyOf, PullSecret: images.PullSecret}
	if r.PullSecret != "" {
		r.Given = append(r.Given, FlagPullSecret)
	}
	original := cmp.Or(defaults.Oooi, release.Repository)
	if r.Registry = registryOf(images.Oooi, defaults.Oooi); r.Registry != "" {
		r.Given = append(r.Given, FlagRegistry)
		original = images.Oooi
		defaults = render.Images{Oooi: images.Oooi, Envoy: MirroredImage(defaults.Envoy, r.Registry)}
	}
	r.Image, r.EnvoyImage = cmp.Or(images.Oooi, defaults.Oooi), cmp.Or(images.Envoy, defaults.Envoy)
	for _, i := range []struct{ flag, image, original string }{{FlagImage, r.Image, original}, {FlagEnvoyImage, r.EnvoyImage, defaults.Envoy}} {
		if given := i.flag == FlagEnvoyImage && envoyOf != ""; given || Repository(i.image) != Repository(i.original) { // otherwise it is the default of another release
			r.Given = append(r.Given, i.flag)
		}
	}
	return r, nil
}

// controlImages returns the image and the pull secret of control, if setup deployed it; empty otherwise, or without the
// right to read it.
func controlImages(ctx context.Context, c client.Client) (render.Images, error) {
	control := &appsv1.Deployment{}
	err := c.Get(ctx, client.ObjectKey{Namespace: render.SystemNamespace, Name: render.ControlName}, control)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return render.Images{}, nil
	case err != nil:
		return render.Images{}, fmt.Errorf("reading Deployment %s/%s: %w", render.SystemNamespace, render.ControlName, err)
	case control.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy || control.Annotations[helmRelease] != "":
		return render.Images{}, nil
	}
	pod := control.Spec.Template.Spec
	images := render.Images{Oooi: pod.Containers[0].Image}
	if len(pod.ImagePullSecrets) > 0 {
		images.PullSecret = pod.ImagePullSecrets[0].Name
	}
	return images, nil
}

// givenEnvoyImage returns the first Infra, "namespace/name", for which --envoy-image was given, and that image; empty if
// there is none, or without the right to read Infras and their inventories.
func givenEnvoyImage(ctx context.Context, c client.Client) (infra, image string, err error) {
	var all []types.NamespacedName
	err = (&read.Reader{Client: c}).In(ctx, read.InfraKind, "", func(u *unstructured.Unstructured) { all = append(all, client.ObjectKeyFromObject(u)) })
	if apierrors.IsForbidden(err) || errors.Is(err, read.ErrNotServed) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err //nolint:wrapcheck // read wraps it
	}
	slices.SortFunc(all, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range all {
		r, err := recall(ctx, c, key)
		if err == nil && r != nil && slices.Contains(r.Given, FlagEnvoyImage) { // setup of that Infra reports an error
			return key.String(), r.EnvoyImage, nil
		}
	}
	return "", "", nil
}

// Repository returns an image reference without tag and digest.
func Repository(image string) string {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return image
	}
	return named.Name()
}

// ResolveFlags returns the flags to use and to remember, from the given flags by name, those of the previous setup (nil
// for none), and the default images of this version of the plugin. The value "" resets any flag, "auto" resets
// --openshift, and "print" resets --cluster-dns. Without a default image, Image is that of the previous setup; it is empty
// if there is none. ResolveFlags also returns a line to print for each flag that is not given and
// whose value is an earlier one instead of the default, or changes. It does not set Version.
func ResolveFlags(given map[string]string, before *Remembered, defaults render.Images) (*Remembered, []string) {
	now := &Remembered{}
	var lines []string
	resolve := func(flag string, of func(*Remembered) *string, fallback, forget string) {
		value := of(now)
		*value = fallback
		flagValue, ok := given[flag]
		source := "kept from the previous setup"
		if before != nil && before.FromControl {
			source = "the " + strings.ReplaceAll(flag, "-", " ") + " of control, which all Infras share"
			if flag == FlagEnvoyImage && before.EnvoyImageOf != "" {
				source = "the image that was given for Infra " + before.EnvoyImageOf
			}
		}
		switch {
		case ok && flagValue != "" && flagValue != forget:
			*value, now.Given = flagValue, append(now.Given, flag)
		case ok || before == nil:
		case slices.Contains(before.Given, flag):
			*value, now.Given = *of(before), append(now.Given, flag)
			if *value != fallback {
				lines = append(lines, fmt.Sprintf("--%s %s is %s; --%s=%s resets it", flag, *value, source, flag, forget))
			}
		case fallback == "" && flag == FlagImage:
			*value = *of(before)
			lines = append(lines, fmt.Sprintf("--%s %s is %s, because this kubectl-oooi is not a release", flag, *value, source))
		case *of(before) != *value && before.Registry == now.Registry: // else --registry changes the image
			lines = append(lines, fmt.Sprintf("--%s changes from %s to %s, the default of this version of kubectl-oooi", flag, *of(before), *value))
		}
	}
	resolve(FlagRegistry, func(r *Remembered) *string { return &r.Registry }, "", "")
	resolve(FlagImage, func(r *Remembered) *string { return &r.Image }, MirroredImage(defaults.Oooi, now.Registry), "")
	resolve(FlagEnvoyImage, func(r *Remembered) *string { return &r.EnvoyImage }, MirroredImage(defaults.Envoy, now.Registry), "")
	resolve(FlagPullSecret, func(r *Remembered) *string { return &r.PullSecret }, "", "")
	resolve(FlagOpenShift, func(r *Remembered) *string { return &r.OpenShift }, "", "auto")
	resolve(FlagClusterDNS, func(r *Remembered) *string { return &r.ClusterDNS }, "", "print")
	return now, lines
}

// AnnotationVersion is the annotation with the version of the plugin that applied an object. Setup sets it on CRDs, and
// on the Deployments of control and of the VirtualIngress controller.
const AnnotationVersion = v1alpha1.GroupName + "/setup-version"

// Older reports whether version a of the plugin is older than b. It is false if one of them is not a version.
func Older(a, b string) bool {
	one, err1 := version.ParseSemantic(a)
	other, err2 := version.ParseSemantic(b)
	return err1 == nil && err2 == nil && one.LessThan(other)
}

// stampVersion sets AnnotationVersion on the plan's shared CRDs and Deployments. It returns an error if a newer
// version of the plugin applied them, or set up the Infra, unless AllowDowngrade is set.
func (a *Applier) stampVersion(ctx context.Context, p *Plan, h *history) error {
	newest := ""
	for _, o := range p.Objects {
		if kind := o.GetKind(); kind != "CustomResourceDefinition" && kind != "Deployment" || !p.shared(o) {
			continue
		}
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(o.GroupVersionKind())
		if err := client.IgnoreNotFound(a.Client.Get(ctx, client.ObjectKeyFromObject(o), live)); err != nil {
			return fmt.Errorf("reading %s: %w", inventory.Of(o), err)
		}
		appliedVersion := live.GetAnnotations()[AnnotationVersion]
		if Older(a.version(), appliedVersion) && live.GetAnnotations()[helmRelease] == "" && (newest == "" || Older(newest, appliedVersion)) {
			newest = appliedVersion
		}
		newVersion := appliedVersion
		if _, err := version.ParseSemantic(a.version()); err == nil {
			newVersion = a.version()
		}
		if newVersion != "" {
			annotations := o.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[AnnotationVersion] = newVersion
			o.SetAnnotations(annotations)
		}
	}
	if h != nil && h.last("") != nil {
		if stored := h.last("").Version; Older(a.version(), stored) && (newest == "" || Older(newest, stored)) {
			newest = stored
		}
	}
	if newest == "" || a.AllowDowngrade {
		return nil
	}
	return errors.New("kubectl-oooi " + newest + " deployed the Infra or objects that all Infras share, and this is " + a.version() +
		"; use " + newest + " or later, or --allow-downgrade to downgrade CustomResourceDefinitions, control and workloads")
}
