package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/golden"
)

// root is the folder of the repository.
const root = "../../.."

func TestClusterRoleHasTheRightsOfTheChecks(t *testing.T) {
	text, err := yaml.Marshal(Role())
	if err != nil {
		t.Fatal(err)
	}
	const head = "# Exactly the rights that the checks of 'kubectl oooi doctor' use. Generated from the checks by 'make golden'.\n"
	golden.Check(t, filepath.Join(root, "manifests", "doctor", "clusterrole.yaml"), head+string(text))
}

// TestChecksAreDocumented compares the generated pages with docs/reference, which has no others of their names.
func TestChecksAreDocumented(t *testing.T) {
	folder := filepath.Join(root, "docs", "reference")
	pages := Docs()
	for name, text := range pages {
		golden.Check(t, filepath.Join(folder, name), text)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "doctor-") && pages[e.Name()] == "" {
			t.Errorf("%s documents no check: delete it", e.Name())
		}
	}
}
