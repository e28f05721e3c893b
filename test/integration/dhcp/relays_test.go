package dhcp_test

import (
	"net"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/test/lab"
)

// TestRelayAgentsOutsideOfTheVLAN relays packets from a loopback address of a router, with the VLAN's subnet in option 82. The server
// has the routes that the CNI plugin sbr creates.
func TestRelayAgentsOutsideOfTheVLAN(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	srv := c.serveAt(t, s, "192.0.2.2", c.plugins("192.0.2.2", "relay=198.51.100.0/28")...)
	c.startVM(t, srv, "worker", mac1)
	srv.Run(t, "ip", "rule", "add", "from", "192.0.2.2", "table", "100")
	srv.Run(t, "ip", "route", "add", "192.0.2.0/24", "dev", "net1", "src", "192.0.2.2", "table", "100")
	srv.Run(t, "ip", "route", "add", "default", "via", "192.0.2.1", "dev", "net1", "table", "100")

	router := s.newMachine(t, mac3)
	for address, device := range map[string]string{"192.0.2.1/24": "eth0", "198.51.100.1/32": "lo", "198.51.100.99/32": "lo"} {
		router.Run(t, "ip", "address", "add", address, "dev", device)
	}
	router.Run(t, "sh", "-c", "echo 67 > /proc/sys/net/ipv4/ip_unprivileged_port_start")
	behind := *router.dial(t, 67)
	behind.m = &machine{router.Machine, net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	server, circuit := net.IPv4(192, 0, 2, 2), dhcpv4.GenericOptionCode(1)
	relay := func(p *dhcpv4.DHCPv4, agent net.IP) *dhcpv4.DHCPv4 {
		dhcpv4.WithGatewayIP(agent)(p)
		dhcpv4.WithOption(dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(circuit, []byte("port 7")),
			dhcpv4.OptGeneric(dhcpv4.LinkSelectionSubOption, []byte{192, 0, 2, 0})))(p)
		return p
	}
	agent := net.IPv4(198, 51, 100, 1)
	offer := behind.exchange(t, relay(behind.packet(t, dhcpv4.MessageTypeDiscover), agent), server)
	ack := behind.exchange(t, relay(behind.selecting(t, offer.YourIPAddr, server), agent), server)
	if ack.MessageType() != dhcpv4.MessageTypeAck || ack.YourIPAddr.Mask(net.CIDRMask(24, 32)).String() != "192.0.2.0" ||
		string(ack.RelayAgentInfo().Get(circuit)) != "port 7" || !ack.GatewayIPAddr.Equal(agent) {
		t.Errorf("reply to the agent: %s", ack.Summary())
	}
	forged := relay(behind.packet(t, dhcpv4.MessageTypeDiscover), net.IPv4(198, 51, 100, 99))
	behind.send(t, forged.ToBytes(), server)
	lab.Poll(t, "the packet to be dropped", func() bool {
		return srv.Metric(t, `coredhcp_leasedb_silences_total{family="ipv4",pool="default",reason="wrong_network"}`) == 1
	})
}
