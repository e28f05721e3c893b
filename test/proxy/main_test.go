// Package proxy_test tests xdsd as its users run it: the built binary, with what it
// reads from a real API server, the real Envoy that it drives, clients that ask for
// names, and backends with certificates of their own that say who they are.
package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// Each site has a /24 of the one range and a /48 of the other: benchmarks' and
// documentation's addresses, which no other machine has.
var network = lab.Network{Ranges: []string{"198.18.0.0/15", "2001:db8::/32"}, Prepare: prepare}

var crds = []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi}

var management = lab.Shared{
	Config: lab.Config{Name: "management"},
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

// prepare builds xdsd and fetches what the tests start.
func prepare() (err error) {
	if buildDir, err = os.MkdirTemp("", "oooi-proxy-"); err != nil {
		return err
	}
	ctx := context.Background()
	path := filepath.Join(buildDir, "xdsd")
	if err := lab.BuildBinary(ctx, path, "./xdsd"); err != nil {
		return err
	}
	_, noEnvoy := lab.FindEnvoy(ctx, nil)
	_, noAssets := lab.FindAssets(ctx, nil, "etcd", "kube-apiserver")
	_, noCRDs := lab.CRDs(ctx, crds...)
	return errors.Join(noEnvoy, noAssets, noCRDs, os.Setenv(binaryPath, path))
}

// sources are what these tests test, which they do not import.
var sources = sync.OnceValue(func() error { return lab.LookAt("api", "internal", "xdsd") })
