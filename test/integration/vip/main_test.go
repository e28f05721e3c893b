// Package vip_test tests the built xdsd hold in network namespaces, with only the capabilities of its
// container, on a VLAN with other replicas, machines and a tenant, and with a Lease in a real API server.
package vip_test

import (
	"os"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// network has the API server's address.
var network = lab.Network{
	Ranges:  []string{"198.18.0.0/24"},
	Build:   []string{"xdsd"},
	Sources: []string{"api", "internal", "xdsd"},
}

var management = lab.Shared{Config: lab.Config{Name: "management", Address: "198.18.0.1"}}

func TestMain(m *testing.M) {
	if code := network.Main(m, &management); code != 0 {
		os.Exit(code)
	}
}
