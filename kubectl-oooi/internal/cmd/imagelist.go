package cmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// Output formats of images, besides its default.
const (
	formatDigestMirrors = "imagedigestmirrorset"
	formatImageSet      = "imagesetconfiguration"
)

// images returns the command that lists the images of the release.
func (c *command) images() *cobra.Command {
	var registry, format string
	cmd := &cobra.Command{
		Use: "images", Short: "List the images that setup deploys by default",
		Long: "List the images that setup deploys by default, to mirror them for a site without access to the internet. With\n" +
			"--registry, list each image and its mirror, to which 'setup --registry' refers. It does not connect to a cluster.",
		Example: "  kubectl oooi images\n\n" +
			"  # Copy the images to a mirror\n" +
			"  kubectl oooi images --registry registry.example.com/oooi | while read -r image mirror; do\n" +
			"    skopeo copy --all --preserve-digests docker://$image docker://$mirror\n  done\n\n" +
			"  # Redirect the nodes of OpenShift to the mirror\n" +
			"  kubectl oooi images --registry registry.example.com/oooi -o imagedigestmirrorset | oc apply -f -",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return c.runImages(registry, format) },
	}
	cmd.Flags().StringVar(&registry, setup.FlagRegistry, "", "Registry of the mirror, as HOST[:PORT][/PATH]")
	cmd.Flags().StringVarP(&format, "output", "o", "", "Output format: "+formatDigestMirrors+" (OpenShift, requires --registry) or "+formatImageSet+" (oc-mirror). Default: an image in each line")
	completeFlag(cmd, "output", cobra.FixedCompletions([]string{formatDigestMirrors, formatImageSet}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c *command) runImages(registry, format string) error {
	if err := setup.CheckRegistry(registry); err != nil {
		return fmt.Errorf("--%s %q: %w", setup.FlagRegistry, registry, err)
	}
	defaults := setup.DefaultImages()
	var images []string
	if defaults.Oooi == "" {
		c.warning("this plugin is not part of a release, so it has no image of oooi: build one, and use 'setup --image'")
	} else {
		images = append(images, defaults.Oooi)
	}
	images = append(images, defaults.Envoy)
	var text []byte
	var err error
	switch format {
	case "":
		for _, image := range images {
			if registry != "" {
				image += " " + setup.MirroredImage(image, registry)
			}
			text = fmt.Appendln(text, image)
		}
	case formatDigestMirrors:
		text, err = digestMirrors(images, registry)
	case formatImageSet:
		text, err = imageSet(images)
	default:
		err = fmt.Errorf("--output %q: want %s or %s", format, formatDigestMirrors, formatImageSet)
	}
	if err != nil {
		return err
	}
	_, err = c.Out.Write(text)
	return err //nolint:wrapcheck // of standard output
}

// digestMirrors returns an ImageDigestMirrorSet (config.openshift.io/v1), by which nodes pull the images from a mirror.
func digestMirrors(images []string, registry string) ([]byte, error) {
	if registry == "" {
		return nil, fmt.Errorf("--output %s requires --%s", formatDigestMirrors, setup.FlagRegistry)
	}
	var mirrors []any
	for _, image := range images {
		if !strings.Contains(image, "@") {
			return nil, fmt.Errorf("--output %s: %s has no digest, because this plugin is not part of a release; use 'setup --%s'", formatDigestMirrors, image, setup.FlagRegistry)
		}
		repository := setup.Repository(image)
		mirrors = append(mirrors, map[string]any{"source": repository, "mirrors": []string{setup.MirroredImage(repository, registry)}})
	}
	return encode(map[string]any{
		"apiVersion": "config.openshift.io/v1", "kind": "ImageDigestMirrorSet", "metadata": map[string]any{"name": "oooi"},
		"spec": map[string]any{"imageDigestMirrors": mirrors},
	})
}

// imageSet returns an ImageSetConfiguration of oc-mirror v2.
func imageSet(images []string) ([]byte, error) {
	var additional []any
	for _, image := range images {
		additional = append(additional, map[string]any{"name": image})
	}
	return encode(map[string]any{
		"apiVersion": "mirror.openshift.io/v2alpha1", "kind": "ImageSetConfiguration",
		"mirror": map[string]any{"additionalImages": additional},
	})
}

func encode(object map[string]any) ([]byte, error) {
	text, err := yaml.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", object["kind"], err)
	}
	return text, nil
}
