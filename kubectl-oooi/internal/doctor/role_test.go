package doctor

import (
	"path/filepath"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestRoleMatchesReads compares manifests/doctor with the Reads of the checks.
func TestRoleMatchesReads(t *testing.T) {
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(Role(orderedChecks(t)))
	if err != nil {
		t.Fatal(err)
	}
	const head = "# Exactly the rights that the checks of 'kubectl oooi doctor' use. Generated from the checks by 'make golden'.\n"
	folder := filepath.Join(root, "manifests", "doctor")
	golden.Check(t, filepath.Join(folder, "clusterrole.yaml"), head+string(text))
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	if objects := built.Resources(); len(objects) != 1 || objects[0].GetName() != RoleName || objects[0].GetLabels()["app.kubernetes.io/managed-by"] != "oooi" {
		t.Errorf("kustomize builds %v", objects)
	}
}
