package setup

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// TestFleetScript writes the inputs and runs render.sh as docs/how-to/fleets.md describes: each Infra is rendered by the version of the
// plugin in its directory, and a failure keeps the previous file.
func TestFleetScript(t *testing.T) {
	page := lab.ReadFile(t, "docs", "how-to", "fleets.md")
	script := regexp.MustCompile("(?s)   ```bash\n(   #!/bin/bash\n   # needs the plugin.*?)   ```").FindSubmatch(page)
	inputs := regexp.MustCompile("(?s)   ```bash\n(   # needs a cluster\n   mkdir.*?)   ```").FindSubmatch(page)
	if script == nil || inputs == nil {
		t.Fatal("docs/how-to/fleets.md lacks render.sh, or the commands that write the inputs")
	}
	dir := t.TempDir()
	write := func(text string, mode os.FileMode, path ...string) {
		t.Helper()
		file := filepath.Join(append([]string{dir}, path...)...)
		lab.Must(t, os.MkdirAll(filepath.Dir(file), 0o700))
		lab.Must(t, os.WriteFile(file, []byte(text), mode))
	}
	write(regexp.MustCompile("(?m)^   ").ReplaceAllString(string(script[1]), ""), 0o700, "render.sh")
	plugin := "#!/bin/sh\nexec " + lab.Binary(t, "kubectl-oooi") + ` "$@" --image registry.example.com/oooi/oooi:`
	write(plugin+"v1\n", 0o700, "bin", "oooi-v1")
	write(plugin+"v2\n", 0o700, "bin", "oooi-v2")

	write("alpha vlan100\nbeta vlan100\n", 0o600, "infras")
	// kubectl prints the objects of a cluster with the arguments -n clusters get KIND NAME.
	write("#!/bin/sh\ncat objects/$5.yaml\n", 0o700, "bin", "kubectl")
	for i, name := range []string{"alpha", "beta"} {
		cluster, network, found := strings.Cut(strings.ReplaceAll(string(lab.ReadFile(t, "manifests", "examples", "demo", "cluster.yaml")), "demo", name), "\n---\n")
		if !found {
			t.Fatal("the example has one object")
		}
		write(infrasOf(t, "fleets.md")[i], 0o600, "inputs", name, "infra.yaml")
		write(cluster, 0o600, "objects", name+".yaml")
		write(network, 0o600, "objects", "vlan100.yaml")
		write(network, 0o600, "objects", "vlan101.yaml")
	}
	run := func(name string, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
		return cmd.CombinedOutput()
	}
	render := func(names ...string) ([]byte, error) { return run("./render.sh", names...) }
	if out, err := run("bash", "-ec", string(inputs[1])); err != nil || len(out) > 0 {
		t.Fatalf("writing the inputs: %v: %s", err, out)
	}
	write("--openshift=true --registry registry.example.com/oooi\n", 0o600, "inputs", "flags")
	expect := func(version, annotation string, path ...string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(append([]string{dir, "rendered"}, path...)...))
		lab.Must(t, err)
		if !strings.Contains(string(text), "registry.example.com/oooi/oooi:"+version+"\n") || !strings.Contains(string(text), annotation) {
			t.Errorf("%s lacks %s or %s:\n%s", path, version, annotation, text)
		}
	}

	if out, err := render("shared", "alpha", "beta"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	expect("v1", "openshift.io/required-scc", "shared", "oooi.yaml")
	expect("v1", "openshift.io/required-scc", "infras", "beta", "oooi.yaml")
	write("v2\n", 0o600, "inputs", "alpha", "version")
	if out, err := render("alpha", "beta"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	expect("v2", "name: alpha-dns", "infras", "alpha", "oooi.yaml")
	expect("v1", "openshift.io/required-scc", "infras", "beta", "oooi.yaml")
	write("v3\n", 0o600, "inputs", "alpha", "version")
	if out, err := render("alpha"); err == nil {
		t.Errorf("a missing version of the plugin is not an error: %s", out)
	}
	write("not an Infra\n", 0o600, "inputs", "beta", "infra.yaml")
	if out, err := render("beta"); err == nil {
		t.Errorf("an invalid file is not an error: %s", out)
	}
	expect("v2", "name: alpha-dns", "infras", "alpha", "oooi.yaml")
	expect("v1", "openshift.io/required-scc", "infras", "beta", "oooi.yaml")
}
