package leasedb

import (
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// handle4 answers one message. What is dropped ends the chain: CoreDHCP passes on even nil otherwise.
func (i *instance) handle4(req, resp *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) {
	if resp == nil || !i.enter() {
		return nil, true
	}
	defer i.messages.Done()
	c, why := i.client4(req)
	if why != "" {
		i.silent(why)
		return nil, true
	}
	var answer pool.Answer
	kind := dhcpv4.MessageTypeAck
	switch req.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		kind = dhcpv4.MessageTypeOffer
		wanted, _ := address(req.RequestedIPAddress())
		answer = i.pool.Discover(c, wanted)
	case dhcpv4.MessageTypeRequest:
		answer = i.request4(req, c)
	case dhcpv4.MessageTypeDecline, dhcpv4.MessageTypeRelease:
		answer.Reason = i.giveUp4(req, c)
	case dhcpv4.MessageTypeInform:
		if _, ok := address(req.ClientIPAddr); ok {
			return i.inform4(resp), false
		}
		answer.Reason = pool.ReasonMalformed
	default:
		answer.Reason = pool.ReasonDisregarded
	}
	switch answer.Verdict {
	case pool.Grant:
		return i.grant4(req, resp, kind, answer), false
	case pool.Refuse:
		return i.nak4(req, resp, answer.Reason), true
	default:
		i.silent(answer.Reason)
		return nil, true
	}
}

// client4 returns who asks, or why it is not served.
func (i *instance) client4(req *dhcpv4.DHCPv4) (pool.Client, pool.Reason) {
	if !i.local4(req) {
		return pool.Client{}, pool.ReasonWrongNet
	}
	if i.directory != nil { // by chaddr alone: any client can claim any identifier
		c, ok := i.machine(req.ClientHWAddr)
		if !ok || req.HWType != iana.HWTypeEthernet {
			return pool.Client{}, pool.ReasonUnknown
		}
		return c, ""
	}
	if id := req.Options.Get(dhcpv4.OptionClientIdentifier); len(id) > 1 {
		return ordinary("id", id, req.ClientHWAddr, req.HostName()), ""
	}
	if len(req.ClientHWAddr) == 0 {
		return pool.Client{}, pool.ReasonMalformed
	}
	return ordinary("mac", append([]byte{byte(req.HWType & 0xff)}, req.ClientHWAddr...), req.ClientHWAddr, req.HostName()), ""
}

// local4 reports whether a message comes from our network: of another one's clients, relays
// tell by their own address there, or by a suboption (RFC 3527).
func (i *instance) local4(req *dhcpv4.DHCPv4) bool {
	from, relayed := address(req.GatewayIPAddr)
	if info := req.RelayAgentInfo(); info != nil {
		if link, ok := netip.AddrFromSlice(info.Get(dhcpv4.LinkSelectionSubOption)); ok && link.Is4() {
			from, relayed = link, true
		}
	}
	return !relayed || i.config.cidr.Contains(from)
}

// request4 tells a client's states apart as RFC 2131, section 4.3.2 does.
func (i *instance) request4(req *dhcpv4.DHCPv4, c pool.Client) pool.Answer {
	server, chosen := i.server4(req)
	wanted, asks := address(req.RequestedIPAddress())
	using, uses := address(req.ClientIPAddr)
	switch {
	case chosen && server != i.config.server:
		i.pool.Forget(c)
		return pool.Answer{Reason: pool.ReasonOtherServer}
	case uses: // RENEWING, REBINDING
		return i.pool.Renew(i.ctx, c, using)
	case asks && chosen: // SELECTING
		return i.pool.Select(i.ctx, c, wanted)
	case asks: // INIT-REBOOT
		return i.pool.Verify(i.ctx, c, wanted)
	default:
		return pool.Answer{Reason: pool.ReasonMalformed}
	}
}

// server4 returns whom a message is for, if it says so.
func (i *instance) server4(req *dhcpv4.DHCPv4) (netip.Addr, bool) {
	if !req.Options.Has(dhcpv4.OptionServerIdentifier) {
		return netip.Addr{}, false
	}
	server, _ := address(req.ServerIdentifier())
	return server, true
}

// giveUp4 handles DECLINE and RELEASE, which are not answered.
func (i *instance) giveUp4(req *dhcpv4.DHCPv4, c pool.Client) pool.Reason {
	server, chosen := i.server4(req)
	ours := !chosen || server == i.config.server
	if req.MessageType() == dhcpv4.MessageTypeDecline {
		if addr, ok := address(req.RequestedIPAddress()); ok {
			return i.pool.Decline(i.ctx, c, addr, ours)
		}
		return pool.ReasonMalformed
	}
	addr, ok := address(req.ClientIPAddr)
	switch {
	case !ok:
		return pool.ReasonMalformed
	case !ours:
		return pool.ReasonOtherServer
	default:
		return i.pool.Release(i.ctx, c, addr)
	}
}

// grant4 makes an OFFER or ACK; other plugins add what they know.
func (i *instance) grant4(req, resp *dhcpv4.DHCPv4, kind dhcpv4.MessageType, a pool.Answer) *dhcpv4.DHCPv4 {
	i.replied(replies4[kind])
	resp.YourIPAddr = a.Addr.AsSlice()
	if kind == dhcpv4.MessageTypeAck {
		resp.ClientIPAddr = req.ClientIPAddr
	}
	i.identify4(resp, kind)
	resp.UpdateOption(dhcpv4.OptIPAddressLeaseTime(a.Lease))
	resp.UpdateOption(dhcpv4.OptRenewTimeValue((a.Lease / 2).Truncate(time.Second)))
	resp.UpdateOption(dhcpv4.OptRebindingTimeValue((a.Lease * 7 / 8).Truncate(time.Second)))
	return resp
}

// inform4 makes the ACK to an INFORM: options only, without address and lease. RFC 2131, section 4.3.5.
func (i *instance) inform4(resp *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	i.replied("inform")
	i.identify4(resp, dhcpv4.MessageTypeAck)
	return resp
}

func (i *instance) identify4(resp *dhcpv4.DHCPv4, kind dhcpv4.MessageType) {
	resp.UpdateOption(dhcpv4.OptMessageType(kind))
	resp.UpdateOption(dhcpv4.OptServerIdentifier(i.config.server.AsSlice()))
}

// nak4 makes a NAK, with nothing in it but what RFC 2131, table 3, and RFC 6842 let stand; a relay
// has to broadcast it, since the client may be on the wrong network.
func (i *instance) nak4(req, resp *dhcpv4.DHCPv4, why pool.Reason) *dhcpv4.DHCPv4 {
	i.replied("nak")
	nak := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootReply, HWType: req.HWType, TransactionID: req.TransactionID, Flags: req.Flags,
		ClientIPAddr: zero4(), YourIPAddr: zero4(), ServerIPAddr: zero4(), GatewayIPAddr: req.GatewayIPAddr,
		ClientHWAddr: req.ClientHWAddr, Options: dhcpv4.Options{},
	}
	for _, code := range []dhcpv4.OptionCode{dhcpv4.OptionClientIdentifier, dhcpv4.OptionRelayAgentInformation} {
		if v := req.Options.Get(code); v != nil {
			nak.Options[code.Code()] = v
		}
	}
	i.identify4(nak, dhcpv4.MessageTypeNak)
	nak.UpdateOption(dhcpv4.OptMessage(string(why)))
	if _, relayed := address(req.GatewayIPAddr); relayed {
		nak.SetBroadcast()
	}
	*resp = *nak // the caller may look at its own
	return resp
}

func zero4() []byte { return make([]byte, 4) }

var replies4 = map[dhcpv4.MessageType]string{dhcpv4.MessageTypeOffer: "offer", dhcpv4.MessageTypeAck: "ack"}
