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

	"github.com/google/go-cmp/cmp"

	"github.com/densityops/oooi/test/lab"
)

// upgradeFrom has the environment name the revision that TestUpgrade begins with.
const upgradeFrom = "OOOI_UPGRADE_FROM"

// release is a version of the project: its plugin, and an image on the node.
type release struct{ revision, plugin, image string }

// run runs a command that builds something, and returns what it prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return strings.TrimSpace(string(out))
}

// build builds a main package of a checkout as a release is built, which knows its version.
func build(t *testing.T, checkout, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	run(t, "go", "build", "-C", checkout, "-trimpath", "-ldflags=-s -w", "-o", path, pkg)
	return path
}

// newRelease builds what a revision of this repository ships.
func newRelease(t *testing.T, root, revision string) release {
	t.Helper()
	r := release{revision: run(t, "git", "-C", root, "rev-parse", "--short", revision+"^{commit}")}
	source := filepath.Join(t.TempDir(), "source")
	run(t, "git", "clone", "--quiet", "--no-checkout", root, source)
	run(t, "git", "-C", source, "checkout", "--quiet", "--detach", r.revision)
	containerfile, err := os.ReadFile(filepath.Join(source, "manifests", "Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	image := lab.Image{Name: "localhost/oooi:" + r.revision, Containerfile: string(containerfile), Files: map[string]string{"ca-certificates.crt": "/etc/ssl/certs/ca-certificates.crt"}}
	for program, pkg := range map[string]string{"coredns": "./corednsbuild", "coredhcp": "./coredhcpbuild", "xdsd": "./xdsd"} {
		image.Files[runtime.GOARCH+"/"+program] = build(t, source, pkg)
	}
	if err := image.Build(t.Context(), t.Logf); err != nil {
		t.Fatal(err)
	}
	if err := importImages(t.Context(), node.Node, image.Name); err != nil {
		t.Fatal(err)
	}
	r.plugin, r.image = build(t, source, "./kubectl-oooi"), image.Name
	return r
}

// TestUpgrade sets up with an earlier version, and has machines ask all the time while this one
// takes its place, the earlier one comes back, and this one takes its place again.
func TestUpgrade(t *testing.T) {
	revision := os.Getenv(upgradeFrom)
	if revision == "" {
		t.Skipf("%s names no revision to upgrade from: make upgrade-test", upgradeFrom)
	}
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	before, now := newRelease(t, root, revision), build(t, root, "./kubectl-oooi")
	s.binary = now
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

	known := !strings.Contains(s.oooi(t, "version", "--client"), "(devel)")
	s.binary = before.plugin
	if known {
		serving := s.containers(t)
		if said := s.fails(t, infra); !strings.Contains(said, "--allow-downgrade") {
			t.Errorf("the earlier version said\n%s", said)
		}
		if diff := cmp.Diff(serving, s.containers(t)); diff != "" {
			t.Errorf("the earlier version has replaced pods before it refused:\n%s", diff)
		}
	} else {
		t.Log("in a worktree of git a build does not know its version, and the earlier one does not refuse it")
	}
	t.Run("back", func(t *testing.T) {
		v.endure(t, fault{name: "back to " + before.revision, cuts: true, happen: func(t *testing.T) {
			s.setup(t, infra, "--image", before.image, "--allow-downgrade")
		}})
	})
	upgrade("upgrade again")
	for _, p := range v.probes {
		for _, err := range p.wrong() {
			t.Error(err)
		}
	}
	t.Logf("seconds without service:\n%s", v.table())
}
