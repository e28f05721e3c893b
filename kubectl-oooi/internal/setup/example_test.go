package setup

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// exampleImages are the images in the overlays of the examples.
var exampleImages = render.Images{Oooi: "ghcr.io/densityops/oooi:unreleased", Envoy: "docker.io/envoyproxy/envoy:distroless-v1.40.0"}

// example returns the plan of manifests/examples/demo, and that directory.
func example(t *testing.T) (plan *Plan, folder string) {
	t.Helper()
	folder = exampleFolder(t)
	return planOf(t, exampleFiles(folder)...), folder
}

func exampleFolder(t *testing.T) string {
	t.Helper()
	root, err := lab.Root()
	lab.Must(t, err)
	return filepath.Join(root, "manifests", "examples", "demo")
}

func exampleFiles(folder string) []string {
	return []string{filepath.Join(folder, "infra.yaml"), filepath.Join(folder, "cluster.yaml")}
}

// exampleKnown returns the input from the files of manifests/examples/demo.
func exampleKnown(t *testing.T) *Known {
	t.Helper()
	return knownOf(t, exampleFiles(exampleFolder(t))...)
}

func knownOf(t *testing.T, files ...string) *Known {
	t.Helper()
	known, err := ReadFiles(files, nil, "default", nil)
	lab.Must(t, err)
	return known
}

// planOf returns the plan of files.
func planOf(t *testing.T, files ...string) *Plan {
	t.Helper()
	return makePlan(t, knownOf(t, files...))
}

// makePlan returns the plan for a cluster in which the control plane's namespace exists.
func makePlan(t *testing.T, known *Known) *Plan {
	t.Helper()
	known.ControlPlane = true
	plan, err := Make(known, exampleImages)
	lab.Must(t, err)
	return plan
}

// TestExamplesMatchRenderedObjects compares the overlays of the examples with the rendered ones, and the output of
// kustomize with setup's output.
func TestExamplesMatchRenderedObjects(t *testing.T) {
	for name, file := range map[string]string{"demo": "infra.yaml", "edge": "proxyserver.yaml", "several": "infra.yaml"} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(filepath.Dir(exampleFolder(t)), name)
			render := func() *Plan {
				known := knownOf(t, filepath.Join(folder, file), filepath.Join(folder, "cluster.yaml"))
				known.OpenShift, known.Shared = name == "several", SharedNone
				return makePlan(t, known)
			}
			plan := render()
			checkOverlay(t, plan, folder)
			if !bytes.Equal(render().YAML, plan.YAML) {
				t.Error("rendering again gives other objects")
			}
		})
	}
}

// checkOverlay compares the overlay in a directory with a plan.
func checkOverlay(t *testing.T, plan *Plan, folder string) {
	t.Helper()
	overlay := filepath.Join(folder, "overlay")
	for _, name := range slices.Sorted(maps.Keys(plan.Overlay)) {
		golden.Check(t, filepath.Join(overlay, name), string(plan.Overlay[name]))
	}
	entries, err := os.ReadDir(overlay)
	lab.Must(t, err)
	for _, e := range entries {
		if _, ok := plan.Overlay[e.Name()]; !ok {
			t.Errorf("setup does not render %s; delete it", e.Name())
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	lab.Must(t, err)
	text, err := built.AsYaml()
	lab.Must(t, err)
	if !bytes.Equal(text, plan.YAML) {
		t.Error("the output of kustomize for the overlay differs from setup's")
	}
}

// TestSharedObjectsArePrintedSeparately checks that shared objects and other objects together are the objects of one output.
func TestSharedObjectsArePrintedSeparately(t *testing.T) {
	files := exampleFiles(exampleFolder(t))
	printed := func(shared string) []string {
		known := knownOf(t, files...)
		known.Shared, known.VirtualIngress = shared, true
		plan := makePlan(t, known)
		var list []string
		for _, o := range plan.Objects {
			list = append(list, inventory.Of(o).String())
			if plan.shared(o) != (shared == SharedOnly) && shared != SharedAll {
				t.Errorf("%s is printed with --shared=%s", inventory.Of(o), shared)
			}
		}
		slices.Sort(list)
		return list
	}
	apart := append(printed(SharedOnly), printed(SharedNone)...)
	slices.Sort(apart)
	if diff := cmp.Diff(printed(SharedAll), apart); diff != "" {
		t.Errorf("(-all +apart):\n%s", diff)
	}
	text, err := SharedObjects(exampleImages, true)
	lab.Must(t, err)
	known := knownOf(t, files...)
	known.Shared, known.VirtualIngress = SharedOnly, true
	if !bytes.Equal(text, makePlan(t, known).YAML) {
		t.Error("without an Infra, other objects are printed")
	}
}

// TestDaemonsAcceptRenderedConfiguration runs coredhcp --check and CoreDNS with the rendered configuration.
func TestDaemonsAcceptRenderedConfiguration(t *testing.T) {
	plan, folder := example(t)
	dir := t.TempDir()
	config := func(name, key string) string {
		for _, o := range plan.Objects {
			if o.GetKind() == "ConfigMap" && strings.HasPrefix(o.GetName(), name+"-") {
				text, _, err := unstructured.NestedString(o.Object, "data", key)
				if err != nil || text == "" {
					t.Fatalf("ConfigMap %s has no %s: %v", name, key, err)
				}
				path := filepath.Join(dir, key)
				lab.Must(t, os.WriteFile(path, []byte(text), 0o600))
				return path
			}
		}
		t.Fatalf("the plan has no ConfigMap %s", name)
		return ""
	}
	if out, err := exec.CommandContext(t.Context(), lab.Binary(t, "coredhcp"), "--config", config("demo-dhcp", "config.yml"), "--check").CombinedOutput(); err != nil {
		t.Errorf("coredhcp: %v: %s", err, out)
	}
	// CoreDNS runs on loopback addresses, and reads the example's objects from a directory, so that it can answer a
	// query.
	path := config("demo-dns", "Corefile")
	text, err := os.ReadFile(path)
	lab.Must(t, err)
	ports, err := lab.ReservePorts(t.Context(), "127.0.0.1", 1)
	lab.Must(t, err)
	ports.Release()
	for old, now := range map[string]string{
		".:53": fmt.Sprintf(".:%d", ports.Numbers[0]), "bind net1": "bind 127.0.0.1", "bind eth0": "bind 127.0.0.2",
		"/var/lib/coredns": dir, "        infra clusters/demo\n": "        manifests " + folder + "\n        infra clusters/demo\n",
		":8080": ":0", ":8181": ":0", ":9153": ":0",
	} {
		if !bytes.Contains(text, []byte(old)) {
			t.Fatalf("the Corefile has no %q: %s", old, text)
		}
		text = bytes.ReplaceAll(text, []byte(old), []byte(now))
	}
	lab.Must(t, os.WriteFile(path, text, 0o600))
	daemon := lab.NewDaemon(t, "coredns", func() *exec.Cmd {
		cmd := exec.Command(lab.Binary(t, "coredns"), "-conf", path)
		cmd.Env = append(os.Environ(), "POD_IP=127.0.0.1")
		return cmd
	})
	daemon.Start(t)
	client := dns.Client{Timeout: 5 * time.Second}
	lab.Await(t, "the name of the API server", func() string {
		reply, _, err := client.ExchangeContext(t.Context(), new(dns.Msg).SetQuestion("api.demo.example.com.", dns.TypeA), fmt.Sprintf("127.0.0.2:%d", ports.Numbers[0]))
		if err == nil && reply.Rcode == dns.RcodeSuccess && reply.Authoritative { // without address: the example has no Service of the proxy
			return ""
		}
		return fmt.Sprint(reply, err)
	})
}

// hostedCluster returns the HostedCluster among the files of an input.
func hostedCluster(t *testing.T, known *Known) *objects.HostedCluster {
	t.Helper()
	for _, u := range known.files {
		if hc, ok := objects.Decode[objects.HostedCluster](u).(*objects.HostedCluster); ok && u.GetKind() == site.HostedClusters.Kind {
			return hc
		}
	}
	t.Fatal("no HostedCluster")
	return nil
}

// setHostedClusters replaces the HostedClusters among the files of an input.
func setHostedClusters(known *Known, list ...*objects.HostedCluster) {
	known.files = slices.DeleteFunc(known.files, func(u *unstructured.Unstructured) bool { return u.GetKind() == site.HostedClusters.Kind })
	for _, hc := range list {
		known.files = append(known.files, objectOf(site.HostedClusters, hc))
	}
}
