package main

import (
	"context"

	"github.com/densityops/oooi/test/lab"
)

// Images that the demo builds and imports to the node; they are in no registry.
const (
	oooiImage   = "localhost/oooi:demo"
	envoyImage  = "localhost/envoy:demo"
	clientImage = "localhost/client:demo"
)

// prepareNode builds and downloads what only the node mode needs: the node's programs, CRDs and images.
func prepareNode(ctx context.Context, o options) error {
	if err := lab.PrepareNode(ctx, nil); err != nil {
		return err
	}
	if _, err := lab.CRDs(ctx, siteCRDs()...); err != nil {
		return err
	}
	envoy, err := lab.InstallEnvoy(ctx, nil)
	if err != nil {
		return err
	}
	oooi := lab.OooiImage(oooiImage, map[string]string{"coredns": o.coredns, "coredhcp": o.coredhcp, "xdsd": o.xdsd})
	envoyProxy, err := lab.ProgramsImage(ctx, envoyImage, envoy)
	if err != nil {
		return err
	}
	clients, err := lab.ProgramsImage(ctx, clientImage, "sleep", "curl", "dig")
	if err != nil {
		return err
	}
	for _, image := range []lab.Image{oooi, envoyProxy, clients} {
		if err := image.Build(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}
