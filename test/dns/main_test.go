// Package dns_test tests the coredns binary as its users run it: a process with a
// Corefile, real API servers, and clients on loopback that stand on VLANs and in pods.
package dns_test

import (
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

// The hosted cluster's API server listens on a loopback address that is also a
// cluster IP of the management cluster, so that its Service can be dialled.
const hostedAddress = "127.96.0.77"

var (
	management = lab.Shared{
		Config: lab.Config{Name: "management", ServiceCIDR: "127.96.0.0/16"},
		CRDs:   []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi},
	}
	hosted = lab.Shared{
		Config: lab.Config{Name: "hosted", Address: hostedAddress, ServerNames: []string{"api.blue." + domain}, ServiceCIDR: "172.31.0.0/16"},
	}
)

func TestMain(m *testing.M) {
	lab.Main(m, &management, &hosted)
	if buildDir != "" {
		if err := os.RemoveAll(buildDir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// buildDir is where the binary is; empty until somebody needs it.
var buildDir string

// binary builds coredns, once, and returns its path. Tests with the race detector
// run a binary with the race detector.
var binary = sync.OnceValues(func() (string, error) {
	root, err := lab.Root()
	if err != nil {
		return "", err
	}
	if buildDir, err = os.MkdirTemp("", "oooi-dns-"); err != nil {
		return "", err
	}
	path := filepath.Join(buildDir, "coredns")
	args := []string{"build", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	// The go command keeps the result of a test for as long as nothing changes that the test
	// looked at: these test what they do not import.
	for _, dir := range []string{"api", "internal", "plugins", "corednsbuild"} {
		look := func(_ string, _ fs.DirEntry, err error) error { return err }
		if err := filepath.WalkDir(filepath.Join(root, dir), look); err != nil {
			return "", err
		}
	}
	build := exec.Command("go", append(args, "./corednsbuild")...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", build, err, out)
	}
	return path, nil
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
