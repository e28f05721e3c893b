package dhcp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/test/lab"
)

// wire sends and receives what no client would.
type wire struct {
	m    *machine
	conn *net.UDPConn
}

// dial opens a machine's client port, or another.
func (m *machine) dial(t *testing.T, port int) *wire {
	t.Helper()
	w := &wire{m: m}
	err := m.Do(func() error {
		config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			control := c.Control(func(fd uintptr) { err = dhcpv4.BindToInterface(int(fd), "eth0") })
			return errors.Join(control, err)
		}}
		conn, err := config.ListenPacket(context.Background(), "udp4", (&net.UDPAddr{Port: port}).String())
		if err != nil {
			return err
		}
		var ok bool
		if w.conn, ok = conn.(*net.UDPConn); !ok {
			return fmt.Errorf("a %T", conn)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.conn.Close() })
	return w
}

var broadcast = net.IPv4bcast

// packet makes a packet of the machine.
func (w *wire) packet(t *testing.T, kind dhcpv4.MessageType, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	mods = append([]dhcpv4.Modifier{dhcpv4.WithMessageType(kind), dhcpv4.WithHwAddr(w.m.mac)}, mods...)
	p, err := dhcpv4.New(mods...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (w *wire) send(t *testing.T, data []byte, to net.IP) {
	t.Helper()
	if _, err := w.conn.WriteToUDP(data, &net.UDPAddr{IP: to, Port: dhcpv4.ServerPort}); err != nil {
		t.Fatal(err)
	}
}

// receive returns the next answer to a packet, and nil where none comes in time.
func (w *wire) receive(t *testing.T, to *dhcpv4.DHCPv4, patience time.Duration) (answer *dhcpv4.DHCPv4, from *net.UDPAddr, size int) {
	t.Helper()
	buffer := make([]byte, 1<<16)
	if err := w.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for {
		n, from, err := w.conn.ReadFromUDP(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil, 0
		}
		if err != nil {
			t.Fatal(err)
		}
		if p, err := dhcpv4.FromBytes(buffer[:n]); err == nil && p.TransactionID == to.TransactionID {
			return p, from, n
		}
	}
}

// ask sends a packet and returns its answer.
func (w *wire) ask(t *testing.T, p *dhcpv4.DHCPv4, to net.IP) *dhcpv4.DHCPv4 {
	t.Helper()
	w.send(t, p.ToBytes(), to)
	answer, from, size := w.receive(t, p, lab.Patience)
	if answer == nil {
		t.Fatalf("no answer to %s", p.Summary())
	}
	if from.Port != dhcpv4.ServerPort || !from.IP.Equal(answer.ServerIdentifier()) || size < 300 {
		t.Errorf("%d bytes come from %s, and option 54 is %s", size, from, answer.ServerIdentifier())
	}
	return answer
}

// silence sends what gets no answer, and waits until the server has decided so.
func (w *wire) silence(t *testing.T, srv *server, reason string, data []byte) {
	t.Helper()
	series := `coredhcp_dhcp4_dropped_total{reason="` + reason + `"}`
	before := srv.metric(t, series)
	w.send(t, data, broadcast)
	lab.Poll(t, "the packet to be dropped for "+reason, func() bool { return srv.metric(t, series) == before+1 })
	var id dhcpv4.DHCPv4
	if p, err := dhcpv4.FromBytes(data); err == nil {
		id = *p
	}
	// What was sent has arrived before the packet was counted.
	if answer, _, _ := w.receive(t, &id, 50*time.Millisecond); answer != nil {
		t.Errorf("an answer: %s", answer.Summary())
	}
}

// lease goes through DISCOVER and REQUEST.
func (w *wire) lease(t *testing.T) *dhcpv4.DHCPv4 {
	t.Helper()
	offer := w.ask(t, w.packet(t, dhcpv4.MessageTypeDiscover), broadcast)
	if offer.MessageType() != dhcpv4.MessageTypeOffer {
		t.Fatalf("no offer: %s", offer.Summary())
	}
	ack := w.ask(t, w.selecting(t, offer.YourIPAddr, offer.ServerIdentifier()), broadcast)
	if ack.MessageType() != dhcpv4.MessageTypeAck || !ack.YourIPAddr.Equal(offer.YourIPAddr) {
		t.Fatalf("no acknowledgement: %s", ack.Summary())
	}
	return ack
}

func (w *wire) selecting(t *testing.T, address, server net.IP) *dhcpv4.DHCPv4 {
	t.Helper()
	return w.packet(t, dhcpv4.MessageTypeRequest,
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(address)), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server)))
}

func (w *wire) rebooting(t *testing.T, address net.IP) *dhcpv4.DHCPv4 {
	t.Helper()
	return w.packet(t, dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(address)))
}

func TestWhoIsMetWithSilence(t *testing.T) {
	s, _, srv := newWorker(t, "")
	known, stranger := s.newMachine(t, mac1).dial(t, 68), s.newMachine(t, mac2).dial(t, 68)
	address := known.lease(t).YourIPAddr
	other := net.IPv4(192, 0, 2, 77)

	for _, tc := range []struct {
		name, reason string
		w            *wire
		packet       *dhcpv4.DHCPv4
	}{
		{"a stranger that asks", "silent", stranger, stranger.packet(t, dhcpv4.MessageTypeDiscover)},
		{"a stranger with an address of elsewhere", "silent", stranger, stranger.rebooting(t, net.IPv4(198, 51, 100, 9))},
		{"a stranger with another's address", "silent", stranger, stranger.rebooting(t, address)},
		{"a stranger with another's client identifier", "silent", stranger, stranger.packet(t, dhcpv4.MessageTypeDiscover,
			dhcpv4.WithOption(dhcpv4.OptClientIdentifier(append([]byte{1}, known.m.mac...))))},
		{"who has chosen another server", "silent", known, known.selecting(t, address, other)},
		{"a message of no client", "type", known, known.packet(t, dhcpv4.MessageTypeOffer)},
		{"an answer", "not_a_request", known, known.packet(t, dhcpv4.MessageTypeDiscover, func(p *dhcpv4.DHCPv4) { p.OpCode = dhcpv4.OpcodeBootReply })},
		{"other hardware", "hardware", known, known.packet(t, dhcpv4.MessageTypeDiscover, func(p *dhcpv4.DHCPv4) { p.ClientHWAddr = p.ClientHWAddr[:4] })},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.w.silence(t, srv, tc.reason, tc.packet.ToBytes()) })
	}
	t.Run("noise", func(t *testing.T) {
		whole := known.packet(t, dhcpv4.MessageTypeDiscover).ToBytes()
		for _, size := range []int{0, 1, 27, 236, 243} {
			known.silence(t, srv, "malformed", whole[:size])
		}
	})
	if n := srv.metric(t, "coredhcp_kubevirt_unknown_total"); n != 4 {
		t.Errorf("%v packets were of strangers", n)
	}
	if again := known.lease(t); !again.YourIPAddr.Equal(address) {
		t.Errorf("it had %s and has %s", address, again.YourIPAddr)
	}
}

func TestWhoIsRefused(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	srv := c.serve(t, s)
	c.run(t, srv, "a", mac1, "")
	c.run(t, srv, "b", mac2, "")
	a, b := s.newMachine(t, mac1).dial(t, 68), s.newMachine(t, mac2).dial(t, 68)
	address := a.lease(t).YourIPAddr
	b.lease(t)
	for name, p := range map[string]*dhcpv4.DHCPv4{
		"another's address after a reboot": b.rebooting(t, address),
		"an address of another network":    b.rebooting(t, net.IPv4(198, 51, 100, 9)),
		"another's address at renewal":     b.packet(t, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(address)),
	} {
		t.Run(name, func(t *testing.T) {
			nak := b.ask(t, p, broadcast)
			if nak.MessageType() != dhcpv4.MessageTypeNak || !nak.YourIPAddr.IsUnspecified() || nak.Options.Has(dhcpv4.OptionRouter) || nak.Options.Has(dhcpv4.OptionHostName) {
				t.Errorf("it is told %s", nak.Summary())
			}
		})
	}
}

func TestInformIsAnsweredWithOptionsAlone(t *testing.T) {
	s, _, _ := newWorker(t, "")
	m := s.newMachine(t, mac1)
	m.Run(t, "ip", "address", "add", "192.0.2.77/24", "dev", "eth0")
	w := m.dial(t, 68)
	for name, to := range map[string]net.IP{"to all": broadcast, "to the server": net.IPv4(192, 0, 2, 2)} {
		t.Run(name, func(t *testing.T) {
			ack := w.ask(t, w.packet(t, dhcpv4.MessageTypeInform, dhcpv4.WithClientIP(net.IPv4(192, 0, 2, 77))), to)
			if ack.MessageType() != dhcpv4.MessageTypeAck || !ack.YourIPAddr.IsUnspecified() || len(ack.DNS()) != 1 ||
				ack.Options.Has(dhcpv4.OptionIPAddressLeaseTime) || ack.Options.Has(dhcpv4.OptionRenewTimeValue) {
				t.Errorf("it is told %s", ack.Summary())
			}
		})
	}
}

// TestRelayAgents has one ask for a machine on a network that the server is not on.
func TestRelayAgents(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	plugins := c.plugins("192.0.2.2")
	plugins[1] = "leasedb store=bolt file=DIR/leases.db cidr=198.51.100.0/24 range=198.51.100.10-198.51.100.20 server=192.0.2.2 relayed=true"
	srv := c.serveAt(t, s, "192.0.2.2", plugins...)
	c.run(t, srv, "worker", mac1, "")
	srv.Run(t, "ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.3")

	agent := s.newMachine(t, mac3)
	agent.Run(t, "ip", "address", "add", "192.0.2.3/24", "dev", "eth0")
	agent.Run(t, "ip", "address", "add", "198.51.100.1/24", "dev", "lo")
	agent.Run(t, "sh", "-c", "echo 67 > /proc/sys/net/ipv4/ip_unprivileged_port_start")
	w := agent.dial(t, 67)
	behind := *w
	behind.m = &machine{agent.Machine, net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	relayed := []dhcpv4.Modifier{
		dhcpv4.WithGatewayIP(net.IPv4(198, 51, 100, 1)),
		dhcpv4.WithOption(dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(1), []byte("port 7")))),
	}
	server := net.IPv4(192, 0, 2, 2)
	offer := behind.ask(t, behind.packet(t, dhcpv4.MessageTypeDiscover, relayed...), server)
	if !offer.GatewayIPAddr.Equal(net.IPv4(198, 51, 100, 1)) || offer.RelayAgentInfo() == nil || string(offer.RelayAgentInfo().Get(dhcpv4.GenericOptionCode(1))) != "port 7" {
		t.Errorf("the agent is told %s", offer.Summary())
	}
	p := behind.selecting(t, offer.YourIPAddr, server)
	for _, mod := range relayed {
		mod(p)
	}
	if ack := behind.ask(t, p, server); ack.MessageType() != dhcpv4.MessageTypeAck || !(&net.IPNet{IP: net.IPv4(198, 51, 100, 0), Mask: net.CIDRMask(24, 32)}).Contains(ack.YourIPAddr) {
		t.Errorf("the agent is told %s", ack.Summary())
	}
	wrong := behind.rebooting(t, net.IPv4(203, 0, 113, 9))
	for _, mod := range relayed {
		mod(wrong)
	}
	if nak := behind.ask(t, wrong, server); nak.MessageType() != dhcpv4.MessageTypeNak || !nak.IsBroadcast() {
		t.Errorf("the agent is told %s", nak.Summary())
	}
}
