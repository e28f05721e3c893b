package dhcp4

import (
	"net"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// skeleton is the response that plugins fill. Of what has no answer they get one, too: a
// RELEASE and a DECLINE are theirs to know of.
func skeleton(req *dhcpv4.DHCPv4) (resp *dhcpv4.DHCPv4, answered bool, err error) {
	// It carries the relay agent's option 82 and the client's option 61 back (RFC 3046, 6842).
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

// complete makes what plugins left of a response one that may be sent, or returns why it may
// not. Where no plugin says who we are, self does. RFC 2131, table 3.
func complete(req, resp *dhcpv4.DHCPv4, self func() net.IP) (dropped string) {
	if !resp.Options.Has(dhcpv4.OptionServerIdentifier) {
		address := self()
		if address == nil {
			return dropNoServerID
		}
		resp.UpdateOption(dhcpv4.OptServerIdentifier(address))
	}
	// A client that has chosen another server wants nothing of us.
	if chosen := req.ServerIdentifier(); chosen != nil && !chosen.Equal(resp.ServerIdentifier()) {
		return dropOtherServer
	}
	switch {
	case resp.MessageType() == dhcpv4.MessageTypeNak:
		resp.ClientIPAddr, resp.YourIPAddr, resp.ServerIPAddr = net.IPv4zero, net.IPv4zero, net.IPv4zero
		if !req.GatewayIPAddr.IsUnspecified() {
			resp.SetBroadcast() // the address that the relay agent would send it to is wrong
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

// destination is where a response goes. RFC 2131, section 4.1, without the unicast to a
// hardware address, which would take a raw socket: what has no address yet is reached by
// broadcast.
func destination(req, resp *dhcpv4.DHCPv4, from net.IP) *net.UDPAddr {
	switch {
	case !req.GatewayIPAddr.IsUnspecified():
		return &net.UDPAddr{IP: req.GatewayIPAddr, Port: dhcpv4.ServerPort}
	case resp.MessageType() == dhcpv4.MessageTypeNak:
	// An address that the packet does not come from may be anybody's.
	case !req.ClientIPAddr.IsUnspecified() && req.ClientIPAddr.Equal(from):
		return &net.UDPAddr{IP: req.ClientIPAddr, Port: dhcpv4.ClientPort}
	}
	return &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort}
}
