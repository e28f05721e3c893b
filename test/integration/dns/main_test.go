// Package dns_test tests the coredns binary with real API servers. Clients use loopback addresses that stand
// for VMs on VLANs and for pods.
package dns_test

import (
	"os"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// hostedAddress is the hosted API server's address. It is a loopback address, so that the server can listen
// on it, and a cluster IP of the management cluster, so that its Service can be dialed.
const hostedAddress = "127.96.0.77"

var (
	// network provides the binary and exclusive ports; the tests use only loopback addresses.
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
