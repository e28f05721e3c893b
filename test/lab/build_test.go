package lab

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestProgramsAreBuiltAgain checks which changes make a binary out of date. Tests with a stale one would prove nothing.
func TestProgramsAreBuiltAgain(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module x\n")
	write("go.sum", "")
	write("binary", "")
	binary := filepath.Join(dir, "binary")
	args := []string{"./"}
	for _, change := range []func(){
		func() {}, // not built yet
		func() { args = []string{"-race", "./"} },
		func() { write("main.go", "package main\n") },
		func() { write("go.sum", "x\n") },
	} {
		change()
		sum, err := sourceSum(dir, args)
		if err != nil {
			t.Fatal(err)
		}
		if upToDate(binary, sum) {
			t.Errorf("up to date with %q after a change", args)
		}
		write("binary.sum", sum)
		if !upToDate(binary, sum) {
			t.Errorf("out of date with %q after a build", args)
		}
	}
}

// TestProgramsHaveTheProductsVersions checks that modules of the lab require the product's versions of shared dependencies. Otherwise the
// build cache compiles these packages, and all that import them, once per version. MetalLB's source, which is patched, must be
// of the release that its module requires.
func TestProgramsHaveTheProductsVersions(t *testing.T) {
	product := required(t, "go.mod")
	for _, dir := range []string{programsDir, filepath.Join(programsDir, "metallb"), filepath.Join(programsDir, "certmanager"), "tools"} {
		shared := 0
		for module, version := range required(t, filepath.Join(dir, "go.mod")) {
			want, ok := product[module]
			if !ok {
				continue
			}
			if shared++; version != want {
				t.Errorf("%s requires %s %s, the product %s; require the higher one in both (go get, then go mod tidy)", dir, module, version, want)
			}
		}
		if shared == 0 {
			t.Errorf("%s shares no module with the product", dir)
		}
	}
	version := required(t, filepath.Join(programsDir, "metallb", "go.mod"))[metallbModule]
	if !slices.ContainsFunc(pinned(), func(m module) bool { return m.path == metallbModule && m.version == version }) {
		t.Errorf("test/programs/metallb requires %s %s; pin the same version in modules.go", metallbModule, version)
	}
}

// requirement matches a requirement in a go.mod file.
var requirement = regexp.MustCompile(`(?m)^(?:\t|require )(\S+) (v\S+)`)

// required returns the versions that a go.mod file of this repository requires, by module.
func required(t *testing.T, file string) map[string]string {
	t.Helper()
	modules := map[string]string{}
	for _, match := range requirement.FindAllStringSubmatch(string(ReadFile(t, file)), -1) {
		modules[match[1]] = match[2]
	}
	return modules
}

func TestModuleHashIsChecked(t *testing.T) {
	m := pinned()[0]
	m.sum = "h1:other="
	if _, err := m.dir(t.Context()); err == nil || !strings.Contains(err.Error(), "do not use it") {
		t.Errorf("got error %v", err)
	}
}

// TestFindEnvoy checks which versions of an Envoy in PATH are used.
func TestFindEnvoy(t *testing.T) {
	own, err := InstallEnvoy(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	inPath := filepath.Join(dir, "envoy")
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	for version, use := range map[string]bool{"1.31.2": true, "1.31.0-dev": true, "2.0.0": true, "1.30.11": false, "unknown": false} {
		script := "#!/bin/sh\necho 'envoy  version: 0/" + version + "/Clean/RELEASE/BoringSSL'\n"
		if err := os.WriteFile(inPath, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		want := own
		if use {
			want = inPath
		}
		if got, err := FindEnvoy(t.Context(), t.Logf); err != nil || got != want {
			t.Errorf("version %s: got %q, %v, want %q", version, got, err, want)
		}
	}
}
