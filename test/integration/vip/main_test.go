// Package vip_test tests xdsd hold as a pod runs it: the built binary in a network namespace
// with the two capabilities that it is given, on a VLAN with others of its kind, machines and a
// tenant, with a Lease in a real API server; and keepalived in its place.
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
