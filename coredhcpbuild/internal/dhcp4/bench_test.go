package dhcp4

import (
	"log/slog"
	"net"
	"testing"

	"github.com/coredhcp/coredhcp/handler"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/client_golang/prometheus"
)

// BenchmarkAnswer measures a relayed DISCOVER, from the received bytes to the sent reply, with a trivial plugin.
func BenchmarkAnswer(b *testing.B) {
	address, self := net.IPv4(127, 0, 0, 100).To4(), net.IPv4(127, 0, 0, 1).To4()
	s, err := Listen(b.Context(), Options{
		Listen: []net.UDPAddr{{IP: net.IPv4(127, 0, 0, 1)}}, Limit: 1, Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		Handlers: []handler.Handler4{func(_, resp *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) {
			resp.YourIPAddr = address
			resp.UpdateOption(dhcpv4.OptServerIdentifier(self))
			return resp, false
		}},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.close() })
	data := request(b, 1, 1, dhcpv4.MessageTypeDiscover, dhcpv4.WithGatewayIP(net.IPv4(127, 0, 0, 7))).ToBytes()
	b.ReportAllocs()
	for b.Loop() {
		req, err := dhcpv4.FromBytes(data)
		if err != nil {
			b.Fatal(err)
		}
		if why := s.handle(packet{req: req, socket: s.sockets[0], from: self}); why != "" {
			b.Fatal(why)
		}
	}
}
