//go:build e2e

package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// upgradeFrom has the environment name the revision that TestUpgrade begins with.
const upgradeFrom = "OOOI_UPGRADE_FROM"

// release is a version of the project: its plugin, and an image on the node.
type release struct{ revision, plugin, image string }

// newRelease builds what a revision of this repository ships.
func newRelease(t *testing.T, revision string) release {
	t.Helper()
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	r := release{revision: run("git", "-C", root, "rev-parse", "--short", revision+"^{commit}")}
	source, bin := filepath.Join(t.TempDir(), "source"), t.TempDir()
	run("git", "-C", root, "worktree", "add", "--detach", source, r.revision)
	t.Cleanup(func() { _ = exec.Command("git", "-C", root, "worktree", "remove", "--force", source).Run() }) //nolint:errcheck // "git worktree prune" forgets it
	for name, pkg := range map[string]string{"kubectl-oooi": "./kubectl-oooi", "coredns": "./corednsbuild", "coredhcp": "./coredhcpbuild", "xdsd": "./xdsd"} {
		run("go", "build", "-C", source, "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(bin, name), pkg)
	}
	containerfile, err := os.ReadFile(filepath.Join(source, "manifests", "Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	image := lab.Image{Name: "localhost/oooi:" + r.revision, Containerfile: string(containerfile), Files: map[string]string{"ca-certificates.crt": "/etc/ssl/certs/ca-certificates.crt"}}
	for _, program := range []string{"coredns", "coredhcp", "xdsd"} {
		image.Files[runtime.GOARCH+"/"+program] = filepath.Join(bin, program)
	}
	if err := image.Build(ctx, t.Logf); err != nil {
		t.Fatal(err)
	}
	if err := importImages(ctx, node.Node, image.Name); err != nil {
		t.Fatal(err)
	}
	r.plugin, r.image = filepath.Join(bin, "kubectl-oooi"), image.Name
	return r
}

// TestUpgrade sets up with an earlier version, and has machines ask all the time while this one
// takes its place, the earlier one comes back, and this one takes its place again.
func TestUpgrade(t *testing.T) {
	revision := os.Getenv(upgradeFrom)
	if revision == "" {
		t.Skipf("%s names no revision to upgrade from: make upgrade-test", upgradeFrom)
	}
	s := newSite(t)
	now := s.binary
	before := newRelease(t, revision)
	vlanServer(t, s.ca, shop)

	s.binary = before.plugin
	s.setup(t, infra, "--image", before.image)
	v := s.visit(t)
	upgrade := func(name string) {
		t.Run(name, func(t *testing.T) {
			v.endure(t, fault{name: name, cuts: true, happen: func(t *testing.T) {
				s.binary = now
				s.setup(t, infra)
			}})
		})
	}
	upgrade("upgrade from " + before.revision)
	s.oooi(t, "-n", "clusters", "doctor", "demo", "--wait", "2m")

	s.binary = before.plugin
	serving := s.containers(t)
	if said := s.fails(t, infra); !strings.Contains(said, "--allow-downgrade") {
		t.Errorf("the earlier version said\n%s", said)
	}
	for component, ids := range s.containers(t) {
		if strings.Join(ids, " ") != strings.Join(serving[component], " ") {
			t.Errorf("the earlier version has replaced %s before it refused", component)
		}
	}
	t.Run("back", func(t *testing.T) {
		v.endure(t, fault{name: "back to " + before.revision, cuts: true, happen: func(t *testing.T) {
			s.setup(t, infra, "--image", before.image, "--allow-downgrade")
		}})
	})
	upgrade("upgrade again")
	s.teardown(t)
	for _, p := range v.probes {
		for _, err := range p.wrong() {
			t.Error(err)
		}
	}
	t.Logf("seconds without service:\n%s", v.table())
}
