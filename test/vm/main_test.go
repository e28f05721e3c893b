//go:build vm

// Package vm_test runs what this project ships with real machines: a node whose cgroups are of version 2, and a client whose
// address NetworkManager gets.
package vm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// network has the API servers' addresses, and those of what is behind the proxy.
var network = lab.Network{
	Ranges:  []string{"198.18.0.0/24"},
	Build:   []string{"coredhcp", "coredns", "xdsd", "kubectl-oooi"},
	Sources: []string{"api", "internal", "plugins", "coredhcpbuild", "corednsbuild", "kubectl-oooi", "manifests", "test/cmd/node", "test/lab", "xdsd"},
	Prepare: prepare,
}

var management = lab.Shared{
	Config: lab.Config{Name: "management", Address: "198.18.0.1", CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.KubeVirt, lab.KubeVirtMachines, lab.Oooi}},
}

func TestMain(m *testing.M) {
	if code := network.Main(m, &management); code != 0 {
		os.Exit(code)
	}
}

// prepare builds what the tests start: there is no way to download anything later.
func prepare(ctx context.Context) error {
	if len(lab.VMMissing()) > 0 {
		return nil // each test says so
	}
	if _, err := lab.BuildVMImage(ctx, nil); err != nil {
		return err
	}
	return prepareGuest(ctx)
}

// The images of the node, none of which is in any registry.
const oooiImage, envoyImage = "localhost/oooi:vm", "localhost/envoy:vm"

// prepareGuest builds what runs in virtual machines: the lab's tests, and its node with images.
func prepareGuest(ctx context.Context) error {
	err := buildTest(ctx, "lab.test", "./test/lab")
	if err := errors.Join(err, prepareOVN(ctx)); err != nil {
		return err
	}
	if err := lab.PrepareNode(ctx, nil); err != nil {
		return err
	}
	ours := map[string]string{}
	for name, pkg := range map[string]string{"coredns": "./corednsbuild", "coredhcp": "./coredhcpbuild", "xdsd": "./xdsd"} {
		if ours[name], err = lab.BuildStatic(ctx, pkg); err != nil {
			return err
		}
	}
	envoy, err := lab.InstallEnvoy(ctx, nil)
	if err != nil {
		return err
	}
	oooi, err := lab.OooiImage(oooiImage, ours)
	if err != nil {
		return err
	}
	proxy, err := lab.ProgramsImage(ctx, envoyImage, envoy)
	if err != nil {
		return err
	}
	_, node := lab.BuildStatic(ctx, "./test/cmd/node")
	return errors.Join(node, oooi.Build(ctx, nil), proxy.Build(ctx, nil))
}

// image returns what virtual machines boot from, and skips the test where there can be none. In CI it fails the test.
func image(t *testing.T) lab.VMImage {
	t.Helper()
	lab.NeedVM(t)
	network.Need(t)
	image, err := lab.BuildVMImage(t.Context(), nil)
	if err != nil {
		t.Fatal(fmt.Errorf("finding the virtual machines' image: %w", err))
	}
	return image
}
