//go:build e2e

package e2e_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"runtime"

	"github.com/densityops/oooi/test/lab"
)

// The images that the tests have, none of which is in any registry.
const (
	oooiImage  = "localhost/oooi:e2e"  // ours, by manifests/Containerfile
	envoyImage = "localhost/envoy:e2e" // Envoy with the libraries of this machine
	toolsImage = "localhost/tools:e2e" // clients, and BusyBox for a web server
)

const fromFiles = "FROM scratch\nCOPY . /\nUSER 65532:65532\n"

// buildImages builds them all.
func buildImages(ctx context.Context) error {
	if err := buildOooi(ctx); err != nil {
		return err
	}
	envoy, err := lab.InstallEnvoy(ctx, nil)
	if err != nil {
		return err
	}
	if err := buildLinked(ctx, envoyImage, fromFiles+"ENTRYPOINT [\"/bin/envoy\"]\n", envoy); err != nil {
		return err
	}
	return buildLinked(ctx, toolsImage, fromFiles, "busybox", "curl", "dig", "openssl")
}

// buildOooi does what 'make image' does.
func buildOooi(ctx context.Context) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	containerfile, err := os.ReadFile(filepath.Join(root, "manifests", "Containerfile"))
	if err != nil {
		return err
	}
	files := map[string]string{"ca-certificates.crt": "/etc/ssl/certs/ca-certificates.crt"}
	for name, pkg := range map[string]string{"coredns": "./corednsbuild", "coredhcp": "./coredhcpbuild", "xdsd": "./xdsd"} {
		if files[runtime.GOARCH+"/"+name], err = lab.BuildStatic(ctx, pkg); err != nil {
			return err
		}
	}
	return lab.Image{Name: oooiImage, Containerfile: string(containerfile), Files: files}.Build(ctx, nil)
}

// buildLinked builds an image of programs of this machine.
func buildLinked(ctx context.Context, name, containerfile string, programs ...string) error {
	files := map[string]string{}
	for _, program := range programs {
		more, err := lab.Linked(ctx, program)
		if err != nil {
			return err
		}
		maps.Copy(files, more)
	}
	return lab.Image{Name: name, Containerfile: containerfile, Files: files}.Build(ctx, nil)
}
