// Package rights_test checks that the daemons that kubectl oooi setup deploys have exactly the permissions that
// they need. Each daemon runs from its binary, with the pod spec that a real controller manager creates and
// the token of its ServiceAccount, against API servers with audit logs. The tests compare granted permissions with
// requests, and then revoke each right in turn.
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

// hostedAddress is the address of the hosted API server. It is a cluster IP of the management cluster, so
// that its Service can be dialed.
const hostedAddress = "10.96.0.77"

// withoutWatchList is a flag with which the API server does not stream lists, like older ones. Daemons then
// use list and watch; otherwise they use only watch, and list as a fallback.
const withoutWatchList = "--feature-gates=WatchList=false"

var management = lab.Shared{
	Config: lab.Config{
		Name: "management", ServiceCIDR: "10.96.0.0/16", ControllerManager: true, Audit: true, APIServerFlags: []string{withoutWatchList},
		CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.NetworkAttachmentDefinition, lab.KubeVirt, lab.KubeVirtMachines},
	},
}

var hosted = lab.Shared{
	Config: lab.Config{
		Name: "hosted", Address: hostedAddress, ServerNames: []string{"api.demo.example.com"}, ServiceCIDR: "172.31.0.0/16",
		Audit: true, APIServerFlags: []string{withoutWatchList},
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

// prepare downloads Envoy, and checks that the other programs are installed.
func prepare(ctx context.Context) error {
	_, err := lab.FindEnvoy(ctx, nil)
	return errors.Join(err, lab.FindTools("ip", "unshare", "chroot", "nsenter", "dhclient", "busybox"))
}
