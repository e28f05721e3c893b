package dhcp4

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/bpf"

	"github.com/densityops/oooi/internal/probe"
)

// maxHeard limits the messages that are remembered. The oldest one is forgotten.
const maxHeard = 64

// A Heard is a message of a DHCP server that this server's host received at the port of clients: a broadcast, or a reply
// to its own request. Servers always broadcast DHCPNAK to clients without a relay agent (RFC 2131, section 4.3.2).
type Heard struct {
	// Server is the server identifier, else the source address.
	Server netip.Addr `json:"server"`
	// Type is the type of the message, such as NAK.
	Type string `json:"type"`
	// First and Last are the times of the first and the last one.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Replica is set if the server replied to coredhcp's request as a replica.
	Replica bool `json:"replica,omitempty"`
	// MACs are the MAC addresses of the clients, the last one first, at most 8. Without one, the message was a reply to
	// coredhcp's request.
	MACs []string `json:"macs,omitempty"`
}

// others records the messages of DHCP servers on this host's networks. It is safe for concurrent use.
type others struct {
	clients []*client

	mu    sync.Mutex
	heard []Heard
}

// A client is a socket at the port of clients.
type client struct {
	*socket

	mac net.HardwareAddr
}

// listen opens a socket at the port of clients on each device that has one at the port of servers.
func (o *others) listen(ctx context.Context, servers []net.UDPAddr) error {
	for _, address := range servers {
		if address.Zone == "" || address.Port != dhcpv4.ServerPort {
			continue
		}
		socket, err := listen(ctx, net.UDPAddr{Port: dhcpv4.ClientPort, Zone: address.Zone})
		if err != nil {
			return err
		}
		device, err := net.InterfaceByName(socket.device)
		if err == nil {
			err = socket.ignoreOwn(device)
		}
		if err != nil {
			return fmt.Errorf("listening on %s: %w", where("", socket.device), errors.Join(err, socket.conn.Close()))
		}
		o.clients = append(o.clients, &client{socket, device.HardwareAddr})
	}
	return nil
}

// networkHeader is the offset that the kernel's packet filter translates to the offset of the IP header
// (SKF_NET_OFF).
const networkHeader = 0xfff00000

// ignoreOwn drops packets from this host: the kernel delivers its own broadcasts as well.
func (s *socket) ignoreOwn(device *net.Interface) error {
	own := ownAddress(device, net.IPv4zero)
	if own == nil {
		return nil
	}
	const source, size, whole = 12, 4, 1 << 18
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: networkHeader + source, Size: size},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(own), SkipTrue: 1},
		bpf.RetConstant{Val: whole},
		bpf.RetConstant{Val: 0},
	})
	if err == nil {
		err = s.conn.SetBPF(filter)
	}
	if err != nil {
		return fmt.Errorf("ignoring packets of this host: %w", err)
	}
	return nil
}

// read remembers the messages that a client receives, until it is closed.
func (o *others) read(c *client) {
	buffer := make([]byte, maxPacket)
	for {
		n, _, from, err := c.conn.ReadFrom(buffer)
		if err != nil {
			return // closed, or its device was removed, which ends the server as well
		}
		message, err := dhcpv4.FromBytes(buffer[:n])
		if udp, ok := from.(*net.UDPAddr); ok && err == nil {
			o.observe(message, udp.AddrPort().Addr().Unmap(), c.mac, time.Now())
		}
	}
}

// observe remembers a message from an address. own is the MAC address of this host.
func (o *others) observe(message *dhcpv4.DHCPv4, from netip.Addr, own net.HardwareAddr, at time.Time) {
	if message.OpCode != dhcpv4.OpcodeBootReply || message.MessageType() == dhcpv4.MessageTypeNone {
		return
	}
	now := Heard{Server: from, Type: message.MessageType().String(), First: at, Last: at}
	if server, ok := netip.AddrFromSlice(message.ServerIdentifier().To4()); ok {
		now.Server = server
	}
	client := ""
	if !bytes.Equal(message.ClientHWAddr, own) {
		client = message.ClientHWAddr.String()
	}
	now.Replica = client == "" && message.ClassIdentifier() == probe.DHCPClass
	o.mu.Lock()
	defer o.mu.Unlock()
	same := func(h Heard) bool {
		return h.Server == now.Server && h.Type == now.Type && (client == "") == (len(h.MACs) == 0)
	}
	if at := slices.IndexFunc(o.heard, same); at >= 0 {
		now.First, now.MACs = o.heard[at].First, o.heard[at].MACs
		o.heard = slices.Delete(o.heard, at, at+1)
	}
	if client != "" {
		known := slices.DeleteFunc(slices.Clone(now.MACs), func(mac string) bool { return mac == client })
		now.MACs = append([]string{client}, known[:min(len(known), maxMACs-1)]...)
	}
	// The oldest one is the last.
	o.heard = slices.Insert(o.heard, 0, now)
	o.heard = o.heard[:min(len(o.heard), maxHeard)]
}

// Heard returns the messages received from other DHCP servers, the latest first.
func (s *Server) Heard() []Heard {
	s.others.mu.Lock()
	defer s.others.mu.Unlock()
	return append([]Heard{}, s.others.heard...)
}

// Ask broadcasts a request for configuration (RFC 2131, section 4.4.3) on each network, so that other servers reply. It
// leases nothing. After an error it continues with the other networks, and returns all errors.
func (s *Server) Ask() error {
	var all []error
	for _, c := range s.others.clients {
		if err := c.inform(s.options.Pool); err != nil {
			all = append(all, fmt.Errorf("asking for other DHCP servers on %s: %w", c.device, err))
		}
	}
	return errors.Join(all...)
}

func (c *client) inform(pool string) error {
	device, err := net.InterfaceByName(c.device)
	if err != nil {
		return err
	}
	own := ownAddress(device, net.IPv4zero)
	if own == nil {
		return errors.New("the device lacks an IPv4 address")
	}
	request, err := dhcpv4.NewInform(c.mac, own, dhcpv4.WithOption(dhcpv4.OptClassIdentifier(probe.DHCPClass)), dhcpv4.WithGeneric(poolOption, []byte(pool)))
	if err != nil {
		return err
	}
	return c.send(request.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ServerPort}, own, device.Index)
}
