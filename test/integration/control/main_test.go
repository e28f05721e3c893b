// Package control_test tests the built xdsd control with the permissions of its manifest on real API servers.
package control_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/densityops/oooi/test/integration/internal/tenant"
	"github.com/densityops/oooi/test/lab"
)

// network has a range that drops every packet. The VLAN's addresses are only data here.
var network = lab.Network{
	Blackholes: []string{"203.0.113.0/24"},
	Build:      []string{"xdsd"},
	Sources:    []string{"api", "internal", "xdsd", "manifests"},
	Prepare:    prepare,
}

var tenants = tenant.NewLab(&network)

func TestMain(m *testing.M) {
	if code := tenants.Main(m); code != 0 {
		os.Exit(code)
	}
}

// prepare builds MetalLB, and downloads the CRDs that tests install in a running hosted cluster.
func prepare(ctx context.Context) error {
	_, metallbErr := lab.BuildMetalLB(ctx, nil)
	_, crdsErr := lab.CRDs(ctx, lab.MetalLB, lab.MetalLBOperator, lab.OLM)
	return errors.Join(metallbErr, crdsErr)
}
