package lab

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

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
