// Package proxy_test tests xdsd as its users run it: the built binary, with what it
// reads from a real API server, the real Envoy that it drives, clients that ask for
// names, and backends with certificates of their own that say who they are.
package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// Each site has a /24 of the one range and a /48 of the other: benchmarks' and
// documentation's addresses, which no other machine has.
var network = lab.Network{Ranges: []string{"198.18.0.0/15", "2001:db8::/32"}, Prepare: prepare}

var crds = []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi}

var management = lab.Shared{
	// Without a default route it does not know what to advertise; nobody asks.
	Config: lab.Config{Name: "management", APIServerFlags: []string{"--advertise-address=198.18.255.1"}},
	CRDs:   crds,
}

func TestMain(m *testing.M) {
	code := network.Main(m, &management)
	if buildDir != "" {
		if err := os.RemoveAll(buildDir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if code != 0 {
		os.Exit(code)
	}
}

var buildDir string

// binaryPath is an environment variable with the path of xdsd.
const binaryPath = "OOOI_TEST_XDSD"

// prepare builds xdsd and fetches what the tests start. Tests with the race detector
// run a binary with the race detector.
func prepare() (err error) {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	if buildDir, err = os.MkdirTemp("", "oooi-proxy-"); err != nil {
		return err
	}
	path := filepath.Join(buildDir, "xdsd")
	args := []string{"build", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "./xdsd")...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", build, err, out)
	}
	ctx := context.Background()
	_, noEnvoy := lab.FindEnvoy(ctx, nil)
	_, noAssets := lab.FindAssets(ctx, nil, "etcd", "kube-apiserver")
	_, noCRDs := lab.CRDs(ctx, crds...)
	return errors.Join(noEnvoy, noAssets, noCRDs, os.Setenv(binaryPath, path))
}

// sources has the go command see what these tests test, which they do not import: it
// keeps the result of a test for as long as nothing changes that the test looked at.
var sources = sync.OnceValue(func() error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	for _, dir := range []string{"api", "internal", "xdsd"} {
		look := func(_ string, _ fs.DirEntry, err error) error { return err }
		if err := filepath.WalkDir(filepath.Join(root, dir), look); err != nil {
			return err
		}
	}
	return nil
})

// launch starts a process from an OS thread that lives as long as the tests. Where
// children die with their parent, the kernel takes the thread that started them for it.
func launch(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	launcher() <- func() { started <- cmd.Start() }
	return <-started
}

var launcher = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})
