//go:build vm

package vm_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// ovnCRDs are the CRDs of test/integration/ovn.
var ovnCRDs = []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.NetworkAttachmentDefinition, lab.KubeVirt}

// ovnBinaries are the packages of the binaries that test/integration/ovn starts, by their names.
var ovnBinaries = map[string]string{"coredns": "./corednsbuild", "coredhcp": "./coredhcpbuild", "xdsd": "./xdsd", "kubectl-oooi": "./kubectl-oooi"}

// prepareOVN builds the test binary of test/integration/ovn, and builds or downloads what it starts.
func prepareOVN(ctx context.Context) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", filepath.Join(root, "bin", "ovn.test"), "./test/integration/ovn")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", build, err, out)
	}
	for _, pkg := range ovnBinaries {
		if _, err := lab.BuildStatic(ctx, pkg); err != nil {
			return err
		}
	}
	if _, err := lab.FindOVN(ctx, nil); err != nil {
		return err
	}
	_, err = lab.ModuleFiles(ctx, ovnCRDs...)
	return err
}

// TestOVNWithKernelDatapath runs test/integration/ovn in a VM whose kernel has the module openvswitch, so
// that packets take the same datapath as on OpenShift.
func TestOVNWithKernelDatapath(t *testing.T) {
	image := image(t)
	vm := lab.StartVM(t, lab.VMConfig{Image: image, Memory: 6144, Folder: ovnFolder(t)})
	vm.Run(t, "modprobe openvswitch")
	vm.Run(t, `systemd-run --quiet --unit=ovn --working-directory=/folder/source/test/integration/ovn \
	--setenv=CI=yes --setenv=OOOI_LAB_DIR=/folder/lab --setenv=OOOI_LAB_BUILT=yes --setenv=OOOI_LAB_EMULATED=yes \
	--setenv=OOOI_LAB_MODULES=/folder/modules --setenv=OOOI_LAB_OVS_DATAPATH=system --setenv=HOME=/root --setenv=PATH="$PATH" \
	sh -c '/folder/ovn.test -test.v -test.timeout 60m >/folder/ovn.log 2>&1; echo "exit code $?" >>/folder/ovn.log'`)
	log := ""
	for !strings.Contains(log, "exit code ") {
		// Each wait has a timeout; the test binary's timeout bounds their sum.
		log = vm.Await(t, "cat /folder/ovn.log; lsmod | grep '^openvswitch'", func(out string) bool {
			grown := len(out) > len(log)
			return grown || strings.Contains(out, "exit code ")
		})
	}
	t.Logf("in the VM:\n%s", log)
	if !strings.Contains(log, "exit code 0\n") || !strings.Contains(log, "--- PASS: TestVMsReachTheControlPlane") {
		t.Error("test/integration/ovn failed in the VM")
	}
}

// ovnFolder returns a directory with the test binary, everything that it starts, and the sources by which that
// is considered up to date.
func ovnFolder(t *testing.T) string {
	t.Helper()
	root, err := lab.Root()
	lab.Must(t, err)
	archive, err := lab.ImageArchive(oooiImage)
	lab.Must(t, err)
	built := filepath.Dir(archive)
	copied := map[string][]string{
		".":                    {filepath.Join(root, "bin", "ovn.test")},
		"source":               {filepath.Join(root, "go.mod")},
		"source/test/programs": {filepath.Join(root, "test/programs/go.mod"), filepath.Join(root, "test/programs/go.sum"), filepath.Join(root, "test/programs/controlplane")},
		"source/test/lab":      {filepath.Join(root, "test/lab/testdata")},
	}
	for _, dir := range []string{"api", "internal", "xdsd", "plugins", "coredhcpbuild", "corednsbuild", "kubectl-oooi", "manifests"} {
		copied["source"] = append(copied["source"], filepath.Join(root, dir))
	}
	for _, name := range []string{"controlplane", "controlplane.sum", "envoy", "envoy.sum", "ovn"} {
		copied["lab"] = append(copied["lab"], filepath.Join(built, name))
	}
	modules, err := lab.ModuleFiles(t.Context(), ovnCRDs...)
	lab.Must(t, err)
	for to, from := range modules {
		dir := filepath.Join("modules", filepath.Dir(to))
		copied[dir] = append(copied[dir], from)
	}
	folder := lab.TempDir(t)
	copyInto(t, folder, copied)
	own := filepath.Join(folder, "lab", "own", lab.CheckoutSum("/folder/source"))
	lab.Must(t, os.MkdirAll(own, 0o755))
	for name, pkg := range ovnBinaries {
		path, err := lab.BuildStatic(t.Context(), pkg)
		if err == nil {
			err = exec.CommandContext(t.Context(), "cp", "--reflink=auto", path, filepath.Join(own, name)).Run()
		}
		lab.Must(t, err)
	}
	lab.Must(t, os.MkdirAll(filepath.Join(folder, "source", "test", "integration", "ovn"), 0o755))
	return folder
}
