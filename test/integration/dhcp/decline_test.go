package dhcp_test

import (
	"net"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/test/lab"
)

// TestForgedDeclinesAreIgnored sends DECLINEs from another host with a machine's MAC address: soon after the
// lease, later, and after the forger has made the server acknowledge the address again.
func TestForgedDeclinesAreIgnored(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	plugins := c.plugins("192.0.2.2")
	plugins[5] = "options mtu=1400" // without the default t1 of 2 seconds
	srv := c.serveAt(t, s, "192.0.2.2", plugins...)
	c.startVM(t, srv, "worker", mac1)
	victim := s.newMachine(t, mac1)
	victim.startClient(t, victim.dhclient(t)...)
	address := net.ParseIP(victim.awaitEvent(t, 0, "BOUND")["new_ip_address"]).To4()
	forger := &rawClient{m: &machine{mac: victim.mac}, conn: s.newMachine(t, mac2).dial(t, 68).conn}
	forged := func() *dhcpv4.DHCPv4 {
		return forger.packet(t, dhcpv4.MessageTypeDecline, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(address)),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 2))))
	}
	for _, reason := range []string{"not_in_use", "late_decline"} {
		forger.send(t, forged().ToBytes(), broadcast)
		lab.Poll(t, "the DECLINE to be ignored: "+reason, func() bool {
			return srv.metric(t, `coredhcp_leasedb_silences_total{family="ipv4",pool="default",reason="`+reason+`"}`) == 1
		})
	}
	// The forger makes the server acknowledge the address again, in the machine's name.
	ack := forger.exchange(t, forger.rebooting(t, address), broadcast)
	if ack.MessageType() != dhcpv4.MessageTypeAck {
		t.Fatalf("reply %s", ack.Summary())
	}
	forger.send(t, forged().ToBytes(), broadcast)
	lab.Poll(t, "the next DECLINE to be ignored", func() bool {
		return srv.metric(t, `coredhcp_leasedb_silences_total{family="ipv4",pool="default",reason="not_in_use"}`) == 2
	})
	if n := srv.metric(t, `coredhcp_leasedb_addresses{family="ipv4",pool="default",state="quarantined"}`); n != 0 {
		t.Errorf("%v addresses are quarantined", n)
	}
	n := len(victim.events(t))
	victim.startClient(t, victim.dhclient(t)...)
	if e := victim.awaitEvent(t, n, "BOUND", "REBOOT"); e["new_ip_address"] != address.String() {
		t.Errorf("lease after a restart: %v, want address %s", e, address)
	}
}
