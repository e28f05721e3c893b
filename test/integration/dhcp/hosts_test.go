package dhcp_test

import (
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/internal/dhcplease"
)

// TestHosts leases addresses to hosts of the configuration, without KubeVirt's API, and keeps their bindings over changes to the
// configuration.
func TestHosts(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	plugins := c.plugins("192.0.2.2")
	vms := plugins[0]
	plugins[0] = "kubevirt network=clusters/vlan vms=false kubeconfig=DIR/kubeconfig snapshot=DIR/machines.json " +
		"host=" + mac1 + ",hostname=host-a,address=192.0.2.20 host=" + mac2
	srv := c.serveAt(t, s, "192.0.2.2", plugins...)
	c.cp.MustApply(t, c.vm("worker", mac3))

	a, b := s.newMachine(t, mac1), s.newMachine(t, mac2)
	client := a.startClient(t, a.dhclient(t)...)
	b.startClient(t, b.udhcpc(t)...)
	e := a.awaitEvent(t, 0, "BOUND")
	if a.address(t) != "192.0.2.20" || e["new_host_name"] != "host-a" || e["new_routers"] != "192.0.2.1" {
		t.Errorf("the first host has %v", e)
	}
	e = b.awaitEvent(t, 0, "bound")
	address := b.address(t)
	if !strings.HasPrefix(address, "192.0.2.1") || e["hostname"] != "" {
		t.Errorf("the second host has address %q and %v", address, e)
	}
	srv.awaitClient(t, mac1, dhcplease.HostInterface(mac1).String())
	other := s.newMachine(t, mac3).dial(t, 68)
	other.expectNoReply(t, srv, "silent", other.packet(t, dhcpv4.MessageTypeDiscover).ToBytes())
	client.Kill(t)

	// Another entry, and VMs: bindings stay. Without its entry a host is not served, and its address is not leased to others.
	plugins[0] = vms + " host=" + mac2 + ",hostname=host-b"
	srv.Terminate(t)
	srv.configure(t, plugins...)
	srv.start(t)
	srv.awaitClient(t, mac3, c.interfaceOf("worker"))
	b.Run(t, "ip", "address", "flush", "dev", "eth0")
	n := len(b.events(t))
	b.startClient(t, b.udhcpc(t)...)
	if e = b.awaitEvent(t, n, "bound"); b.address(t) != address || e["hostname"] != "host-b" {
		t.Errorf("the second host has address %s and %v, want %s", b.address(t), e, address)
	}
	removed := a.dial(t, 68)
	removed.expectNoReply(t, srv, "silent", removed.packet(t, dhcpv4.MessageTypeDiscover).ToBytes())
	if n := srv.Metric(t, `coredhcp_leasedb_addresses{family="ipv4",pool="default",state="bound"}`); n != 2 {
		t.Errorf("%v addresses are bound, want 2: the binding of the removed host has ended at once", n)
	}
}
