// Package control_test tests xdsd control as its users run it: the built binary, with the
// rights of its manifest, on a real API server.
package control_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/densityops/oooi/test/integration/internal/tenant"
	"github.com/densityops/oooi/test/lab"
)

// network has a range that drops every packet. The VLAN's addresses are only read and written here.
var network = lab.Network{
	Holes:   []string{"203.0.113.0/24"},
	Build:   []string{"xdsd"},
	Sources: []string{"api", "internal", "xdsd", "manifests"},
	Prepare: prepare,
}

var tenants = tenant.NewLab(&network)

func TestMain(m *testing.M) {
	if code := tenants.Main(m, &election); code != 0 {
		os.Exit(code)
	}
}

// prepare builds MetalLB, and fetches the CRDs that tests install in a hosted cluster that runs.
func prepare(ctx context.Context) error {
	_, noMetalLB := lab.BuildMetalLB(ctx, nil)
	_, noCRDs := lab.CRDs(ctx, lab.MetalLB, lab.MetalLBOperator, lab.OLM)
	return errors.Join(noMetalLB, noCRDs)
}
