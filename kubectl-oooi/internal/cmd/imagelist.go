package cmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// Output formats of images, besides the default.
const (
	formatDigestMirrors = "imagedigestmirrorset"
	formatImageSet      = "imagesetconfiguration"
)

// digestMirrorSet is the beginning of an object that makes OpenShift nodes pull images from a mirror.
const digestMirrorSet = `apiVersion: config.openshift.io/v1
kind: ImageDigestMirrorSet
metadata:
  name: oooi
spec:
  imageDigestMirrors:
`

// imageSet is the beginning of a configuration of oc-mirror v2.
const imageSet = `apiVersion: mirror.openshift.io/v2alpha1
kind: ImageSetConfiguration
mirror:
  additionalImages:
`

// images returns the command that lists the images of the release.
func (c *command) images() *cobra.Command {
	var registry, format string
	cmd := &cobra.Command{
		Use: "images", Short: "List the images that setup deploys by default",
		Long: "List the images that setup deploys by default, to mirror them for a site without access to the internet. With\n" +
			"--registry, list each image and its mirror, to which 'setup --registry' refers. It does not connect to a cluster.",
		Example: "  # Copy the images to a mirror, with their digests as tags (bash)\n" +
			"  kubectl oooi images --registry registry.example.com/oooi | while read -r image mirror; do\n" +
			"    skopeo copy --all --preserve-digests docker://$image docker://${mirror/@sha256:/:}\n  done\n\n" +
			"  # Redirect OpenShift nodes to the mirror\n" +
			"  kubectl oooi images --registry registry.example.com/oooi -o imagedigestmirrorset | oc apply -f -",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return c.runImages(registry, format) },
	}
	cmd.Flags().StringVar(&registry, setup.FlagRegistry, "", "Registry of the mirror, as HOST[:PORT][/PATH]")
	addChoice(cmd, &format, "output", "", "Output format: "+formatDigestMirrors+" (OpenShift, requires --registry) or "+formatImageSet+" (oc-mirror). "+
		"Default: an image in each line",
		formatDigestMirrors, formatImageSet)
	return cmd
}

func (c *command) runImages(registry, format string) error {
	if err := setup.CheckRegistry(registry); err != nil {
		return fmt.Errorf("--%s %q: %w", setup.FlagRegistry, registry, err)
	}
	images := []string{setup.DefaultImages().Oooi, setup.DefaultImages().Envoy}
	if images[0] == "" {
		c.warning("this plugin is not a release and has no default oooi image; build an image, and use 'setup --image'")
		images = images[1:]
	}
	var text strings.Builder
	text.WriteString(map[string]string{formatDigestMirrors: digestMirrorSet, formatImageSet: imageSet}[format])
	for _, image := range images {
		switch format {
		case formatDigestMirrors:
			if registry == "" || !strings.Contains(image, "@") {
				return fmt.Errorf("--output %s requires --%s, and images by digest, as in the plugin of a release or snapshot: %s", format, setup.FlagRegistry, image)
			}
			repository := setup.Repository(image)
			if mirror := setup.MirroredImage(repository, registry); mirror != repository { // else a snapshot's image, which is in the registry
				fmt.Fprintf(&text, "  - source: %s\n    mirrors:\n    - %s\n", repository, mirror)
			}
		case formatImageSet:
			fmt.Fprintf(&text, "  - name: %s\n", image)
		default:
			if registry != "" {
				image += " " + setup.MirroredImage(image, registry)
			}
			fmt.Fprintln(&text, image)
		}
	}
	_, err := fmt.Fprint(c.Out, text.String())
	return err
}
