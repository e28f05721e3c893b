//go:build vm

package vm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// TestCgroupsV2 runs the lab's test of a node's cgroups in a VM with systemd and only cgroups v2. The cgroups
// must be created, passed on to the node's processes, and removed, even when the node is killed.
func TestCgroupsV2(t *testing.T) {
	image, folder := image(t), lab.TempDir(t)
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(root, "bin", "lab.test"), filepath.Join(folder, "lab.test")); err != nil {
		t.Fatal(err)
	}
	vm := lab.StartVM(t, lab.VMConfig{Image: image, Memory: 1024, Folder: folder})
	requireCgroupsV2(t, vm)
	out := vm.Run(t, "cd /folder && CI=yes ./lab.test -test.v -test.run '^TestBoxLeavesNothing$' 2>&1")
	if !strings.Contains(out, "--- PASS: TestBoxLeavesNothing/killed") {
		t.Errorf("output of the lab's test:\n%s", out)
	}
}

// requireCgroupsV2 fails the test unless the VM runs systemd with only cgroups v2.
func requireCgroupsV2(t *testing.T, vm *lab.VM) {
	t.Helper()
	if got := vm.Run(t, "stat --file-system --format %T /sys/fs/cgroup; cat /proc/1/comm"); got != "cgroup2fs\nsystemd\n" {
		t.Fatalf("cgroup file system and init process are %q", got)
	}
}
