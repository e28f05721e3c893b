package model_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

// TestHyperShiftFixtures builds snapshots from what HyperShift's own CLI renders: all fixtures for KubeVirt,
// agent and none, and those with a KubeAPIServerDNSName for AWS.
func TestHyperShiftFixtures(t *testing.T) {
	hypershift, err := lab.ModuleDir(t.Context(), "github.com/openshift/hypershift")
	if err != nil {
		t.Fatal(err)
	}
	for _, fixtures := range []string{"kubevirt/*", "agent/*", "none/*", "aws/*KubeAPIServerDNSName"} {
		platform, pattern, _ := strings.Cut(fixtures, "/")
		files, err := filepath.Glob(filepath.Join(hypershift, "cmd", "cluster", platform, "testdata", pattern+".yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no fixtures %s: %v", fixtures, err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "zz_fixture_TestCreateCluster_"), ".yaml")
			t.Run(platform+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.Symlink(file, filepath.Join(dir, "fixture.yaml")); err != nil {
					t.Fatal(err)
				}
				checkGolden(t, dir, filepath.Join("testdata", "hypershift-"+platform+"-"+name+".golden"), model.Options{})
			})
		}
	}
}
