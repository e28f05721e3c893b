//go:build e2e

package e2e_test

import (
	"context"

	"github.com/densityops/oooi/test/lab"
)

// The images of the tests, none of which is in a registry.
const (
	oooiImage  = "localhost/oooi:e2e"
	envoyImage = "localhost/envoy:e2e" // Envoy with the libraries of this host
	toolsImage = "localhost/tools:e2e" // clients, and BusyBox as a web server
)

// An additional image of a worker of a hosted cluster.
const speakerImage = "localhost/speaker:e2e" // MetalLB's speaker

// buildImages builds all images.
func buildImages(ctx context.Context) error {
	binaries := map[string]string{}
	for name, pkg := range map[string]string{"coredns": "./corednsbuild", "coredhcp": "./coredhcpbuild", "xdsd": "./xdsd"} {
		var err error
		if binaries[name], err = lab.BuildStatic(ctx, pkg); err != nil {
			return err
		}
	}
	oooi := lab.OooiImage(oooiImage, binaries)
	envoy, err := programs(ctx, envoyImage, lab.InstallEnvoy)
	if err != nil {
		return err
	}
	speaker, err := programs(ctx, speakerImage, lab.BuildMetalLBSpeaker)
	if err != nil {
		return err
	}
	tools, err := lab.ProgramsImage(ctx, toolsImage, "busybox", "curl", "dig", "openssl")
	if err != nil {
		return err
	}
	for _, image := range []lab.Image{oooi, envoy, speaker, tools} {
		if err := image.Build(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// programs returns an image of one program, which get builds or downloads.
func programs(ctx context.Context, name string, get func(context.Context, lab.Logf) (string, error)) (lab.Image, error) {
	program, err := get(ctx, nil)
	if err != nil {
		return lab.Image{}, err
	}
	return lab.ProgramsImage(ctx, name, program)
}
