package cmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// A versionReport is the output of version in structured formats.
type versionReport struct {
	metav1.TypeMeta `json:",inline"`

	Client clientVersion `json:"client"`
	// Server has the deployed versions; nil if the cluster was not read.
	Server *serverVersion `json:"server,omitempty"`
}

// clientVersion has the version of the binary, and the default images of setup.
type clientVersion struct {
	Version    string `json:"version"`
	Image      string `json:"image"`
	EnvoyImage string `json:"envoyImage"`
}

// serverVersion has the workloads that are deployed in a cluster.
type serverVersion struct {
	// Control is nil if it is not deployed.
	Control *workload `json:"control,omitempty"`
	// Workloads has the StatefulSets of the daemons, sorted by namespace and name.
	Workloads []workload `json:"workloads"`
}

// A workload is a deployed Deployment or StatefulSet.
type workload struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Version is the version of the plugin that deployed it; empty if unknown.
	Version string `json:"version,omitempty"`
	// Skew lists how the workload differs from this plugin: older or newer (Version), image (an oooi image is not the
	// default), envoy (the Envoy image is not the default).
	Skew []string `json:"skew,omitempty"`
	// Images has the image of each container, by the name of the container.
	Images map[string]string `json:"images"`
}

// serverTimeout limits how long version waits for the cluster.
const serverTimeout = 10 * time.Second

// version returns the command that prints the version of the binary and the deployed workloads.
func (c *command) version() *cobra.Command {
	f := output.Single()
	var clientOnly bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the client version, the default images and the deployed workloads",
		Example: "  # Print only the client version and the default images\n  kubectl oooi version --client\n\n" +
			"  # Print the images of deployed workloads\n  kubectl oooi version -o jsonpath='{.server.workloads[*].images}'",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.runVersion(cmd.Context(), f, clientOnly) },
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "Print the client version and the default images only, without connecting to a cluster")
	f.Add(cmd)
	return cmd
}

func (c *command) runVersion(ctx context.Context, f *output.Flags, clientOnly bool) error {
	if err := f.Check(); err != nil {
		return err
	}
	images := setup.DefaultImages()
	r := &versionReport{
		TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "Version"},
		Client:   clientVersion{release.Version(), images.Oooi, images.Envoy},
	}
	if !clientOnly {
		ctx, cancel := context.WithTimeout(ctx, serverTimeout)
		defer cancel()
		var err error
		if r.Server, err = c.readServerVersion(ctx, &r.Client); err != nil {
			c.warning(fmt.Sprintf("reading deployed versions: %v; use --client to skip this", err))
		}
	}
	if !f.Text() {
		return f.Print(c.Out, r)
	}
	image := cmp.Or(r.Client.Image, "none, since this build is not a release; setup requires --image")
	if _, err := fmt.Fprintf(c.Out, "kubectl-oooi %s\noooi image   %s\nEnvoy image  %s\n", r.Client.Version, image, r.Client.EnvoyImage); err != nil {
		return err
	}
	if r.Server == nil {
		return nil
	}
	t := &output.Table{Titles: []string{"NAMESPACE", "WORKLOAD", "VERSION", "SKEW", "IMAGES"}}
	all := r.Server.Workloads
	if r.Server.Control != nil {
		all = slices.Insert(all, 0, *r.Server.Control)
	}
	for _, w := range all {
		images := slices.Compact(slices.Sorted(maps.Values(w.Images)))
		t.Add(w.Namespace, w.Name, w.Version, strings.Join(w.Skew, ","), strings.Join(images, ","))
	}
	if len(all) > 0 {
		fmt.Fprintln(c.Out)
	}
	return t.Write(c.Out)
}

// readServerVersion reads the deployed workloads. If it returns an error, it may also return some workloads.
func (c *command) readServerVersion(ctx context.Context, own *clientVersion) (*serverVersion, error) {
	cl, err := c.client()
	if err != nil {
		return nil, err
	}
	s := &serverVersion{Workloads: []workload{}}
	control := &appsv1.Deployment{}
	err = cl.Get(ctx, client.ObjectKey{Namespace: render.SystemNamespace, Name: render.ControlName}, control)
	switch {
	case err == nil:
		s.Control = newWorkload(control, &control.Spec.Template.Spec, control.Annotations[setup.AnnotationVersion], own)
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading Deployment %s/%s: %w", render.SystemNamespace, render.ControlName, err)
	}
	sets := &appsv1.StatefulSetList{}
	managed := client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
	err = cl.List(ctx, sets, managed)
	if apierrors.IsForbidden(err) {
		err = cl.List(ctx, sets, managed, client.InNamespace(c.namespace()))
	}
	if err != nil {
		return s, fmt.Errorf("listing StatefulSets: %w", err)
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		version := set.Annotations[setup.AnnotationVersion]
		if namespace, name, ok := strings.Cut(set.Annotations[v1alpha1.AnnotationInfra], "/"); ok {
			if version, err = setup.VersionOf(ctx, cl, types.NamespacedName{Namespace: namespace, Name: name}); err != nil && !apierrors.IsForbidden(err) {
				return s, err
			}
		}
		s.Workloads = append(s.Workloads, *newWorkload(set, &set.Spec.Template.Spec, version, own))
	}
	slices.SortFunc(s.Workloads, func(a, b workload) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return s, nil
}

// newWorkload returns a workload that a version of the plugin deployed, with its skew from this plugin.
func newWorkload(o client.Object, pod *corev1.PodSpec, version string, own *clientVersion) *workload {
	w := &workload{Namespace: o.GetNamespace(), Name: o.GetName(), Version: version, Images: map[string]string{}}
	for i := range pod.Containers {
		w.Images[pod.Containers[i].Name] = pod.Containers[i].Image
	}
	w.Skew = own.skewOf(w)
	return w
}

// skewOf returns the differences of a workload from this plugin, as in workload.Skew.
func (c *clientVersion) skewOf(w *workload) []string {
	skew := map[string]bool{"older": setup.Older(w.Version, c.Version), "newer": setup.Older(c.Version, w.Version)}
	for container, image := range w.Images {
		if container == "envoy" {
			skew["envoy"] = !sameImage(image, c.EnvoyImage)
		} else if c.Image != "" && !sameImage(image, c.Image) {
			skew["image"] = true
		}
	}
	return slices.DeleteFunc([]string{"older", "newer", "image", "envoy"}, func(s string) bool { return !skew[s] })
}

// sameImage reports whether two references are equal or have the same digest, as in a mirror.
func sameImage(a, b string) bool {
	_, digest, _ := strings.Cut(a, "@")
	_, other, _ := strings.Cut(b, "@")
	return a == b || digest != "" && digest == other
}
