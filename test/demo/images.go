package main

import (
	"context"

	"github.com/densityops/oooi/test/lab"
)

// The images that the node has, none of which is in any registry.
const (
	oooiImage   = "localhost/oooi:demo"
	envoyImage  = "localhost/envoy:demo"
	clientImage = "localhost/client:demo"
)

// prepareNode builds and fetches what the node takes beside what everything takes.
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
	ours, err := lab.OooiImage(oooiImage, map[string]string{"coredns": o.coredns, "coredhcp": o.coredhcp, "xdsd": o.xdsd})
	if err != nil {
		return err
	}
	theirs, err := lab.ProgramsImage(ctx, envoyImage, envoy)
	if err != nil {
		return err
	}
	clients, err := lab.ProgramsImage(ctx, clientImage, "sleep", "curl", "dig")
	if err != nil {
		return err
	}
	for _, image := range []lab.Image{ours, theirs, clients} {
		if err := image.Build(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}
