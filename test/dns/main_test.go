// Package dns_test tests the coredns binary as its users run it: a process with a
// Corefile, real API servers, and clients on loopback that stand on VLANs and in pods.
package dns_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

// binary builds coredns, once, and returns its path.
var binary = sync.OnceValues(func() (string, error) {
	var err error
	if buildDir, err = os.MkdirTemp("", "oooi-dns-"); err != nil {
		return "", err
	}
	if err := lab.LookAt("api", "internal", "plugins", "corednsbuild"); err != nil {
		return "", err
	}
	path := filepath.Join(buildDir, "coredns")
	return path, lab.BuildBinary(context.Background(), path, "./corednsbuild")
})
