package leasedb

import (
	"encoding/hex"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// handle6 answers one DHCPv6 message (RFC 8415): it fills in the identity associations for
// non-temporary addresses. Messages without any pass.
func (i *instance) handle6(req, resp dhcpv6.DHCPv6) (dhcpv6.DHCPv6, bool) {
	reply, ok := resp.(*dhcpv6.Message)
	if !ok || reply == nil || !i.enter() {
		return nil, true
	}
	defer i.messages.Done()
	msg, err := req.GetInnerMessage()
	if err != nil {
		i.silent(pool.ReasonMalformed)
		return nil, true
	}
	if len(msg.Options.IANA()) == 0 || msg.MessageType == dhcpv6.MessageTypeInformationRequest {
		return resp, false
	}
	e := exchange6{instance: i, msg: msg, reply: reply}
	why := i.refuse6(req, msg, reply)
	if why == "" {
		why = e.answer(req)
	}
	if why != "" {
		i.silent(why)
		return nil, true
	}
	i.replied(replies6[reply.MessageType])
	return reply, false
}

var replies6 = map[dhcpv6.MessageType]string{dhcpv6.MessageTypeAdvertise: "advertise", dhcpv6.MessageTypeReply: "reply"}

// refuse6 returns why a message is not looked at any further.
func (i *instance) refuse6(req dhcpv6.DHCPv6, msg, reply *dhcpv6.Message) pool.Reason {
	switch {
	case msg.Options.ClientID() == nil:
		return pool.ReasonMalformed
	case reply.Options.ServerID() == nil:
		i.noServerID.Do(func() {
			i.log.Error("no reply has a server identifier: put the plugin server_id in front of leasedb")
		})
		return pool.ReasonNoServerID
	case !i.local6(req):
		return pool.ReasonWrongNet
	default:
		return ""
	}
}

// local6 reports whether a message comes from our network, as far as a relay tells.
func (i *instance) local6(req dhcpv6.DHCPv6) bool {
	if !req.IsRelay() {
		return true
	}
	inner, err := dhcpv6.DecapsulateRelayIndex(req, -1)
	relay, ok := inner.(*dhcpv6.RelayMessage)
	if err != nil || !ok {
		return false
	}
	at, known := address(relay.LinkAddr)
	return !known || at.IsLinkLocalUnicast() || i.config.cidr.Contains(at)
}

// exchange6 is a message and its reply.
type exchange6 struct {
	*instance

	msg, reply *dhcpv6.Message
}

// client returns whose an identity association is. A machine has one address on the network, so only
// its first association gets one.
func (e exchange6) client(req dhcpv6.DHCPv6, ia *dhcpv6.OptIANA) (pool.Client, pool.Reason) {
	mac, err := dhcpv6.ExtractMAC(req)
	if e.directory != nil {
		if err != nil {
			return pool.Client{}, pool.ReasonUnknown
		}
		c, ok := e.machine(mac)
		if !ok {
			return pool.Client{}, pool.ReasonUnknown
		}
		return c, ""
	}
	c := ordinary("duid", e.msg.Options.ClientID().ToBytes(), mac, "")
	c.Holder += "-" + hex.EncodeToString(ia.IaId[:])
	return c, ""
}

// answer fills in the reply, or returns why there is none.
func (e exchange6) answer(req dhcpv6.DHCPv6) pool.Reason {
	if e.msg.MessageType == dhcpv6.MessageTypeSolicit { // no rapid commit: another server may be chosen
		e.reply.MessageType = dhcpv6.MessageTypeAdvertise
		e.reply.Options.Del(dhcpv6.OptionRapidCommit)
	}
	done := false
	for n, ia := range e.msg.Options.IANA() {
		c, why := e.client(req, ia)
		if why != "" {
			return why
		}
		addr := hint(ia)
		switch {
		case e.msg.MessageType == dhcpv6.MessageTypeConfirm:
			if !addr.IsValid() {
				return pool.ReasonMalformed
			}
			if !e.config.cidr.Contains(addr) {
				e.status(iana.StatusNotOnLink)
				return ""
			}
			done = true
		case e.msg.MessageType == dhcpv6.MessageTypeRelease, e.msg.MessageType == dhcpv6.MessageTypeDecline:
			e.giveUp(c, addr)
			done = true
		case n > 0 && c.Machine:
			e.refused(ia, iana.StatusNoAddrsAvail)
		default:
			if why := e.associate(c, ia, addr); why != "" {
				return why
			}
		}
	}
	if done {
		e.status(iana.StatusSuccess)
	}
	return ""
}

// hint is the address that an association holds or asks for; not valid for none.
func hint(ia *dhcpv6.OptIANA) netip.Addr {
	if a := ia.Options.OneAddress(); a != nil {
		if addr, ok := address(a.IPv6Addr); ok {
			return addr
		}
	}
	return netip.Addr{}
}

// associate answers one association of a SOLICIT, REQUEST, RENEW or REBIND.
func (e exchange6) associate(c pool.Client, ia *dhcpv6.OptIANA, addr netip.Addr) pool.Reason {
	var a pool.Answer
	refusal := iana.StatusNoAddrsAvail
	switch e.msg.MessageType {
	case dhcpv6.MessageTypeSolicit:
		a = e.pool.Discover(c, addr)
	case dhcpv6.MessageTypeRequest:
		if addr.IsValid() {
			a = e.pool.Select(e.ctx, c, addr)
		}
		if !addr.IsValid() || a.Verdict == pool.Refuse { // there is another one for it
			if a = e.pool.Discover(c, netip.Addr{}); a.Verdict == pool.Grant {
				a = e.pool.Select(e.ctx, c, a.Addr)
			}
		}
	case dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
		if !addr.IsValid() {
			return pool.ReasonMalformed
		}
		a, refusal = e.pool.Verify(e.ctx, c, addr), iana.StatusNoBinding
	default:
		return pool.ReasonDisregarded
	}
	switch {
	case a.Verdict == pool.Grant:
		e.granted(ia, a)
	case a.Verdict == pool.Silent && a.Reason != pool.ReasonExhausted:
		return a.Reason
	case e.msg.MessageType == dhcpv6.MessageTypeRebind: // RFC 8415, section 18.3.5
		e.associated(ia, &dhcpv6.OptIAAddress{IPv6Addr: addr.AsSlice()})
	default:
		e.refused(ia, refusal)
	}
	return ""
}

func (e exchange6) giveUp(c pool.Client, addr netip.Addr) {
	why := pool.ReasonMalformed
	switch {
	case !addr.IsValid():
	case e.msg.MessageType == dhcpv6.MessageTypeDecline:
		why = e.pool.Decline(e.ctx, c, addr, true)
	default:
		why = e.pool.Release(e.ctx, c, addr)
	}
	if why != pool.ReasonDone {
		e.log.Debug("an address was not given up", "address", addr, "holder", c.Holder, "reason", string(why))
	}
}

func (e exchange6) granted(ia *dhcpv6.OptIANA, a pool.Answer) {
	e.reply.AddOption(&dhcpv6.OptIANA{
		IaId: ia.IaId, T1: (a.Lease / 2).Truncate(time.Second), T2: (a.Lease * 4 / 5).Truncate(time.Second),
		Options: dhcpv6.IdentityOptions{Options: dhcpv6.Options{
			&dhcpv6.OptIAAddress{IPv6Addr: a.Addr.AsSlice(), PreferredLifetime: a.Lease, ValidLifetime: a.Lease},
		}},
	})
}

func (e exchange6) refused(ia *dhcpv6.OptIANA, code iana.StatusCode) {
	e.associated(ia, &dhcpv6.OptStatusCode{StatusCode: code})
}

func (e exchange6) associated(ia *dhcpv6.OptIANA, o dhcpv6.Option) {
	e.reply.AddOption(&dhcpv6.OptIANA{IaId: ia.IaId, Options: dhcpv6.IdentityOptions{Options: dhcpv6.Options{o}}})
}

func (e exchange6) status(code iana.StatusCode) {
	e.reply.UpdateOption(&dhcpv6.OptStatusCode{StatusCode: code})
}
