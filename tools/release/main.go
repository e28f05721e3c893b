// The release command builds everything that a release of oooi publishes: the plugin's archives and krew manifest, the
// container image, charts, manifests, bills of materials, provenance, checksums and signatures. The files depend only
// on the commit, the flags and the version of Go.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	var o options
	flag.StringVar(&o.version, "version", "", "tag of the release, such as v1.2.3; empty for a snapshot")
	flag.StringVar(&o.root, "root", ".", "folder of the repository")
	flag.StringVar(&o.out, "out", "dist", "folder for the results, which is replaced")
	flag.StringVar(&o.registry, "registry", "ghcr.io/densityops", "prefix of the repositories oooi and charts/NAME")
	flag.StringVar(&o.url, "url", "https://github.com/densityops/oooi/releases/download", "URL below which VERSION/FILE is downloaded")
	flag.StringVar(&o.envoy, "envoy", envoyImage, "Envoy image; its digest is read from the registry unless the name contains it")
	flag.StringVar(&o.key, "key", "", "file with the private key for signatures, as PEM; COSIGN_PASSWORD decrypts a key of cosign")
	flag.BoolVar(&o.push, "push", false, "push the image and the charts")
	flag.StringVar(&o.image, "image", "", "build only the image of the working tree, with this name")
	architectures := flag.String("archs", "amd64,arm64", "architectures of the image")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64", "platforms of the plugin")
	flag.Parse()
	o.architectures, o.platforms = strings.Split(*architectures, ","), strings.Split(*platforms, ",")

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// envoyImage is the Envoy image with which the release was tested, as in kubectl-oooi/internal/release.
const envoyImage = "docker.io/envoyproxy/envoy:distroless-v1.40.0"

// options are the flags.
type options struct {
	version, root, out, registry, url, envoy, key, image string

	architectures, platforms []string

	push bool
}

// run builds the release, or only the image.
func run(ctx context.Context, o options) error {
	var err error
	for _, dir := range []*string{&o.root, &o.out} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return fmt.Errorf("finding a directory: %w", err)
		}
	}
	if o.image != "" {
		return runImage(ctx, o)
	}
	source, err := readSource(ctx, o.root)
	if err != nil {
		return err
	}
	if err := source.check(o.version); err != nil {
		return err
	}
	signer, err := readSigner(o)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(o.out); err != nil {
		return fmt.Errorf("replacing the results: %w", err)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil { //nolint:gosec // not secret
		return fmt.Errorf("creating a directory: %w", err)
	}
	r := &release{options: o, source: source, signer: signer}
	return r.build(ctx)
}
