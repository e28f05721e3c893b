package dhcp_test

import (
	"net"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/test/lab"
)

// TestDeclineFloodQuarantinesAQuarterAtMost leases an address to each of many MAC addresses of one host,
// which declines them all. A client with a lease keeps its address during the flood and after a restart, and
// a new client still gets one.
func TestDeclineFloodQuarantinesAQuarterAtMost(t *testing.T) {
	const addresses = 2500
	flood := lab.Length(800, 2000)
	s := newSite(t)
	srv := s.newServer(t, "192.0.2.2",
		"leasedb store=bolt file=DIR/leases.db cidr=10.9.0.0/20 range=10.9.0.1-10.9.9.196 lease=1h server=192.0.2.2 relayed=true", "netmask 255.255.240.0")
	srv.start(t)
	victim := s.newMachine(t, mac1).dial(t, 68)
	address := victim.lease(t).YourIPAddr

	host := s.newMachine(t, mac2).dial(t, 68)
	declines := make([][]byte, flood)
	state := func(state string) float64 {
		return srv.metric(t, `coredhcp_leasedb_addresses{family="ipv4",pool="default",state="`+state+`"}`)
	}
	checkRenewal := func() {
		t.Helper()
		ack := victim.exchange(t, victim.packet(t, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(address)), broadcast)
		if ack.MessageType() != dhcpv4.MessageTypeAck || !ack.YourIPAddr.Equal(address) {
			t.Fatalf("renewing %s: %s", address, ack.Summary())
		}
	}
	for i := range declines {
		client := &rawClient{m: &machine{mac: net.HardwareAddr{2, 9, 0, 0, byte(i >> 8), byte(i)}}, conn: host.conn}
		ack := client.lease(t)
		declines[i] = client.packet(t, dhcpv4.MessageTypeDecline, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ack.YourIPAddr)),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(ack.ServerIdentifier()))).ToBytes()
		if i%50 != 49 && i != flood-1 {
			continue
		}
		for _, data := range declines[i/50*50 : i+1] { // soon after their ACKs, because late DECLINEs are ignored
			host.send(t, data, broadcast)
		}
		checkRenewal()
	}
	lab.Poll(t, "all DECLINEs to be processed", func() bool {
		return srv.metric(t, `coredhcp_dhcp4_received_total{type="DECLINE"}`) == float64(flood) && srv.metric(t, "coredhcp_dhcp4_in_flight") == 0
	})
	quarantined := state("quarantined")
	if quarantined < addresses/5 || quarantined > addresses/4+1 {
		t.Errorf("%v of %d addresses are quarantined, want a quarter at most", quarantined, addresses)
	}
	if n := srv.metric(t, `coredhcp_leasedb_silences_total{family="ipv4",pool="default",reason="too_many_declines"}`); n != float64(flood)-quarantined {
		t.Errorf("%v DECLINEs were ignored as too many, want %v", n, float64(flood)-quarantined)
	}

	srv.Kill(t)
	srv.start(t)
	if n := state("quarantined"); n != quarantined {
		t.Errorf("after a restart %v addresses are quarantined, want %v", n, quarantined)
	}
	checkRenewal()
	late := s.newMachine(t, mac3).dial(t, 68).lease(t)
	for _, data := range declines {
		p, err := dhcpv4.FromBytes(data)
		if err != nil {
			t.Fatal(err)
		}
		if late.YourIPAddr.Equal(p.RequestedIPAddress()) {
			t.Errorf("the new client got %s, which was declined", late.YourIPAddr)
		}
	}
}

// TestForgedDeclinesAreIgnored sends DECLINEs from another host with a machine's MAC address: soon after the
// lease, later, and after the forger has made the server acknowledge the address again.
func TestForgedDeclinesAreIgnored(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	plugins := c.plugins("192.0.2.2")
	plugins[5] = "options mtu=1400" // without the default t1 of 2 seconds
	srv := c.serveAt(t, s, "192.0.2.2", plugins...)
	c.startVM(t, srv, "worker", mac1, "")
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
