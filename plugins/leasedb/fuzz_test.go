package leasedb

import (
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/test/lab"
)

// TestHostilePackets passes a reproducible sequence of changed and truncated packets of all types to a server of VMs and to one of
// ordinary clients. A client with an address must keep it.
func TestHostilePackets(t *testing.T) {
	packets := lab.Length(50_000, 1_000_000)
	d, victim := newDirectory(), mac(0x77777777)
	d.boot("worker-0", mac(1))
	d.boot("victim", victim)
	vmServer, ordinaryServer := serve(t, d, bolt(t)+network), serve(t, nil, bolt(t)+network)
	addr := dora(t, vmServer, victim)
	var seeds [][]byte
	for _, kind := range []dhcpv4.MessageType{
		dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeDecline, dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeInform, 99,
	} {
		for _, from := range []net.HardwareAddr{mac(1), mac(2), nil} {
			seeds = append(seeds, message(kind, from, withServer("192.0.2.2"), withWanted(addr)).ToBytes(),
				message(kind, from, dhcpv4.WithClientIP(addr), link(ip("192.0.2.0"))).ToBytes())
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
		for _, i := range []*instance{vmServer, ordinaryServer} {
			resp, err := dhcpv4.NewReplyFromRequest(req)
			if err != nil {
				break
			}
			resp, stop := i.handle4(req, resp)
			if resp == nil && !stop {
				t.Fatalf("nil was passed to the next plugin for %x", packet)
			}
			if resp != nil {
				_ = resp.ToBytes()
			}
		}
	}
	if parsed < packets/2 {
		t.Errorf("only %d of %d packets could be parsed", parsed, packets)
	}
	want(t, vmServer, message(dhcpv4.MessageTypeRequest, victim, dhcpv4.WithClientIP(addr)), dhcpv4.MessageTypeAck)
}
