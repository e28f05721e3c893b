// Package rights_test proves that what kubectl oooi setup deploys may do what it has to, and
// nothing else: each daemon runs from its binary, as its pod is made by a real controller
// manager, with the token of its ServiceAccount, and the API server writes down each request.
// What is granted is then compared with what was asked for, and taken away piece by piece.
package rights_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/test/lab"
)

// hostedAddress is where the hosted cluster's API server listens: a cluster IP of the management
// cluster, so that its Service can be dialled.
const hostedAddress = "10.96.0.77"

// older is an API server that does not stream lists. Daemons list there, and watch; of one that
// does they only watch, and fall back on lists when that fails.
const older = "--feature-gates=WatchList=false"

var management = lab.Shared{
	Config: lab.Config{
		Name: "management", ServiceCIDR: "10.96.0.0/16", ControllerManager: true, Audit: true, APIServerFlags: []string{older},
		CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.NetworkAttachmentDefinition, lab.KubeVirt, lab.KubeVirtMachines},
	},
}

var hosted = lab.Shared{
	Config: lab.Config{
		Name: "hosted", Address: hostedAddress, ServerNames: []string{"api.demo.example.com"}, ServiceCIDR: "172.31.0.0/16",
		Audit: true, APIServerFlags: []string{older},
		CRDs: []lab.CRDSet{lab.MetalLB},
	},
}

// network has the cluster IPs, and the servers of the hosted control plane.
var network = lab.Network{
	Ranges:  []string{"10.96.0.0/16", "198.18.0.0/24"},
	Build:   []string{"coredns", "coredhcp", "xdsd", "kubectl-oooi"},
	Sources: []string{"api", "internal", "xdsd", "plugins", "corednsbuild", "coredhcpbuild", "kubectl-oooi", "manifests"},
	Prepare: prepare,
}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	if code := network.Main(m, &management, &hosted); code != 0 {
		os.Exit(code)
	}
}

// prepare looks for what the tests start beside control planes.
func prepare(ctx context.Context) error {
	_, err := lab.FindEnvoy(ctx, nil)
	return errors.Join(err, lab.FindTools("ip", "unshare", "chroot", "nsenter", "dhclient", "busybox"))
}

// await waits until a function finds nothing amiss.
func await(t *testing.T, what string, amiss func() string) {
	t.Helper()
	lab.Await(t, what, amiss)
}
