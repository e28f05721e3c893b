package leasedb

import (
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/test/lab"
)

// FuzzHandle4 passes arbitrary packets to a server of VMs and to one of ordinary clients. A VM that sends none of
// them must keep its address.
func FuzzHandle4(f *testing.F) {
	d, victim := newDirectory(), mac(0x77777777)
	d.boot("worker-0", mac(1))
	d.boot("victim", victim)
	vmServer, ordinaryServer := serve(f, d, bolt(f)+network), serve(f, nil, bolt(f)+network)
	addr := dora(f, vmServer, victim)
	dora(f, ordinaryServer, mac(1))
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
		for _, i := range []*instance{vmServer, ordinaryServer} {
			resp, err := dhcpv4.NewReplyFromRequest(req)
			if err != nil {
				return
			}
			resp, stop := i.handle4(req, resp)
			if resp == nil && !stop {
				t.Fatal("nil was passed to the next plugin")
			}
			if resp != nil {
				_ = resp.ToBytes()
			}
		}
		want(t, vmServer, message(dhcpv4.MessageTypeRequest, victim, dhcpv4.WithClientIP(addr)), dhcpv4.MessageTypeAck)
	})
}

// TestHostilePackets passes a reproducible sequence of changed and truncated packets of all types. A client with an
// address must keep it.
func TestHostilePackets(t *testing.T) {
	packets := lab.Length(50_000, 1_000_000)
	d, victim := newDirectory(), mac(0x77777777)
	d.boot("worker-0", mac(1))
	d.boot("victim", victim)
	vmServer := serve(t, d, bolt(t)+network)
	addr := dora(t, vmServer, victim)
	var seeds [][]byte
	for _, kind := range []dhcpv4.MessageType{
		dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeDecline, dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeInform,
	} {
		for _, from := range []net.HardwareAddr{mac(1), mac(2)} {
			seeds = append(seeds, message(kind, from, withServer("192.0.2.2"), withWanted(addr)).ToBytes(),
				message(kind, from, dhcpv4.WithClientIP(addr)).ToBytes())
		}
	}
	rng := rand.New(rand.NewPCG(1, 2)) // reproducible
	parsed := 0
	for n := range packets {
		packet := slices.Clone(seeds[n%len(seeds)])
		for range rng.IntN(4) {
			packet[rng.IntN(len(packet))] = byte(rng.Uint32())
		}
		if rng.IntN(8) == 0 {
			packet = packet[:rng.IntN(len(packet))]
		}
		req, err := dhcpv4.FromBytes(packet)
		if err != nil || req.ClientHWAddr.String() == victim.String() {
			continue
		}
		parsed++
		resp, err := dhcpv4.NewReplyFromRequest(req)
		if err != nil {
			continue
		}
		if resp, stop := vmServer.handle4(req, resp); resp == nil && !stop {
			t.Fatalf("nil was passed to the next plugin for %x", packet)
		}
	}
	if parsed < packets/2 {
		t.Errorf("only %d of %d packets could be parsed", parsed, packets)
	}
	want(t, vmServer, message(dhcpv4.MessageTypeRequest, victim, dhcpv4.WithClientIP(addr)), dhcpv4.MessageTypeAck)
}
