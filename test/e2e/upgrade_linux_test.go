//go:build e2e

package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/densityops/oooi/test/lab"
)

// upgradeFrom is an environment variable with the revision that TestUpgrade starts from.
const upgradeFrom = "OOOI_UPGRADE_FROM"

// release is a version of the project: its kubectl plugin, and its image on the node.
type release struct{ revision, plugin, image string }

// run runs a build command and returns its output.
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

// build builds a main package of a checkout like a release, so that it has its version.
func build(t *testing.T, checkout, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	run(t, "go", "build", "-C", checkout, "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", path, pkg)
	return path
}

// newRelease builds the plugin and the image of a revision of this repository.
func newRelease(t *testing.T, root, revision string) release {
	t.Helper()
	r := release{revision: run(t, "git", "-C", root, "rev-parse", "--short", revision+"^{commit}")}
	source := filepath.Join(t.TempDir(), "source")
	run(t, "git", "clone", "--quiet", "--no-checkout", root, source)
	run(t, "git", "-C", source, "checkout", "--quiet", "--detach", r.revision)
	binaries := map[string]string{}
	for program, pkg := range map[string]string{"coredns": "./corednsbuild", "coredhcp": "./coredhcpbuild", "xdsd": "./xdsd"} {
		binaries[program] = build(t, source, pkg)
	}
	image := lab.OooiImage("localhost/oooi:"+r.revision, binaries)
	lab.Must(t, image.Build(t.Context(), t.Logf))
	lab.Must(t, node.ImportImage(t.Context(), image.Name))
	r.plugin, r.image = build(t, source, "./kubectl-oooi"), image.Name
	return r
}

// edge is a proxy without an Infra, whose setup upgrades control and no component of infra.
const edge = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: edge, namespace: clusters}
spec:
  networkConfig: {serverIP: 198.18.50.8/24, networkAttachmentName: vlan50}
  backends: [{name: api, hostname: edge.example.com, port: 6443, targetService: kube-apiserver, targetPort: 6443, targetNamespace: clusters-demo}]
`

// TestUpgrade sets up with an earlier version and probes the services during an upgrade to this one, a
// downgrade, an upgrade of control alone, and another upgrade.
func TestUpgrade(t *testing.T) {
	revision := os.Getenv(upgradeFrom)
	if revision == "" {
		t.Skipf("%s is not set: run make upgrade-test", upgradeFrom)
	}
	root, err := lab.Root()
	lab.Must(t, err)
	s := newSite(t)
	before, now := newRelease(t, root, revision), build(t, root, "./kubectl-oooi")
	s.binary = now
	vlanServer(t, s.ca, shop)

	// Earlier versions serve only VMs whose network has the name of the Infra's.
	infra := lab.Merge(infra, "spec: {networkConfig: {networkAttachmentDefinition: clusters-demo/vlan50}}")
	s.binary = before.plugin
	s.setup(t, infra, "--image", before.image)
	v := s.monitor(t)
	s.binary = now // newer than control
	s.oooi(t, "-n", "clusters", "status", "demo")
	doctor := []string{"-n", "clusters", "doctor", "demo", "--wait", "2m"}
	if strings.Contains(s.oooi(t, "version", "--client"), "(devel)") { // it does not know that the site is outdated
		doctor = append(doctor, "--skip", "OOOI-INF-002")
	}
	s.oooi(t, doctor...)
	upgrade := func(name string) {
		t.Run(name, func(t *testing.T) {
			v.measure(t, event{name: name, disturbs: daemons, closesConnections: true, run: func(t *testing.T) {
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
		if output := s.failingSetup(t, infra); !strings.Contains(output, "--allow-downgrade") {
			t.Errorf("the earlier version printed\n%s", output)
		}
		if diff := cmp.Diff(serving, s.containers(t)); diff != "" {
			t.Errorf("the earlier version replaced pods before it rejected the downgrade:\n%s", diff)
		}
	} else {
		t.Log("builds in a git worktree have no version, so the earlier version does not reject the downgrade")
	}
	t.Run("downgrade", func(t *testing.T) {
		v.measure(t, event{name: "downgrade to " + before.revision, disturbs: daemons, closesConnections: true, run: func(t *testing.T) {
			s.setup(t, infra, "--image", before.image, "--allow-downgrade")
		}})
	})
	s.binary = now
	t.Run("control newer than daemons", func(t *testing.T) {
		daemons := s.containers(t)
		v.measure(t, event{name: "upgrade of control alone", disturbs: []string{"proxy"}, run: func(t *testing.T) { s.setup(t, edge) }})
		for component, ids := range s.containers(t) { // including the other proxy's
			for _, id := range daemons[component] {
				if !slices.Contains(ids, id) {
					t.Errorf("setup of another proxy replaced container %s of %s", id, component)
				}
			}
		}
		if out := s.oooi(t, doctor...); known && !strings.Contains(out, "an older version of kubectl-oooi deployed it") {
			t.Errorf("doctor does not say that an older version deployed the Infra:\n%s", out)
		}
	})
	upgrade("upgrade again")
	s.oooi(t, "-n", "clusters", "teardown", "edge", "--yes")
	v.report(t)
}
