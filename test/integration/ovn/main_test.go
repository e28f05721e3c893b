// Package ovn_test runs the daemons on OVN nodes, with ports that are configured like ports of pods on an
// OVN-Kubernetes localnet. The pods are those that kubectl oooi setup renders.
package ovn_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// network has the addresses of the API server and of the hosted control plane.
var network = lab.Network{
	Ranges:  []string{"198.18.0.0/24"},
	Build:   []string{"xdsd", "coredhcp", "coredns", "kubectl-oooi"},
	Sources: []string{"api", "internal", "xdsd", "plugins", "coredhcpbuild", "corednsbuild", "kubectl-oooi"},
	Prepare: prepare,
}

var management = lab.Shared{
	Config: lab.Config{Name: "management", Address: "198.18.0.1", CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.NetworkAttachmentDefinition, lab.KubeVirt, lab.Oooi}},
}

func TestMain(m *testing.M) {
	if code := network.Main(m, &management); code != 0 {
		os.Exit(code)
	}
}

func prepare(ctx context.Context) error {
	_, ovnErr := lab.FindOVN(ctx, nil)
	_, envoyErr := lab.FindEnvoy(ctx, nil)
	return errors.Join(ovnErr, envoyErr, lab.FindTools("ip", "nsenter", "setpriv", "unshare", "busybox"))
}
