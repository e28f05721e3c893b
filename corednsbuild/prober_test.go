package main

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
)

// TestPortsOfTheProxy expects the ports at which VMs connect to the control plane, with the proxy's address on the VLAN.
func TestPortsOfTheProxy(t *testing.T) {
	objects, err := watch.ReadManifests(manifests(t), model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ports := proxyPorts(model.Build(objects, model.Options{}).Infra("clusters/blue"))
	for text, want := range map[string]bool{"127.50.0.3:6443": true, "127.50.0.3:443": true, "127.51.0.3:6443": false, "127.50.0.3:80": false} {
		if slices.Contains(ports, netip.MustParseAddrPort(text)) != want {
			t.Errorf("%s: want %t, of %v", text, want, ports)
		}
	}
}
