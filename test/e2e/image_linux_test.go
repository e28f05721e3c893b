//go:build e2e

package e2e_test

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// TestImageOfTwoArchitectures runs make image for two architectures, and checks the architecture of the
// programs in each image.
func TestImageOfTwoArchitectures(t *testing.T) {
	if !lab.Long() {
		t.Skip("compiles everything for another architecture: set OOOI_LAB_LONG=yes")
	}
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = root
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", cmd, err, out, &stderr)
		}
		return out
	}
	const image = "localhost/oooi:architectures"
	run("make", "image", "IMAGE="+image, "IMAGE_ARCHS=amd64 arm64", "IMAGE_TOOL=buildah")
	t.Cleanup(func() {
		if err := exec.Command("buildah", "manifest", "rm", image).Run(); err != nil {
			t.Error(err)
		}
	})
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		container := string(bytes.TrimSpace(run("buildah", "from", "--pull-never", "--arch", arch, image)))
		archive := filepath.Join(t.TempDir(), arch+".tar")
		run("sh", "-c", `tar -C "$(buildah mount "$1")" -cf "$2" . && buildah umount "$1" >/dev/null && buildah rm "$1" >/dev/null`, "sh", container, archive)
		machines := machinesOf(t, archive)
		want := []string{"coredhcp", "coredns", "xdsd"}
		if got := slices.Sorted(maps.Keys(machines)); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", arch, got, want)
		}
		for program, got := range machines {
			if got != machine {
				t.Errorf("%s in the image for %s has machine type %s", program, arch, got)
			}
		}
	}
}

// machinesOf returns the machine types of the ELF files in an archive, by name.
func machinesOf(t *testing.T, archive string) map[string]elf.Machine {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	machines := map[string]elf.Machine{}
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return machines
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if program, err := elf.NewFile(bytes.NewReader(content)); err == nil {
			machines[filepath.Base(header.Name)] = program.Machine
		}
	}
}
