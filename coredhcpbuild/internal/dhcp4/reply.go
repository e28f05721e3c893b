package dhcp4

import (
	"net"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// newResponse returns the response that the plugins fill in, and whether it is sent. Plugins also receive RELEASE
// and DECLINE, which get no reply.
func newResponse(req *dhcpv4.DHCPv4) (resp *dhcpv4.DHCPv4, replied bool, err error) {
	// It echoes the relay agent's option 82 (RFC 3046) and the client's option 61 (RFC 6842).
	resp, err = dhcpv4.NewReplyFromRequest(req)
	if err != nil {
		return nil, false, err
	}
	switch req.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		resp.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeOffer))
		return resp, true, nil
	case dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform:
		resp.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeAck))
		return resp, true, nil
	default:
		return resp, false, nil
	}
}

// complete finishes the response of the plugins as in RFC 2131, table 3, or returns the reason why it must not be
// sent. If no plugin has set the server identifier, it is the address that self returns.
func complete(req, resp *dhcpv4.DHCPv4, self func() net.IP) (dropped string) {
	if !resp.Options.Has(dhcpv4.OptionServerIdentifier) {
		address := self()
		if address == nil {
			return dropNoServerID
		}
		resp.UpdateOption(dhcpv4.OptServerIdentifier(address))
	}
	// The client has selected another server.
	if chosen := req.ServerIdentifier(); chosen != nil && !chosen.Equal(resp.ServerIdentifier()) {
		return dropOtherServer
	}
	switch {
	case resp.MessageType() == dhcpv4.MessageTypeNak:
		resp.ClientIPAddr, resp.YourIPAddr, resp.ServerIPAddr = net.IPv4zero, net.IPv4zero, net.IPv4zero
		if !req.GatewayIPAddr.IsUnspecified() {
			resp.SetBroadcast() // the address of the client is wrong, so the relay agent must not unicast
		}
	case req.MessageType() == dhcpv4.MessageTypeInform:
		resp.ClientIPAddr, resp.YourIPAddr = req.ClientIPAddr, net.IPv4zero
		for _, code := range []dhcpv4.OptionCode{
			dhcpv4.OptionIPAddressLeaseTime, dhcpv4.OptionRenewTimeValue, dhcpv4.OptionRebindingTimeValue,
		} {
			resp.Options.Del(code)
		}
	case resp.YourIPAddr == nil || resp.YourIPAddr.IsUnspecified():
		return dropNoAddress
	case resp.MessageType() == dhcpv4.MessageTypeAck:
		resp.ClientIPAddr = req.ClientIPAddr
	}
	return ""
}

// destination returns the destination of a response as in RFC 2131, section 4.1, but without unicast to a hardware
// address, which needs a raw socket: clients without an address get a broadcast.
func destination(req, resp *dhcpv4.DHCPv4, from net.IP) *net.UDPAddr {
	switch {
	case !req.GatewayIPAddr.IsUnspecified():
		return &net.UDPAddr{IP: req.GatewayIPAddr, Port: dhcpv4.ServerPort}
	case resp.MessageType() == dhcpv4.MessageTypeNak:
	// A client address other than the source of the packet may be forged.
	case !req.ClientIPAddr.IsUnspecified() && req.ClientIPAddr.Equal(from):
		return &net.UDPAddr{IP: req.ClientIPAddr, Port: dhcpv4.ClientPort}
	}
	return &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort}
}
