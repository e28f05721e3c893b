package dhcp_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/test/lab"
)

// rawClient sends and receives arbitrary DHCP packets on a machine.
type rawClient struct {
	m    *machine
	conn *net.UDPConn
}

// dial opens a UDP port of the machine: 68 for a client, 67 for a relay agent.
func (m *machine) dial(t *testing.T, port int) *rawClient {
	t.Helper()
	return &rawClient{m, m.ListenDHCP(t, port)}
}

var broadcast = net.IPv4bcast

// packet returns a packet with the machine's MAC address.
func (w *rawClient) packet(t *testing.T, kind dhcpv4.MessageType, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	mods = append([]dhcpv4.Modifier{dhcpv4.WithMessageType(kind), dhcpv4.WithHwAddr(w.m.mac)}, mods...)
	p, err := dhcpv4.New(mods...)
	lab.Must(t, err)
	return p
}

func (w *rawClient) send(t *testing.T, data []byte, to net.IP) {
	t.Helper()
	if _, err := w.conn.WriteToUDP(data, &net.UDPAddr{IP: to, Port: dhcpv4.ServerPort}); err != nil {
		t.Fatal(err)
	}
}

// receive returns the next reply to a packet, its sender and its size, or nil if none arrives within timeout.
func (w *rawClient) receive(t *testing.T, to *dhcpv4.DHCPv4, timeout time.Duration) (reply *dhcpv4.DHCPv4, from *net.UDPAddr, size int) {
	t.Helper()
	buffer := make([]byte, 1<<16)
	lab.Must(t, w.conn.SetReadDeadline(time.Now().Add(timeout)))
	for {
		n, from, err := w.conn.ReadFromUDP(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil, 0
		}
		lab.Must(t, err)
		if p, err := dhcpv4.FromBytes(buffer[:n]); err == nil && p.TransactionID == to.TransactionID {
			return p, from, n
		}
	}
}

// exchange sends a packet and returns the reply.
func (w *rawClient) exchange(t *testing.T, p *dhcpv4.DHCPv4, to net.IP) *dhcpv4.DHCPv4 {
	t.Helper()
	w.send(t, p.ToBytes(), to)
	reply, from, size := w.receive(t, p, lab.WaitTimeout)
	if reply == nil {
		t.Fatalf("no answer to %s", p.Summary())
	}
	if from.Port != dhcpv4.ServerPort || !from.IP.Equal(reply.ServerIdentifier()) || size < 300 {
		t.Errorf("reply of %d bytes from %s, option 54 is %s", size, from, reply.ServerIdentifier())
	}
	return reply
}

// expectNoReply sends a packet, waits until the server has counted it as dropped for reason, and checks that
// there is no reply.
func (w *rawClient) expectNoReply(t *testing.T, srv *server, reason string, data []byte) {
	t.Helper()
	series := `coredhcp_dhcp4_dropped_total{reason="` + reason + `"}`
	before := srv.Metric(t, series)
	w.send(t, data, broadcast)
	lab.Poll(t, "the packet to be dropped for "+reason, func() bool { return srv.Metric(t, series) == before+1 })
	var id dhcpv4.DHCPv4
	if p, err := dhcpv4.FromBytes(data); err == nil {
		id = *p
	}
	// The server counts a packet after it has sent a reply.
	if reply, _, _ := w.receive(t, &id, 50*time.Millisecond); reply != nil {
		t.Errorf("unexpected reply: %s", reply.Summary())
	}
}

// lease sends DISCOVER and REQUEST, and returns the ACK.
func (w *rawClient) lease(t *testing.T) *dhcpv4.DHCPv4 {
	t.Helper()
	offer := w.exchange(t, w.packet(t, dhcpv4.MessageTypeDiscover), broadcast)
	if offer.MessageType() != dhcpv4.MessageTypeOffer {
		t.Fatalf("no offer: %s", offer.Summary())
	}
	ack := w.exchange(t, w.selecting(t, offer.YourIPAddr, offer.ServerIdentifier()), broadcast)
	if ack.MessageType() != dhcpv4.MessageTypeAck || !ack.YourIPAddr.Equal(offer.YourIPAddr) {
		t.Fatalf("no acknowledgement: %s", ack.Summary())
	}
	return ack
}

func (w *rawClient) selecting(t *testing.T, address, server net.IP) *dhcpv4.DHCPv4 {
	t.Helper()
	return w.packet(t, dhcpv4.MessageTypeRequest,
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(address)), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server)))
}

func (w *rawClient) rebooting(t *testing.T, address net.IP) *dhcpv4.DHCPv4 {
	t.Helper()
	return w.packet(t, dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(address)))
}

func TestDroppedPackets(t *testing.T) {
	s, _, srv := newWorker(t)
	known, stranger := s.newMachine(t, mac1).dial(t, 68), s.newMachine(t, mac2).dial(t, 68)
	address := known.lease(t).YourIPAddr
	other := net.IPv4(192, 0, 2, 77)

	for _, tc := range []struct {
		name, reason string
		w            *rawClient
		packet       *dhcpv4.DHCPv4
	}{
		{"DISCOVER of an unknown client", "silent", stranger, stranger.packet(t, dhcpv4.MessageTypeDiscover)},
		{"REQUEST of an unknown client for an address of another network", "silent", stranger, stranger.rebooting(t, net.IPv4(198, 51, 100, 9))},
		{"REQUEST of an unknown client for another client's address", "silent", stranger, stranger.rebooting(t, address)},
		{"DISCOVER of an unknown client with another client's identifier", "silent", stranger, stranger.packet(t, dhcpv4.MessageTypeDiscover,
			dhcpv4.WithOption(dhcpv4.OptClientIdentifier(append([]byte{1}, known.m.mac...))))},
		{"REQUEST to another server", "silent", known, known.selecting(t, address, other)},
		{"message type of a server", "type", known, known.packet(t, dhcpv4.MessageTypeOffer)},
		{"BOOTREPLY", "not_a_request", known, known.packet(t, dhcpv4.MessageTypeDiscover, func(p *dhcpv4.DHCPv4) { p.OpCode = dhcpv4.OpcodeBootReply })},
		{"hardware address of four bytes", "hardware", known, known.packet(t, dhcpv4.MessageTypeDiscover, func(p *dhcpv4.DHCPv4) { p.ClientHWAddr = p.ClientHWAddr[:4] })},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.w.expectNoReply(t, srv, tc.reason, tc.packet.ToBytes()) })
	}
	t.Run("truncated packets", func(t *testing.T) {
		whole := known.packet(t, dhcpv4.MessageTypeDiscover).ToBytes()
		for _, size := range []int{0, 1, 27, 236, 243} {
			known.expectNoReply(t, srv, "malformed", whole[:size])
		}
	})
	if n := srv.Metric(t, "coredhcp_kubevirt_unknown_total"); n != 4 {
		t.Errorf("%v packets of unknown clients, want 4", n)
	}
	if next := known.lease(t); !next.YourIPAddr.Equal(address) {
		t.Errorf("leases %s, want %s", next.YourIPAddr, address)
	}
}

// TestDetectsOtherServers runs another server on the network, and one that only refuses addresses.
func TestDetectsOtherServers(t *testing.T) {
	t.Parallel() // it mostly waits
	s, _, srv := newWorker(t)
	s.newMachine(t, mac1).dial(t, 68).lease(t) // the server does not receive its own broadcasts
	lab.OtherDHCP(t, s.bridge, "192.0.2")
	nak := s.newMachine(t, mac2).dial(t, 67)
	refuse := func(client string, server net.IP) {
		t.Helper()
		mac, err := net.ParseMAC(client)
		lab.Must(t, err)
		p := nak.packet(t, dhcpv4.MessageTypeNak, dhcpv4.WithHwAddr(mac), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server)))
		p.OpCode = dhcpv4.OpcodeBootReply
		for _, data := range [][]byte{p.ToBytes()[:100], p.ToBytes()} {
			if _, err := nak.conn.WriteToUDP(data, &net.UDPAddr{IP: broadcast, Port: dhcpv4.ClientPort}); err != nil {
				t.Fatal(err)
			}
		}
	}
	heard := func() string {
		var list []string
		for _, h := range srv.state(t).Heard {
			list = append(list, fmt.Sprint(h.Server, " ", h.Type, " ", h.MACs))
		}
		slices.Sort(list)
		return strings.Join(list, ", ")
	}
	const asked = "192.0.2.239 ACK []"
	lab.Poll(t, "the other server to reply", func() bool { return heard() == asked })
	refuse(mac1, net.IPv4(192, 0, 2, 77))
	refuse(mac2, net.IPv4(192, 0, 2, 77))
	refuse(mac1, net.IPv4(192, 0, 2, 77))
	lab.Poll(t, "the refusals to be heard", func() bool {
		return heard() == "192.0.2.239 ACK [], 192.0.2.77 NAK ["+mac1+" "+mac2+"]"
	})
	for i := range 200 { // a forger
		refuse(mac1, net.IPv4(198, 51, 100, byte(i)))
	}
	lab.Poll(t, "the last refusals to be kept", func() bool {
		list := srv.state(t).Heard
		return len(list) == 64 && slices.ContainsFunc(list, func(h heardMessage) bool { return h.Server == "198.51.100.199" })
	})
}

// TestProbesOfXDSD sends requests as xdsd does, from the address of an oooi pod and from another address. They do not count as clients' requests.
func TestProbesOfXDSD(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	srv := c.serveAt(t, s, "192.0.2.2", c.plugins("192.0.2.2", "protected=192.0.2.4")...)
	dial := func(mac, address string) (*rawClient, *dhcpv4.DHCPv4) {
		m := s.newMachine(t, mac)
		m.Run(t, "ip", "address", "add", address+"/24", "dev", "eth0")
		w := m.dial(t, 1068)
		return w, w.packet(t, dhcpv4.MessageTypeInform, dhcpv4.WithClientIP(net.ParseIP(address)), dhcpv4.WithOption(dhcpv4.OptClassIdentifier(probe.DHCPClass)))
	}
	other, request := dial(mac2, "192.0.2.77")
	other.send(t, request.ToBytes(), broadcast)
	fromPod, probes := dial(mac1, "192.0.2.4")
	ack := fromPod.exchange(t, probes, broadcast)
	if ack.MessageType() != dhcpv4.MessageTypeAck || !ack.YourIPAddr.IsUnspecified() || ack.Options.Has(dhcpv4.OptionIPAddressLeaseTime) || ack.Options.Has(dhcpv4.OptionRouter) {
		t.Errorf("reply %s", ack.Summary())
	}
	if reply, _, _ := other.receive(t, request, time.Millisecond); reply != nil { // would have been sent before
		t.Errorf("reply to another host: %s", reply.Summary())
	}
	for series, want := range map[string]float64{"coredhcp_dhcp4_probes_total": 1, "coredhcp_kubevirt_unknown_total": 0} {
		if n := srv.Metric(t, series); n != want {
			t.Errorf("%s is %v, want %v", series, n, want)
		}
	}
}
