package api_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// Directories of the generated files, relative to the directory of this test.
const (
	crdDir   = "../manifests/crds"
	typesDir = "v1alpha1"
)

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	fresh := t.TempDir()
	// The command in v1alpha1/doc.go, with other output directories.
	generate := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../tools/go.mod", "controller-gen",
		"object", "crd", "paths=./"+typesDir, "output:object:dir="+fresh, "output:crd:dir="+fresh)
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", generate.Args, err, out)
	}

	files, err := filepath.Glob(fresh + "/*")
	lab.Must(t, err)
	known := map[string]bool{}
	for _, file := range files {
		dir := crdDir
		if filepath.Ext(file) == ".go" {
			dir = typesDir
		}
		committed := filepath.Join(dir, filepath.Base(file))
		known[committed] = true
		if !bytes.Equal(read(t, file), read(t, committed)) {
			t.Errorf("%s is out of date: run `make generate`", committed)
		}
	}

	crds, err := filepath.Glob(crdDir + "/hostedcluster*.yaml")
	lab.Must(t, err)
	for _, crd := range crds {
		if !known[crd] {
			t.Errorf("%s is not generated from any type: delete it", crd)
		}
	}
	if len(crds) == 0 || len(known) != len(crds)+1 {
		t.Errorf("generated %d files for %d CRDs, want one file for each CRD and one with the deepcopy functions", len(known), len(crds))
	}
}

func TestReferenceIsUpToDate(t *testing.T) {
	fresh := filepath.Join(t.TempDir(), "api.md")
	// The command in v1alpha1/doc.go, with another output file.
	generate := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../../tools/go.mod", "crd-ref-docs",
		"--source-path=.", "--renderer=markdown", "--config=reference/config.yaml", "--templates-dir=reference", "--output-path="+fresh)
	generate.Dir = typesDir
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", generate.Args, err, out)
	}
	if !bytes.Equal(read(t, fresh), read(t, "../docs/reference/api.md")) {
		t.Error("docs/reference/api.md is out of date: run `make generate`")
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	lab.Must(t, err)
	return data
}
