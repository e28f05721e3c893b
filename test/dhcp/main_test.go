// Package dhcp_test tests coredhcp as its users run it: the built binary, without any
// capability, in a network namespace with an interface on a VLAN and one to a real API
// server, and real DHCP clients on that VLAN, each in a namespace of its own.
package dhcp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// apiAddress is the API server's, which every server's namespace has a route to.
const apiAddress = "198.18.255.1"

var network = lab.Network{Ranges: []string{apiAddress + "/32"}, Prepare: prepare}

var management = lab.Shared{
	Config: lab.Config{Name: "management", Address: apiAddress},
	CRDs:   []lab.CRDSet{lab.KubeVirt, lab.KubeVirtMachines},
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

// binaryPath is an environment variable with the path of coredhcp.
const binaryPath = "OOOI_TEST_COREDHCP"

// prepare builds coredhcp and looks for what the tests start.
func prepare() (err error) {
	if buildDir, err = os.MkdirTemp("", "oooi-dhcp-"); err != nil {
		return err
	}
	if err := os.Chmod(buildDir, 0o755); err != nil { // coredhcp runs as nobody
		return err
	}
	var all []error
	for _, tool := range []string{"ip", "nsenter", "setpriv", "dhclient", "busybox", "dhcpcd", networkd} {
		if _, err := exec.LookPath(tool); err != nil {
			all = append(all, fmt.Errorf("%w: make deps installs it", err))
		}
	}
	ctx := context.Background()
	path := filepath.Join(buildDir, "coredhcp")
	_, noAssets := lab.FindAssets(ctx, nil, "etcd", "kube-apiserver")
	_, noCRDs := lab.CRDs(ctx, lab.KubeVirt, lab.KubeVirtMachines)
	return errors.Join(append(all, lab.BuildBinary(ctx, path, "./coredhcpbuild"), noAssets, noCRDs, os.Setenv(binaryPath, path))...)
}
