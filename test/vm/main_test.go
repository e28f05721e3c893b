//go:build vm

// Package vm_test runs the project's components with QEMU virtual machines: a node with cgroups v2, OVN with
// the kernel datapath, and a DHCP client with NetworkManager.
package vm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// network has the addresses of the API servers and the proxy's backends.
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

// prepare builds and downloads everything that the tests start, because nothing can be downloaded later.
func prepare(ctx context.Context) error {
	if len(lab.VMMissing()) > 0 {
		return nil // each test reports what is missing
	}
	if _, err := lab.BuildVMImage(ctx, nil); err != nil {
		return err
	}
	return prepareGuest(ctx)
}

// The images of the node, none of which is in a registry.
const oooiImage, envoyImage = "localhost/oooi:vm", "localhost/envoy:vm"

// prepareGuest builds what runs in VMs: the tests of OVN, and the lab's node with its images.
func prepareGuest(ctx context.Context) error {
	if err := errors.Join(prepareOVN(ctx), lab.PrepareNode(ctx, nil)); err != nil {
		return err
	}
	binaries := map[string]string{}
	for name, pkg := range map[string]string{"coredns": "./corednsbuild", "coredhcp": "./coredhcpbuild", "xdsd": "./xdsd"} {
		var err error
		if binaries[name], err = lab.BuildStatic(ctx, pkg); err != nil {
			return err
		}
	}
	envoy, err := lab.InstallEnvoy(ctx, nil)
	if err != nil {
		return err
	}
	oooi := lab.OooiImage(oooiImage, binaries)
	proxy, err := lab.ProgramsImage(ctx, envoyImage, envoy)
	if err != nil {
		return err
	}
	_, nodeErr := lab.BuildStatic(ctx, "./test/cmd/node")
	return errors.Join(nodeErr, oooi.Build(ctx, nil), proxy.Build(ctx, nil))
}

// image returns the image of VMs. It skips the test, or fails it in CI, if VMs cannot be started.
func image(t *testing.T) lab.VMImage {
	t.Helper()
	lab.NeedVM(t)
	network.Need(t)
	image, err := lab.BuildVMImage(t.Context(), nil)
	if err != nil {
		t.Fatal(fmt.Errorf("building the VM image: %w", err))
	}
	return image
}
