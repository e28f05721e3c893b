package leasedb

import (
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/test/lab"
)

// FuzzHandle4 hands arbitrary packets to a server that has machines and one that has other clients. Whatever they
// do, one machine that sends none of them keeps its address.
func FuzzHandle4(f *testing.F) {
	d, victim := newDirectory(), mac(0x77777777)
	d.boot("worker-0", mac(1))
	d.boot("victim", victim)
	machines, ordinary := serve(f, d, bolt(f)+network), serve(f, nil, bolt(f)+network)
	addr := dora(f, machines, victim)
	dora(f, ordinary, mac(1))
	for _, kind := range []dhcpv4.MessageType{
		dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeDecline, dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeInform, 99,
	} {
		f.Add(message(kind, mac(1), withServer("192.0.2.2"), withWanted(addr)).ToBytes())
		f.Add(message(kind, mac(2), dhcpv4.WithClientIP(addr), link(ip("192.0.2.0"))).ToBytes())
		f.Add(message(kind, nil, dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionRequestedIPAddress, []byte{1, 2}))).ToBytes())
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		req, err := dhcpv4.FromBytes(packet)
		if err != nil || req.ClientHWAddr.String() == victim.String() {
			return
		}
		for _, i := range []*instance{machines, ordinary} {
			resp, err := dhcpv4.NewReplyFromRequest(req)
			if err != nil {
				return
			}
			resp, stop := i.handle4(req, resp)
			if resp == nil && !stop {
				t.Fatal("nil was passed on")
			}
			if resp != nil {
				_ = resp.ToBytes()
			}
		}
		want(t, machines, message(dhcpv4.MessageTypeRequest, victim, dhcpv4.WithClientIP(addr)), dhcpv4.MessageTypeAck)
	})
}

// TestHostilePackets does without chance what fuzzing does for as long as it is let:
// packets of all types with bytes changed, cut off and made up. The one client that has an
// address before has it afterwards.
func TestHostilePackets(t *testing.T) {
	packets := lab.Length(50_000, 1_000_000)
	d, victim := newDirectory(), mac(0x77777777)
	d.boot("worker-0", mac(1))
	d.boot("victim", victim)
	machines := serve(t, d, bolt(t)+network)
	addr := dora(t, machines, victim)
	var seeds [][]byte
	for _, kind := range []dhcpv4.MessageType{
		dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeDecline, dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeInform,
	} {
		for _, from := range []net.HardwareAddr{mac(1), mac(2)} {
			seeds = append(seeds, message(kind, from, withServer("192.0.2.2"), withWanted(addr)).ToBytes(),
				message(kind, from, dhcpv4.WithClientIP(addr)).ToBytes())
		}
	}
	chance := rand.New(rand.NewPCG(1, 2)) // the same each time
	read := 0
	for n := range packets {
		packet := slices.Clone(seeds[n%len(seeds)])
		for range chance.IntN(4) {
			packet[chance.IntN(len(packet))] = byte(chance.Uint32())
		}
		if chance.IntN(8) == 0 {
			packet = packet[:chance.IntN(len(packet))]
		}
		req, err := dhcpv4.FromBytes(packet)
		if err != nil || req.ClientHWAddr.String() == victim.String() {
			continue
		}
		read++
		resp, err := dhcpv4.NewReplyFromRequest(req)
		if err != nil {
			continue
		}
		if resp, stop := machines.handle4(req, resp); resp == nil && !stop {
			t.Fatalf("nil was passed on for %x", packet)
		}
	}
	if read < packets/2 {
		t.Errorf("only %d of %d packets could be read", read, packets)
	}
	want(t, machines, message(dhcpv4.MessageTypeRequest, victim, dhcpv4.WithClientIP(addr)), dhcpv4.MessageTypeAck)
}
