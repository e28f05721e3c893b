package dhcp4

import (
	"net"
	"net/netip"
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/internal/probe"
)

// poolOption has the pool of a server in its requests to others. It is option 43, whose content is specific to the class.
const poolOption = dhcpv4.OptionVendorSpecificInformation

// isProbe reports whether one of oooi's pods probes with a packet, see probe.DHCPClass.
func (p packet) isProbe() bool {
	return p.req.MessageType() == dhcpv4.MessageTypeInform && p.req.ClassIdentifier() == probe.DHCPClass
}

// answerProbe replies to a probe with this server's identifier, and the class by which replicas recognize each other, at the
// address and port from which one of oooi's pods or a replica sent it. Other hosts get no reply, since they may
// belong to another Infra. Only failures of replies to clients are counted.
func (s *Server) answerProbe(p packet, from *net.UDPAddr) {
	sender, _ := netip.AddrFromSlice(from.IP.To4())
	replica := s.options.Pool != "" && string(p.req.Options.Get(poolOption)) == s.options.Pool
	known := replica || s.options.Probers != nil && slices.Contains(s.options.Probers(), sender)
	if !known || !p.req.ClientIPAddr.Equal(from.IP) || from.IP.Equal(p.self()) { // Ask
		return
	}
	s.metrics.probes.Inc()
	resp, err := dhcpv4.NewReplyFromRequest(p.req, dhcpv4.WithMessageType(dhcpv4.MessageTypeAck),
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier(probe.DHCPClass)))
	if err != nil || complete(p.req, resp, p.self) != "" {
		return
	}
	if err := p.socket.send(resp.ToBytes(), from, resp.ServerIdentifier(), p.device); err != nil {
		s.options.Log.Debug("sending a reply to a probe failed", "to", from, "err", err)
	}
}
