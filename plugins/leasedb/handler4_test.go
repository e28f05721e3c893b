package leasedb

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
)

func TestGrantOptions(t *testing.T) {
	d := newDirectory()
	d.boot("worker-0", mac(1))
	i := serve(t, d, bolt(t)+network+" lease=2h")
	id := dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte{1, 2, 0, 0, 0, 0, 1}))
	resp, stop := send(t, i, message(dhcpv4.MessageTypeDiscover, mac(1), id))
	if stop {
		t.Error("the plugin ends the chain")
	}
	for code, want := range map[dhcpv4.OptionCode][]byte{
		dhcpv4.OptionIPAddressLeaseTime: {0, 0, 0x1c, 0x20},
		dhcpv4.OptionRenewTimeValue:     {0, 0, 0x0e, 0x10},
		dhcpv4.OptionRebindingTimeValue: {0, 0, 0x18, 0x9c},
		dhcpv4.OptionServerIdentifier:   ip("192.0.2.2"),
		dhcpv4.OptionClientIdentifier:   {1, 2, 0, 0, 0, 0, 1},
	} {
		if got := resp.Options.Get(code); !bytes.Equal(got, want) {
			t.Errorf("%s is %x, want %x", code, got, want)
		}
	}
}

// TestMessagesOfAVM covers the messages of RFC 2131, table 4 and section 4.3, from a VM that has an address.
func TestMessagesOfAVM(t *testing.T) {
	none, ack, nak, offer := dhcpv4.MessageTypeNone, dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak, dhcpv4.MessageTypeOffer
	request, discover := dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeDiscover
	type with = []dhcpv4.Modifier
	const ours, theirs = "192.0.2.2", "192.0.2.3"
	elsewhere, outside := ip("198.51.100.7"), ip("192.0.2.200")
	tests := map[string]struct {
		kind     dhcpv4.MessageType
		with     func(addr net.IP) with
		want     dhcpv4.MessageType
		unsynced dhcpv4.MessageType // the same while the directory is not synced
	}{
		"DISCOVER":                 {discover, func(net.IP) with { return nil }, offer, offer},
		"SELECTING":                {request, func(a net.IP) with { return with{withServer(ours), withWanted(a)} }, ack, ack},
		"SELECTING another server": {request, func(a net.IP) with { return with{withServer(theirs), withWanted(a)} }, none, none},
		"SELECTING an address outside of the ranges": {
			request, func(net.IP) with { return with{withServer(ours), withWanted(outside)} }, nak, none,
		},
		"SELECTING without an address": {request, func(net.IP) with { return with{withServer(ours)} }, none, none},
		"INIT-REBOOT":                  {request, func(a net.IP) with { return with{withWanted(a)} }, ack, ack},
		"INIT-REBOOT elsewhere":        {request, func(net.IP) with { return with{withWanted(elsewhere)} }, nak, none},
		"INIT-REBOOT another address":  {request, func(net.IP) with { return with{withWanted(outside)} }, nak, none},
		"RENEWING":                     {request, func(a net.IP) with { return with{dhcpv4.WithClientIP(a)} }, ack, ack},
		"RENEWING another address":     {request, func(net.IP) with { return with{dhcpv4.WithClientIP(outside)} }, nak, none},
		"RENEWING with a server":       {request, func(a net.IP) with { return with{dhcpv4.WithClientIP(a), withServer(ours)} }, ack, ack},
		"REBINDING by broadcast":       {request, func(a net.IP) with { return with{dhcpv4.WithClientIP(a), dhcpv4.WithBroadcast(true)} }, ack, ack},
		"REQUEST without an address":   {request, func(net.IP) with { return nil }, none, none},
		"RELEASE":                      {dhcpv4.MessageTypeRelease, func(a net.IP) with { return with{dhcpv4.WithClientIP(a)} }, none, none},
		"DECLINE":                      {dhcpv4.MessageTypeDecline, func(a net.IP) with { return with{withServer(ours), withWanted(a)} }, none, none},
		"INFORM":                       {dhcpv4.MessageTypeInform, func(a net.IP) with { return with{dhcpv4.WithClientIP(a)} }, ack, ack},
		"INFORM without an address":    {dhcpv4.MessageTypeInform, func(net.IP) with { return nil }, none, none},
		"message of a server":          {offer, func(net.IP) with { return nil }, none, none},
		"relay, in this network":       {discover, func(net.IP) with { return with{dhcpv4.WithGatewayIP(ip("192.0.2.1"))} }, offer, offer},
		"relay, in another network":    {discover, func(net.IP) with { return with{dhcpv4.WithGatewayIP(elsewhere)} }, none, none},
		"relay, for another network":   {discover, func(net.IP) with { return with{dhcpv4.WithGatewayIP(ip("192.0.2.1")), link(elsewhere)} }, none, none},
		"relay, for this network":      {discover, func(net.IP) with { return with{dhcpv4.WithGatewayIP(elsewhere), link(ip("192.0.2.0"))} }, offer, offer},
	}
	for name, tt := range tests {
		for synced, expected := range map[bool]dhcpv4.MessageType{true: tt.want, false: tt.unsynced} {
			t.Run(name+map[bool]string{true: "", false: ", not synced"}[synced], func(t *testing.T) {
				d := newDirectory()
				d.boot("worker-0", mac(1))
				i := serve(t, d, bolt(t)+network)
				addr := dora(t, i, mac(1))
				d.setSynced(synced)
				resp := want(t, i, message(tt.kind, mac(1), tt.with(addr)...), expected)
				if expected == offer || expected == ack && tt.kind != dhcpv4.MessageTypeInform {
					if !resp.YourIPAddr.Equal(addr) {
						t.Errorf("got %v, want %v", resp.YourIPAddr, addr)
					}
				}
				// The same message from an unknown MAC address gets no reply.
				want(t, i, message(tt.kind, mac(2), tt.with(addr)...), none)
			})
		}
	}
}

// TestRelayAgentsThatAreServed restricts relay agents outside of the network.
func TestRelayAgentsThatAreServed(t *testing.T) {
	for name, tt := range map[string]struct {
		agent string
		link  string
		want  dhcpv4.MessageType
	}{
		"inside of the network":           {"192.0.2.1", "", dhcpv4.MessageTypeOffer},
		"listed, for this network":        {"203.0.113.9", "192.0.2.1", dhcpv4.MessageTypeOffer},
		"listed, for its own network":     {"203.0.113.9", "", dhcpv4.MessageTypeNone},
		"not listed, for this network":    {"198.51.100.9", "192.0.2.1", dhcpv4.MessageTypeNone},
		"no agent, with a link selection": {"0.0.0.0", "192.0.2.1", dhcpv4.MessageTypeOffer},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDirectory()
			d.boot("worker-0", mac(1))
			i := serve(t, d, bolt(t)+network+" relay=203.0.113.0/28 relay=203.0.113.240/28")
			mods := []dhcpv4.Modifier{dhcpv4.WithGatewayIP(ip(tt.agent))}
			if tt.link != "" {
				mods = append(mods, link(ip(tt.link)))
			}
			want(t, i, message(dhcpv4.MessageTypeDiscover, mac(1), mods...), tt.want)
		})
	}
}

func link(a net.IP) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(dhcpv4.LinkSelectionSubOption, a)))
}

func TestNAK(t *testing.T) {
	d := newDirectory()
	d.boot("worker-0", mac(1))
	i := serve(t, d, bolt(t)+network)
	dora(t, i, mac(1))
	id, info := []byte{255, 1, 2, 3}, dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(1), []byte("port 7")))
	for name, relay := range map[string]net.IP{"direct": ip("0.0.0.0"), "relayed": ip("192.0.2.1")} {
		t.Run(name, func(t *testing.T) {
			req := message(dhcpv4.MessageTypeRequest, mac(1), dhcpv4.WithClientIP(ip("192.0.2.77")), dhcpv4.WithGatewayIP(relay),
				dhcpv4.WithOption(dhcpv4.OptClientIdentifier(id)), dhcpv4.WithOption(info))
			resp, err := dhcpv4.NewReplyFromRequest(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.UpdateOption(dhcpv4.OptRouter(ip("192.0.2.1"))) // set by an earlier plugin
			resp.YourIPAddr, resp.ServerIPAddr, resp.BootFileName = ip("192.0.2.9"), ip("192.0.2.9"), "boot"
			nak, stop := i.handle4(req, resp)
			if !stop || nak.MessageType() != dhcpv4.MessageTypeNak || nak.OpCode != dhcpv4.OpcodeBootReply || nak.TransactionID != req.TransactionID {
				t.Fatalf("got %v, %v", nak, stop)
			}
			for _, a := range []net.IP{nak.YourIPAddr, nak.ServerIPAddr, nak.ClientIPAddr} {
				if !a.Equal(ip("0.0.0.0")) {
					t.Errorf("the NAK contains the address %v", a)
				}
			}
			if nak.BootFileName != "" || !nak.GatewayIPAddr.Equal(relay) || nak.ClientHWAddr.String() != mac(1).String() {
				t.Errorf("got %v", nak)
			}
			if nak.IsBroadcast() != (name == "relayed") {
				t.Errorf("broadcast: %v", nak.IsBroadcast())
			}
			if !bytes.Equal(nak.Options.Get(dhcpv4.OptionClientIdentifier), id) || !bytes.Equal(nak.Options.Get(dhcpv4.OptionRelayAgentInformation), info.Value.ToBytes()) {
				t.Errorf("options are not echoed: %v", nak.Options)
			}
			for code := range nak.Options {
				switch code {
				case 53, 54, 56, 61, 82:
				default:
					t.Errorf("the NAK contains option %d", code)
				}
			}
		})
	}
}

func TestReplyToInformHasNoLease(t *testing.T) {
	i := serve(t, nil, bolt(t)+network)
	resp := want(t, i, message(dhcpv4.MessageTypeInform, mac(1), dhcpv4.WithClientIP(ip("192.0.2.7"))), dhcpv4.MessageTypeAck)
	if !resp.YourIPAddr.Equal(ip("0.0.0.0")) {
		t.Errorf("yiaddr %v", resp.YourIPAddr)
	}
	for _, code := range []dhcpv4.OptionCode{dhcpv4.OptionIPAddressLeaseTime, dhcpv4.OptionRenewTimeValue, dhcpv4.OptionRebindingTimeValue} {
		if resp.Options.Has(code) {
			t.Errorf("has %s", code)
		}
	}
	if s := i.pool.Stats(); s.Bound+s.Held != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestIdentity(t *testing.T) {
	id := func(text string) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte(text))) }
	t.Run("a VM is identified by its MAC address, not by its client identifier", func(t *testing.T) {
		d := newDirectory()
		d.boot("worker-0", mac(1))
		d.boot("worker-1", mac(2))
		i := serve(t, d, bolt(t)+network)
		victim := dora(t, i, mac(1), id("victim"))
		if got := dora(t, i, mac(2), id("victim")); got.Equal(victim) {
			t.Errorf("two VMs have %v", got)
		}
		want(t, i, message(dhcpv4.MessageTypeRequest, mac(2), id("victim"), dhcpv4.WithClientIP(victim)), dhcpv4.MessageTypeNak)
	})
	t.Run("a VM keeps its address with a new MAC address", func(t *testing.T) {
		d := newDirectory()
		d.boot("worker-0", mac(1))
		i := serve(t, d, bolt(t)+network)
		before := dora(t, i, mac(1))
		d.remove(mac(1))
		d.boot("worker-0", mac(9))
		if got := dora(t, i, mac(9)); !got.Equal(before) {
			t.Errorf("had %v, got %v", before, got)
		}
	})
	t.Run("other clients are identified by their identifier, else by MAC address", func(t *testing.T) {
		i := serve(t, nil, bolt(t)+network)
		addr := dora(t, i, mac(1), id("\x00laptop"))
		if got := dora(t, i, mac(2), id("\x00laptop")); !got.Equal(addr) {
			t.Errorf("the same identifier: %v and %v", addr, got)
		}
		if got := dora(t, i, mac(1)); got.Equal(addr) {
			t.Errorf("without identifier: %v", got)
		}
		long := make([]byte, 255)
		dora(t, i, mac(3), dhcpv4.WithOption(dhcpv4.OptClientIdentifier(long)))
	})
	t.Run("another hardware type than Ethernet is not served", func(t *testing.T) {
		d := newDirectory()
		d.boot("worker-0", mac(1))
		i := serve(t, d, bolt(t)+network)
		m := message(dhcpv4.MessageTypeDiscover, mac(1))
		m.HWType = iana.HWTypeInfiniband
		want(t, i, m, dhcpv4.MessageTypeNone)
	})
	t.Run("no identity", func(t *testing.T) {
		i := serve(t, nil, bolt(t)+network)
		m := message(dhcpv4.MessageTypeDiscover, nil)
		want(t, i, m, dhcpv4.MessageTypeNone)
	})
}

func TestReservation(t *testing.T) {
	d := newDirectory()
	d.boot("worker-0", mac(1), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.222"))
	i := serve(t, d, bolt(t)+network)
	if got := dora(t, i, mac(1)); !got.Equal(ip("192.0.2.222")) {
		t.Errorf("got %v", got)
	}
}
