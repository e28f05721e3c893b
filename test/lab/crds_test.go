package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestEveryCRDSet(t *testing.T) {
	cp := New(t, Config{Name: "crds"})
	for _, set := range CRDSets() {
		started := time.Now()
		crds, err := CRDs(t.Context(), set)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := cp.InstallCRDs(t.Context(), set); err != nil {
			t.Errorf("%s: %v", set, err)
		}
		t.Logf("%s: %d CRDs in %s", set, len(crds), time.Since(started).Round(time.Millisecond))
	}
	if _, err := CRDs(t.Context(), "unheard-of"); err == nil {
		t.Error("no error for a set that does not exist")
	}
}

func TestValidationIsReal(t *testing.T) {
	cp := management.Get(t)
	// HyperShift's CRD rejects a cluster without services.
	err := cp.ApplyYAML(t.Context(), []byte(`
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: no-services}
spec: {platform: {type: KubeVirt}, release: {image: x}, pullSecret: {name: x}, services: []}
`))
	if !apierrors.IsInvalid(err) {
		t.Errorf("got error %v, want Invalid", err)
	}
	if err == nil || !strings.HasPrefix(err.Error(), "HostedCluster default/no-services: ") {
		t.Errorf("the error does not name the object: %v", err)
	}
}

// TestModuleDir applies a fixture of HyperShift's own tests. The other fixture there has no release image,
// which the API rejects.
func TestModuleDir(t *testing.T) {
	cp := management.Get(t)
	dir, err := ModuleDir(t.Context(), "github.com/openshift/hypershift")
	if err != nil {
		t.Fatal(err)
	}
	fixture, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash("cmd/cluster/kubevirt/testdata/zz_fixture_TestCreateCluster_test_from_dvossel.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.ApplyYAML(t.Context(), fixture); err != nil {
		t.Error(err)
	}
	if _, err := ModuleDir(t.Context(), "example.com/other"); err == nil {
		t.Error("no error for a module that is not pinned")
	}
}

func TestModuleHashIsChecked(t *testing.T) {
	m := pinned()[0]
	m.sum = "h1:other="
	if _, err := m.dir(t.Context()); err == nil || !strings.Contains(err.Error(), "do not use it") {
		t.Errorf("got error %v", err)
	}
	m.version = "v0.0.0-20010101000000-000000000000"
	if _, err := m.dir(t.Context()); err == nil || !strings.Contains(err.Error(), m.version) {
		t.Errorf("got error %v", err)
	}
}
