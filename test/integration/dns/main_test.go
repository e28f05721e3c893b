// Package dns_test tests the coredns binary as its users run it: a process with a
// Corefile, real API servers, and clients on loopback that stand on VLANs and in pods.
package dns_test

import (
	"os"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// The hosted cluster's API server listens on a loopback address that is also a
// cluster IP of the management cluster, so that its Service can be dialled.
const hostedAddress = "127.96.0.77"

var (
	// network is for the binary, and for ports that nobody else takes: the tests need no other.
	network = lab.Network{
		Build:   []string{"coredns"},
		Sources: []string{"api", "internal", "plugins", "corednsbuild"},
	}
	management = lab.Shared{
		Config: lab.Config{Name: "management", ServiceCIDR: "127.96.0.0/16", CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi}},
	}
	hosted = lab.Shared{
		Config: lab.Config{Name: "hosted", Address: hostedAddress, ServerNames: []string{"api.blue." + domain}, ServiceCIDR: "172.31.0.0/16"},
	}
)

func TestMain(m *testing.M) {
	if code := network.Main(m, &management, &hosted); code != 0 {
		os.Exit(code)
	}
}
