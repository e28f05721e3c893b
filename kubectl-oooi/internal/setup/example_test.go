package setup

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// exampleImages are those in the example's overlay.
var exampleImages = render.Images{Oooi: "ghcr.io/densityops/oooi:latest", Envoy: "docker.io/envoyproxy/envoy:distroless-v1.40.0"}

// example is the plan of manifests/examples/demo.
func example(t *testing.T) (plan *Plan, folder string) {
	t.Helper()
	folder = exampleFolder(t)
	return planOf(t, exampleFiles(folder)...), folder
}

func exampleFolder(t *testing.T) string {
	t.Helper()
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "manifests", "examples", "demo")
}

func exampleFiles(folder string) []string {
	return []string{filepath.Join(folder, "infra.yaml"), filepath.Join(folder, "cluster.yaml")}
}

// exampleKnown is what the files of manifests/examples/demo say.
func exampleKnown(t *testing.T) *Known {
	t.Helper()
	return knownOf(t, exampleFiles(exampleFolder(t))...)
}

func knownOf(t *testing.T, files ...string) *Known {
	t.Helper()
	known, err := ReadFiles(files, nil, "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// planOf is the plan of files, for a cluster that has the control plane's namespace.
func planOf(t *testing.T, files ...string) *Plan {
	t.Helper()
	known := knownOf(t, files...)
	known.ControlPlane = true
	plan, err := Make(known, exampleImages)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestTheExamplesAreWhatSetupRenders compares the overlays, file by file, and what kustomize makes
// of them, byte by byte.
func TestTheExamplesAreWhatSetupRenders(t *testing.T) {
	for name, file := range map[string]string{"demo": "infra.yaml", "edge": "proxyserver.yaml", "several": "infra.yaml"} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(filepath.Dir(exampleFolder(t)), name)
			render := func() *Plan {
				known := knownOf(t, filepath.Join(folder, file), filepath.Join(folder, "cluster.yaml"))
				known.ControlPlane, known.OpenShift = true, name == "several"
				plan, err := Make(known, exampleImages)
				if err != nil {
					t.Fatal(err)
				}
				return plan
			}
			plan := render()
			checkOverlay(t, plan, folder)
			if !bytes.Equal(render().YAML, plan.YAML) {
				t.Error("the second time it is something else")
			}
		})
	}
}

// checkOverlay compares the overlay in a folder with a plan.
func checkOverlay(t *testing.T, plan *Plan, folder string) {
	t.Helper()
	overlay := filepath.Join(folder, "overlay")
	for _, name := range slices.Sorted(maps.Keys(plan.Overlay)) {
		text := plan.Overlay[name]
		if name == "kustomization.yaml" { // which stands one folder deeper than it is built in
			text = bytes.ReplaceAll(text, []byte(render.BaseOf), []byte("../../../base"))
		}
		golden.Check(t, filepath.Join(overlay, name), string(text))
	}
	entries, err := os.ReadDir(overlay)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := plan.Overlay[e.Name()]; !ok {
			t.Errorf("%s is not of setup: remove it", e.Name())
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, plan.YAML) {
		t.Error("kustomize makes something else of the overlay than setup prints")
	}
}

// TestTheDaemonsTakeTheirConfiguration starts each binary far enough to read what is rendered.
func TestTheDaemonsTakeTheirConfiguration(t *testing.T) {
	plan, folder := example(t)
	dir := t.TempDir()
	config := func(name, key string) string {
		for _, o := range plan.Objects {
			if o.GetKind() == "ConfigMap" && o.GetName() == name {
				text, _, err := unstructured.NestedString(o.Object, "data", key)
				if err != nil || text == "" {
					t.Fatalf("ConfigMap %s has no %s: %v", name, key, err)
				}
				path := filepath.Join(dir, key)
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return path
			}
		}
		t.Fatalf("there is no ConfigMap %s", name)
		return ""
	}
	if out, err := exec.CommandContext(t.Context(), lab.Binary(t, "coredhcp"), "--config", config("demo-dhcp", "config.yml"), "--check").CombinedOutput(); err != nil {
		t.Errorf("coredhcp: %v: %s", err, out)
	}
	// CoreDNS has no check: it is started, on loopback, with the example's objects from a folder.
	path := config("demo-dns", "Corefile")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ports, err := lab.ReservePorts(t.Context(), "127.0.0.1", 1)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := lab.NewDaemon(t, "coredns", func() *exec.Cmd {
		cmd := exec.Command(lab.Binary(t, "coredns"), "-conf", path)
		cmd.Env = append(os.Environ(), "POD_IP=127.0.0.1")
		return cmd
	})
	daemon.Start(t)
	client := dns.Client{Timeout: 5 * time.Second}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		reply, _, err := client.ExchangeContext(t.Context(), new(dns.Msg).SetQuestion("api.demo.example.com.", dns.TypeA), fmt.Sprintf("127.0.0.2:%d", ports.Numbers[0]))
		if err == nil && reply.Rcode == dns.RcodeSuccess && reply.Authoritative { // there is no Service, so no address
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v, %v", reply, err)
		}
	}
}
