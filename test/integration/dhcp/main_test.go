// Package dhcp_test tests the built coredhcp binary without capabilities, in a network namespace with one
// interface on a VLAN and one to a real API server. Real DHCP clients on the VLAN each run in a network
// separate namespace.
package dhcp_test

import (
	"context"
	"os"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// apiAddress is the API server's address, to which every server's namespace has a route.
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

// prepare checks that the programs are installed.
func prepare(context.Context) error {
	return lab.FindTools("ip", "nsenter", "setpriv", "dhclient", "busybox", "dhcpcd", networkManager, "nmcli", "dbus-daemon")
}
