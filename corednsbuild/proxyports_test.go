package main

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
)

// blue returns the Infra of a hosted cluster.
func blue(t *testing.T) *model.Infra {
	t.Helper()
	objects, err := watch.ReadManifests(manifests(t), model.Options{})
	lab.Must(t, err)
	return model.Build(objects, model.Options{}).Infra("clusters/blue")
}

// TestProxyPorts expects the ports at which VMs connect to the control plane, with the proxy's address on the VLAN.
func TestProxyPorts(t *testing.T) {
	ports := proxyPorts(blue(t))
	for text, want := range map[string]bool{"127.50.0.3:6443": true, "127.50.0.3:443": true, "127.51.0.3:6443": false, "127.50.0.3:80": false} {
		if slices.Contains(ports, netip.MustParseAddrPort(text)) != want {
			t.Errorf("%s: want %t, of %v", text, want, ports)
		}
	}
}

func TestClosedPorts(t *testing.T) {
	infra := blue(t)
	result := func(port uint16, result string, failures int) neighbours.PortResult {
		a := netip.AddrPortFrom(netip.MustParseAddr("127.50.0.3"), port)
		return neighbours.PortResult{Address: a, Result: result, Failures: failures}
	}
	const message = "the proxy's address 127.50.0.3 accepts no connections over the VLAN at TCP port "
	for _, tc := range []struct {
		name    string
		results []neighbours.PortResult
		want    string
	}{
		{"all accept", []neighbours.PortResult{result(443, "accepted", 0), result(6443, "accepted", 0)}, ""},
		{"one connection failed", []neighbours.PortResult{result(443, "timeout", 1), result(6443, "accepted", 0)}, ""},
		{"a filter drops some", []neighbours.PortResult{result(443, "accepted", 0), result(6443, "timeout", 6)}, message + "6443: they are dropped, but those to port 443 are accepted"},
		{"not for long", []neighbours.PortResult{result(443, "accepted", 0), result(6443, "timeout", 5)}, ""},
		{"a filter drops all", []neighbours.PortResult{result(443, "timeout", 6), result(6443, "timeout", 6)}, message + "443, 6443: they are dropped, although the host answers ARP requests"},
		{"one port refuses connections", []neighbours.PortResult{result(443, "accepted", 0), result(6443, "refused", 6)}, message + "6443: they are refused, but those to port 443 are accepted"},
		{"the proxy starts", []neighbours.PortResult{result(443, "refused", 19), result(6443, "refused", 19)}, ""},
		{"the proxy does not listen", []neighbours.PortResult{result(443, "refused", 20), result(6443, "refused", 20)}, message + "443, 6443: they are refused, although the host answers ARP requests"},
		{"a port of something else", []neighbours.PortResult{result(22, "timeout", 9)}, ""},
	} {
		got := ""
		for _, p := range closedPorts(infra, tc.results) {
			got += p.Message
			if p.Object.Key() != "clusters/blue" || len(p.Evidence) < 2 {
				t.Errorf("%s: %+v", tc.name, p)
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	if got := fmt.Sprint(namesAt(infra.Cluster, []uint16{6443})); got != "[api-int.blue.example.com api.blue.example.com]" {
		t.Errorf("names at the API server's port: %s", got)
	}
}
