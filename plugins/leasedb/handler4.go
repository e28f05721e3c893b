package leasedb

import (
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// handle4 handles one message. A dropped message must end the chain, because CoreDHCP would pass nil to the next
// plugin.
func (i *instance) handle4(req, resp *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) {
	if resp == nil || !i.enter() {
		return nil, true
	}
	defer i.messages.Done()
	c, why := i.client4(req)
	if why != "" {
		i.countSilence(why)
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
		answer.Reason = i.release4(req, c)
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
		i.countSilence(answer.Reason)
		return nil, true
	}
}

// client4 returns the client of a message, or the reason why it is not served.
func (i *instance) client4(req *dhcpv4.DHCPv4) (pool.Client, pool.Reason) {
	if !i.local4(req) {
		return pool.Client{}, pool.ReasonWrongNet
	}
	if i.directory != nil { // by chaddr only: a client can send any identifier
		c, ok := i.vmClient(req.ClientHWAddr)
		if !ok || req.HWType != iana.HWTypeEthernet {
			return pool.Client{}, pool.ReasonUnknown
		}
		return c, ""
	}
	if id := req.Options.Get(dhcpv4.OptionClientIdentifier); len(id) > 1 {
		return ordinaryClient("id", id, req.ClientHWAddr, req.HostName()), ""
	}
	if len(req.ClientHWAddr) == 0 {
		return pool.Client{}, pool.ReasonMalformed
	}
	return ordinaryClient("mac", append([]byte{byte(req.HWType & 0xff)}, req.ClientHWAddr...), req.ClientHWAddr, req.HostName()), ""
}

// local4 reports whether a message comes from this network. Relay agents identify the client's network by their own
// address in it, or by the link selection suboption (RFC 3527).
func (i *instance) local4(req *dhcpv4.DHCPv4) bool {
	from, relayed := address(req.GatewayIPAddr)
	if relayed && !i.config.servesRelay(from) {
		return false
	}
	if info := req.RelayAgentInfo(); info != nil {
		if link, ok := netip.AddrFromSlice(info.Get(dhcpv4.LinkSelectionSubOption)); ok && link.Is4() {
			from, relayed = link, true
		}
	}
	return !relayed || i.config.cidr.Contains(from)
}

// request4 handles a REQUEST, with the client states of RFC 2131, section 4.3.2.
func (i *instance) request4(req *dhcpv4.DHCPv4, c pool.Client) pool.Answer {
	server, chosen := i.server4(req)
	requested, hasRequested := address(req.RequestedIPAddress())
	current, hasCurrent := address(req.ClientIPAddr)
	switch {
	case chosen && server != i.config.server:
		i.pool.Forget(c)
		return pool.Answer{Reason: pool.ReasonOtherServer}
	case hasCurrent: // RENEWING, REBINDING
		return i.pool.Renew(i.ctx, c, current)
	case hasRequested && chosen: // SELECTING
		return i.pool.Select(i.ctx, c, requested)
	case hasRequested: // INIT-REBOOT
		return i.pool.Verify(i.ctx, c, requested)
	default:
		return pool.Answer{Reason: pool.ReasonMalformed}
	}
}

// server4 returns the server identifier of a message, and whether it has one.
func (i *instance) server4(req *dhcpv4.DHCPv4) (netip.Addr, bool) {
	if !req.Options.Has(dhcpv4.OptionServerIdentifier) {
		return netip.Addr{}, false
	}
	server, _ := address(req.ServerIdentifier())
	return server, true
}

// release4 handles DECLINE and RELEASE, which get no reply.
func (i *instance) release4(req *dhcpv4.DHCPv4, c pool.Client) pool.Reason {
	server, chosen := i.server4(req)
	selected := !chosen || server == i.config.server
	if req.MessageType() == dhcpv4.MessageTypeDecline {
		if addr, ok := address(req.RequestedIPAddress()); ok {
			return i.pool.Decline(i.ctx, c, addr, selected)
		}
		return pool.ReasonMalformed
	}
	addr, ok := address(req.ClientIPAddr)
	switch {
	case !ok:
		return pool.ReasonMalformed
	case !selected:
		return pool.ReasonOtherServer
	default:
		return i.pool.Release(i.ctx, c, addr)
	}
}

// grant4 fills in an OFFER or ACK. The following plugins add their options.
func (i *instance) grant4(req, resp *dhcpv4.DHCPv4, kind dhcpv4.MessageType, a pool.Answer) *dhcpv4.DHCPv4 {
	i.countReply(replies4[kind])
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

// inform4 fills in the ACK to an INFORM, without address and lease (RFC 2131, section 4.3.5).
func (i *instance) inform4(resp *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	i.countReply("inform")
	i.identify4(resp, dhcpv4.MessageTypeAck)
	return resp
}

func (i *instance) identify4(resp *dhcpv4.DHCPv4, kind dhcpv4.MessageType) {
	resp.UpdateOption(dhcpv4.OptMessageType(kind))
	resp.UpdateOption(dhcpv4.OptServerIdentifier(i.config.server.AsSlice()))
}

// nak4 replaces resp by a NAK with only the fields that RFC 2131, table 3, and RFC 6842 allow. Relay agents must
// broadcast it, because the client may be on the wrong network.
func (i *instance) nak4(req, resp *dhcpv4.DHCPv4, why pool.Reason) *dhcpv4.DHCPv4 {
	i.countReply("nak")
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
	*resp = *nak // the caller may keep its pointer
	return resp
}

func zero4() []byte { return make([]byte, 4) }

var replies4 = map[dhcpv4.MessageType]string{dhcpv4.MessageTypeOffer: "offer", dhcpv4.MessageTypeAck: "ack"}
