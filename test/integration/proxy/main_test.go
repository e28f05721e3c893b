// Package proxy_test tests the built xdsd with a real API server and a real Envoy. Clients connect by name,
// and backends have separate certificates and send their names.
package proxy_test

import (
	"context"
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/test/lab"
)

// network has a /24 of the benchmarking range and a /48 of the documentation range for each site.
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
	ctrllog.SetLogger(logr.Discard())
	if code := network.Main(m, &management); code != 0 {
		os.Exit(code)
	}
}
