package model_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/golden"
)

// TestGolden compares the snapshot of each folder in testdata with the golden file of that name. Folders
// proxy-* are for TestProxyGolden.
func TestGolden(t *testing.T) {
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), "proxy-") {
			continue
		}
		t.Run(entry.Name(), func(t *testing.T) {
			dir := filepath.Join("testdata", entry.Name())
			checkGolden(t, dir, dir+".golden", model.Options{})
		})
	}
}

// TestBackendNames compares the snapshot of folder proxy-infra with its golden file, if names of backends are published.
func TestBackendNames(t *testing.T) {
	checkGolden(t, "testdata/proxy-infra", "testdata/backend-names.golden", model.Options{Backends: true})
}

// TestVMNames compares the snapshot of folder vm-names with its golden file, if the leases of DHCP are read.
func TestVMNames(t *testing.T) {
	checkGolden(t, "testdata/vm-names", "testdata/vm-names-leases.golden", model.Options{Leases: []string{model.AllLeases}})
}

// TestProxyGolden compares the snapshots of the folders proxy-*, with ProxyServers and apps addresses.
func TestProxyGolden(t *testing.T) {
	folders, err := filepath.Glob("testdata/proxy-*[^n]") // no *.golden
	if err != nil || len(folders) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, dir := range folders {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			checkGolden(t, dir, dir+".golden", model.Options{Apps: &model.AppsOptions{}, Proxies: true})
		})
	}
}

func checkGolden(t *testing.T, dir, file string, options model.Options) {
	t.Helper()
	in, err := watch.ReadManifests(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, file, render(model.Build(in, options)))
}
