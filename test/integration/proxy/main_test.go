// Package proxy_test tests xdsd as its users run it: the built binary, with what it
// reads from a real API server, the real Envoy that it drives, clients that ask for
// names, and backends with certificates of their own that say who they are.
package proxy_test

import (
	"context"
	"os"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// Each site has a /24 of the one range and a /48 of the other: benchmarks' and
// documentation's addresses, which no other machine has.
var network = lab.Network{
	Ranges:  []string{"198.18.0.0/15", "2001:db8::/32"},
	Build:   []string{"xdsd"},
	Sources: []string{"api", "internal", "xdsd"},
	Prepare: func(ctx context.Context) error {
		_, err := lab.FindEnvoy(ctx, nil)
		return err
	},
}

var management = lab.Shared{
	Config: lab.Config{Name: "management", CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi}},
}

func TestMain(m *testing.M) {
	if code := network.Main(m, &management); code != 0 {
		os.Exit(code)
	}
}
