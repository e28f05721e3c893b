// Package tenant sets up hosted clusters for tests of xdsd control: a management cluster, a hosted
// cluster in which the real MetalLB assigns addresses, and the built xdsd control with the permissions of
// its manifest.
package tenant

import (
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/test/lab"
)

const (
	// HostedAddress is the address of the hosted API server. It is a loopback address, so that the
	// server can listen on it, and a cluster IP of the management cluster, so that its Service can
	// be dialed.
	HostedAddress = "127.96.0.77"
	// HostedName is the DNS name in the hosted API server's certificate. It does not resolve.
	HostedName = "api.demo.example.com"
)

// Lab is what the tests of a package share: a network, a management cluster and a hosted cluster
// with MetalLB's CRDs. The control planes start when they are first used.
type Lab struct {
	Network    *lab.Network
	Management lab.Shared
	Hosted     lab.Shared
}

// NewLab returns a Lab in a network whose Build includes xdsd.
func NewLab(network *lab.Network) *Lab {
	return &Lab{
		Network: network,
		Management: lab.Shared{
			Config: lab.Config{Name: "management", ServiceCIDR: "127.96.0.0/16", ControllerManager: true, CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi}},
		},
		Hosted: lab.Shared{
			Config: lab.Config{Name: "hosted", Address: HostedAddress, ServerNames: []string{HostedName}, ServiceCIDR: "172.31.0.0/16,fd31::/108", CRDs: []lab.CRDSet{lab.MetalLB}},
		},
	}
}

// Main is the TestMain of a package: it runs the tests in the network, stops the Lab's control planes,
// and returns the exit code.
func (l *Lab) Main(m *testing.M) (code int) {
	ctrllog.SetLogger(logr.Discard())
	return l.Network.Main(m, &l.Management, &l.Hosted)
}
