// Package apps_test tests apps ingress end to end with the built binaries: xdsd control and the real MetalLB
// publish an apps address, CoreDNS resolves the apps names to it, and xdsd serve and the real Envoy forward
// connections. It also tests control with many hosted clusters.
package apps_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/densityops/oooi/test/integration/internal/tenant"
	"github.com/densityops/oooi/test/lab"
)

// network has the VLAN, and a range with a pod's address.
var network = lab.Network{
	Ranges:  []string{"192.0.2.0/24", "2001:db8::/64", "198.18.0.0/15"},
	Build:   []string{"xdsd", "coredns"},
	Sources: []string{"api", "internal", "xdsd", "plugins", "corednsbuild", "manifests"},
	Prepare: prepare,
}

var tenants = tenant.NewLab(&network)

func TestMain(m *testing.M) {
	tenants.Management.Config.Audit = true // for TestManyHostedClusters
	if code := tenants.Main(m); code != 0 {
		os.Exit(code)
	}
}

// prepare downloads Envoy and builds MetalLB.
func prepare(ctx context.Context) error {
	_, envoyErr := lab.FindEnvoy(ctx, nil)
	_, metallbErr := lab.BuildMetalLB(ctx, nil)
	return errors.Join(envoyErr, metallbErr)
}
