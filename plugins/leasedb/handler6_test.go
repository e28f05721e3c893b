package leasedb

import (
	"net"
	"net/netip"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

const network6 = " cidr=2001:db8::/64 range=2001:db8::100-2001:db8::1ff"

var serverID = &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{2, 0, 0, 0, 0, 0xff}}

// message6 makes a client's message with an identity association, which holds an address if it is not empty.
func message6(kind dhcpv6.MessageType, hw net.HardwareAddr, addr string) *dhcpv6.Message {
	ia := &dhcpv6.OptIANA{IaId: [4]byte{0, 0, 0, 1}}
	if addr != "" {
		ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(addr)})
	}
	m := &dhcpv6.Message{MessageType: kind, TransactionID: dhcpv6.TransactionID{1, 2, 3}}
	m.AddOption(dhcpv6.OptClientID(&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: hw}))
	m.AddOption(ia)
	return m
}

// ask6 hands a message to the handler as CoreDHCP does, behind server_id.
func ask6(tb testing.TB, i *instance, m dhcpv6.DHCPv6) (*dhcpv6.Message, bool) {
	tb.Helper()
	req, err := dhcpv6.FromBytes(m.ToBytes())
	if err != nil {
		tb.Fatal(err)
	}
	inner, err := req.GetInnerMessage()
	if err != nil {
		tb.Fatal(err)
	}
	reply := &dhcpv6.Message{MessageType: dhcpv6.MessageTypeReply, TransactionID: inner.TransactionID}
	if inner.MessageType == dhcpv6.MessageTypeSolicit && inner.GetOneOption(dhcpv6.OptionRapidCommit) == nil {
		reply.MessageType = dhcpv6.MessageTypeAdvertise
	}
	reply.AddOption(dhcpv6.OptServerID(serverID))
	resp, stop := i.handle6(req, reply)
	if resp == nil {
		if !stop {
			tb.Fatal("the handler passed nil on, which ends CoreDHCP")
		}
		return nil, true
	}
	out, ok := resp.(*dhcpv6.Message)
	if !ok {
		tb.Fatalf("got a %T", resp)
	}
	return out, stop
}

// granted6 returns the address in a reply; empty for none that is valid.
func granted6(m *dhcpv6.Message) string {
	if m == nil || m.Options.OneIANA() == nil {
		return ""
	}
	a := m.Options.OneIANA().Options.OneAddress()
	if a == nil || a.ValidLifetime == 0 {
		return ""
	}
	return a.IPv6Addr.String()
}

func status6(m *dhcpv6.Message) iana.StatusCode {
	if s := m.Options.Status(); s != nil {
		return s.StatusCode
	}
	if ia := m.Options.OneIANA(); ia != nil && ia.Options.Status() != nil {
		return ia.Options.Status().StatusCode
	}
	return 0xffff
}

func bind6(tb testing.TB, i *instance, hw net.HardwareAddr) string {
	tb.Helper()
	offer, _ := ask6(tb, i, message6(dhcpv6.MessageTypeSolicit, hw, ""))
	addr := granted6(offer)
	reply, _ := ask6(tb, i, message6(dhcpv6.MessageTypeRequest, hw, addr))
	if got := granted6(reply); got == "" || got != addr {
		tb.Fatalf("offered %q, given %q", addr, got)
	}
	return addr
}

func TestDHCPv6(t *testing.T) {
	d := newDirectory()
	d.boot("worker-0", mac(1))
	d.boot("worker-1", mac(2))
	i := serve(t, d, bolt(t)+network6)
	solicit := message6(dhcpv6.MessageTypeSolicit, mac(1), "")
	solicit.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit})
	offer, stop := ask6(t, i, solicit)
	if offer.MessageType != dhcpv6.MessageTypeAdvertise || offer.GetOneOption(dhcpv6.OptionRapidCommit) != nil || stop {
		t.Errorf("rapid commit is not off: %v", offer)
	}
	if s := i.pool.Stats(); s.Bound != 0 || s.Held != 1 {
		t.Errorf("after SOLICIT: %+v", s)
	}
	addr := bind6(t, i, mac(1))
	for _, kind := range []dhcpv6.MessageType{dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind} {
		reply, _ := ask6(t, i, message6(kind, mac(1), addr))
		if got := granted6(reply); got != addr {
			t.Errorf("%s: got %q", kind, got)
		}
		ia := reply.Options.OneIANA()
		if a := ia.Options.OneAddress(); a.ValidLifetime != lease || ia.T1 >= ia.T2 || ia.T2 >= a.PreferredLifetime {
			t.Errorf("%s: %v", kind, ia)
		}
	}
	refused, _ := ask6(t, i, message6(dhcpv6.MessageTypeRenew, mac(2), addr))
	if got := status6(refused); got != iana.StatusNoBinding {
		t.Errorf("RENEW of another's: %s", got)
	}
	refused, _ = ask6(t, i, message6(dhcpv6.MessageTypeRebind, mac(2), addr))
	if a := refused.Options.OneIANA().Options.OneAddress(); a == nil || a.ValidLifetime != 0 {
		t.Errorf("REBIND of another's: %v", refused)
	}
	instead, _ := ask6(t, i, message6(dhcpv6.MessageTypeRequest, mac(2), addr))
	if got := granted6(instead); got == "" || got == addr {
		t.Errorf("REQUEST of another's: %q", got)
	}
	released, _ := ask6(t, i, message6(dhcpv6.MessageTypeRelease, mac(1), addr))
	if got := status6(released); got != iana.StatusSuccess || i.pool.Stats().Bound != 2 {
		t.Errorf("RELEASE by a machine: %s, %+v", got, i.pool.Stats())
	}
}

func TestDHCPv6Silence(t *testing.T) {
	d := newDirectory()
	d.boot("worker-0", mac(1))
	i := serve(t, d, bolt(t)+network6)
	addr := bind6(t, i, mac(1))
	foreign, err := dhcpv6.EncapsulateRelay(message6(dhcpv6.MessageTypeSolicit, mac(1), ""), dhcpv6.MessageTypeRelayForward,
		net.ParseIP("2001:db8:1::1"), net.ParseIP("fe80::1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]dhcpv6.DHCPv6{
		"a stranger":       message6(dhcpv6.MessageTypeSolicit, mac(9), ""),
		"another network":  foreign,
		"RENEW of nothing": message6(dhcpv6.MessageTypeRenew, mac(1), ""),
	} {
		if resp, _ := ask6(t, i, m); resp != nil {
			t.Errorf("%s: got %v", name, resp)
		}
	}
	d.setSynced(false)
	if resp, _ := ask6(t, i, message6(dhcpv6.MessageTypeRenew, mac(1), addr)); granted6(resp) != addr {
		t.Errorf("a known machine while the directory is away: %v", resp)
	}
	without := message6(dhcpv6.MessageTypeSolicit, mac(1), "")
	if resp, stop := i.handle6(without, &dhcpv6.Message{MessageType: dhcpv6.MessageTypeAdvertise}); resp != nil || !stop {
		t.Errorf("without server_id: %v", resp)
	}
}

func TestDHCPv6Confirm(t *testing.T) {
	i := serve(t, nil, bolt(t)+network6)
	for addr, want := range map[string]iana.StatusCode{"2001:db8::105": iana.StatusSuccess, "2001:db8:1::1": iana.StatusNotOnLink} {
		reply, _ := ask6(t, i, message6(dhcpv6.MessageTypeConfirm, mac(1), addr))
		if got := status6(reply); got != want || granted6(reply) != "" {
			t.Errorf("%s: got %s, want %s", addr, got, want)
		}
	}
}

func TestDHCPv6OrdinaryClient(t *testing.T) {
	i := serve(t, nil, bolt(t)+network6)
	addr := bind6(t, i, mac(1))
	if other := bind6(t, i, mac(2)); other == addr {
		t.Errorf("two clients have %s", addr)
	}
	second := message6(dhcpv6.MessageTypeSolicit, mac(1), "")
	second.Options.OneIANA().IaId = [4]byte{0, 0, 0, 2}
	if offer, _ := ask6(t, i, second); granted6(offer) == addr {
		t.Error("two associations of one client have one address")
	}
	if reply, _ := ask6(t, i, message6(dhcpv6.MessageTypeDecline, mac(1), addr)); status6(reply) != iana.StatusSuccess {
		t.Errorf("DECLINE: %v", reply)
	}
	if again := bind6(t, i, mac(1)); again == addr {
		t.Errorf("it declined %s", addr)
	}
	if s := i.pool.Stats(); s.Quarantined != 1 {
		t.Errorf("got %+v", s)
	}
}

func TestDHCPv6Exhausted(t *testing.T) {
	i := serve(t, nil, bolt(t)+" cidr=2001:db8::/64 range=2001:db8::100")
	bind6(t, i, mac(1))
	for _, kind := range []dhcpv6.MessageType{dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRequest} {
		if reply, _ := ask6(t, i, message6(kind, mac(2), "")); status6(reply) != iana.StatusNoAddrsAvail {
			t.Errorf("%s: %v", kind, reply)
		}
	}
}

func TestOneMachineHasAnAddressOfEachFamily(t *testing.T) {
	d := newDirectory()
	d.boot("worker-0", mac(1), netip.MustParseAddr("192.0.2.50"), netip.MustParseAddr("2001:db8::50"))
	arguments := bolt(t) // one file for both
	four, six := serve(t, d, arguments+network), serve(t, d, arguments+network6)
	if got := dora(t, four, mac(1)); got.String() != "192.0.2.50" {
		t.Errorf("got %v", got)
	}
	if got := bind6(t, six, mac(1)); got != "2001:db8::50" {
		t.Errorf("got %v", got)
	}
}
