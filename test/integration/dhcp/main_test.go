// Package dhcp_test tests coredhcp as its users run it: the built binary, without any
// capability, in a network namespace with an interface on a VLAN and one to a real API
// server, and real DHCP clients on that VLAN, each in a namespace of its own.
package dhcp_test

import (
	"context"
	"os"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// apiAddress is the API server's, which every server's namespace has a route to.
const apiAddress = "198.18.255.1"

var network = lab.Network{
	Ranges:  []string{apiAddress + "/32"},
	Build:   []string{"coredhcp"},
	Sources: []string{"api", "internal", "plugins", "coredhcpbuild"},
	Prepare: prepare,
}

var management = lab.Shared{
	Config: lab.Config{Name: "management", Address: apiAddress, CRDs: []lab.CRDSet{lab.KubeVirt, lab.KubeVirtMachines}},
}

func TestMain(m *testing.M) {
	if code := network.Main(m, &management); code != 0 {
		os.Exit(code)
	}
}

// prepare looks for what the tests start.
func prepare(context.Context) error {
	return lab.FindTools("ip", "nsenter", "setpriv", "dhclient", "busybox", "dhcpcd", networkd, networkManager, "nmcli", "dbus-daemon")
}
