package lab

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestProgramsHaveTheProductsVersions checks that modules of the lab require the product's versions of shared
// dependencies. Otherwise the build cache compiles these packages, and all that import them, once per
// version.
func TestProgramsHaveTheProductsVersions(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	product := required(t, filepath.Join(root, "go.mod"))
	for _, dir := range []string{programsDir, filepath.Join(programsDir, "metallb"), filepath.Join(programsDir, "certmanager"), "tools"} {
		file := filepath.Join(root, dir, "go.mod")
		shared := 0
		for module, version := range required(t, file) {
			want, ok := product[module]
			if !ok {
				continue
			}
			if shared++; version != want {
				t.Errorf("%s requires %s %s, the product %s; require the higher one in both (go get, then go mod tidy)", file, module, version, want)
			}
		}
		if shared == 0 {
			t.Errorf("%s shares no module with the product", file)
		}
	}
}

// requirement matches a requirement in a go.mod file.
var requirement = regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`)

func required(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]string{}
	for _, match := range requirement.FindAllStringSubmatch(string(text), -1) {
		modules[match[1]] = match[2]
	}
	return modules
}
