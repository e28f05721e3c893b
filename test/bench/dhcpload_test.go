package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// dhcpClient is the number of a DHCP client, from 0, which is also its transaction ID.
type dhcpClient uint32

func (c dhcpClient) mac() net.HardwareAddr {
	return net.HardwareAddr{0x02, 0, 0, byte(c >> 16), byte(c >> 8), byte(c)}
}

// packet returns a packet of the client as forwarded by a relay agent.
func (c dhcpClient) packet(kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	p := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootRequest, HWType: 1, HopCount: 1, ClientHWAddr: c.mac(),
		GatewayIPAddr: net.ParseIP(relayAddress), Options: dhcpv4.Options{},
	}
	binary.BigEndian.PutUint32(p.TransactionID[:], uint32(c))
	p.UpdateOption(dhcpv4.OptMessageType(kind))
	p.UpdateOption(dhcpv4.OptClientIdentifier(append([]byte{1}, c.mac()...)))
	p.UpdateOption(dhcpv4.OptParameterRequestList(dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer))
	return p
}

// discovers returns the DHCPDISCOVERs of the first n clients.
func discovers(n int) [][]byte {
	packets := make([][]byte, n)
	for c := range packets {
		packets[c] = dhcpClient(c).packet(dhcpv4.MessageTypeDiscover).ToBytes()
	}
	return packets
}

const (
	// inProgress is the number of exchanges in progress: enough to keep the server busy, and few enough for a socket's buffer.
	inProgress = 32
	// resendAfter is the time after which a client sends again. A lost packet costs that much time of one of inProgress clients.
	resendAfter = 200 * time.Millisecond
	// Offsets in a DHCP packet.
	transactionOffset, yourAddressOffset, optionsOffset = 4, 16, 240
)

// A dhcpLoad leases addresses for clients, and renews them.
type dhcpLoad struct {
	relay  *net.UDPConn
	slice  time.Duration
	leased []dhcpClient // clients with an address, in the order in which they got it
	// addresses are the clients' addresses, by client.
	addresses map[dhcpClient]netip.Addr
}

// An exchange is in progress until the client has a DHCPACK.
type exchange struct {
	began, sent time.Time
	packet      []byte // the last one that was sent
}

var dhcpPort = &net.UDPAddr{IP: net.ParseIP(dhcpAddress), Port: dhcpv4.ServerPort}

// offer sends the DHCPDISCOVER of the first client, and returns an error unless there is an offer.
func (l *dhcpLoad) offer() error {
	if err := l.send(discovers(1)[0]); err != nil {
		return err
	}
	data, err := l.receive(resendAfter)
	if err == nil && data == nil {
		err = errors.New("no offer")
	}
	return err
}

// renewals returns the DHCPREQUESTs with which the clients renew.
func (l *dhcpLoad) renewals() [][]byte {
	packets := make([][]byte, len(l.leased))
	for i, c := range l.leased {
		p := c.packet(dhcpv4.MessageTypeRequest)
		p.ClientIPAddr = l.addresses[c].AsSlice()
		packets[i] = p.ToBytes()
	}
	return packets
}

// run starts exchanges with the packets, until the slice ends or, of DHCPDISCOVERs, all are done. It returns an error if a client
// gets an address that another client has, or a renewal has another address.
func (l *dhcpLoad) run(packets [][]byte) (sample, error) {
	renewing := l.addresses != nil
	if !renewing {
		l.addresses = map[dhcpClient]netip.Addr{}
	}
	used := map[netip.Addr]bool{}
	pending := map[dhcpClient]*exchange{}
	var times []time.Duration
	began, next := time.Now(), 0
	checked := began                                                                           // when lost packets were last sent again
	for time.Since(began) < l.slice || len(times) == 0 && time.Since(began) < changeDeadline { // a busy machine completes none in the slice
		for ; len(pending) < inProgress && (renewing || next < len(packets)); next++ {
			packet := packets[next%len(packets)]
			c := dhcpClient(binary.BigEndian.Uint32(packet[transactionOffset:]))
			if pending[c] != nil {
				break // fewer clients than exchanges in progress
			}
			pending[c] = &exchange{time.Now(), time.Now(), packet}
			if err := l.send(packet); err != nil {
				return sample{}, err
			}
		}
		if len(pending) == 0 {
			break
		}
		data, err := l.receive(resendAfter / 4)
		if err != nil {
			return sample{}, err
		}
		if data == nil || time.Since(checked) > resendAfter {
			checked = time.Now()
			if err := l.resend(pending); err != nil {
				return sample{}, err
			}
		}
		if data == nil {
			continue
		}
		c := dhcpClient(binary.BigEndian.Uint32(data[transactionOffset:]))
		x := pending[c]
		address := netip.AddrFrom4([4]byte(data[yourAddressOffset:]))
		switch kind := messageType(data); {
		case x == nil || kind == dhcpv4.MessageTypeOffer && renewing: // a duplicate
		case kind == dhcpv4.MessageTypeOffer:
			if x.packet, err = c.accept(data); err == nil {
				x.sent = time.Now()
				err = l.send(x.packet)
			}
			if err != nil {
				return sample{}, err
			}
		case kind != dhcpv4.MessageTypeAck:
			return sample{}, fmt.Errorf("client %s got %s", c.mac(), kind)
		case renewing && address != l.addresses[c]:
			return sample{}, fmt.Errorf("the reply to a renewal of %s has the address %s", l.addresses[c], address)
		case !renewing && used[address]:
			return sample{}, fmt.Errorf("%s was leased twice", address)
		default:
			used[address], l.addresses[c] = true, address
			if !renewing {
				l.leased = append(l.leased, c)
			}
			times = append(times, time.Since(x.began))
			delete(pending, c)
		}
	}
	if len(times) == 0 {
		return sample{}, errors.New("no exchange was completed")
	}
	return sample{operations: len(times), took: time.Since(began), latency: quantile(times, 0.5)}, nil
}

// accept returns a DHCPREQUEST that accepts an offer.
func (c dhcpClient) accept(offer []byte) ([]byte, error) {
	o, err := dhcpv4.FromBytes(offer)
	if err != nil {
		return nil, fmt.Errorf("parsing an offer: %w", err)
	}
	p := c.packet(dhcpv4.MessageTypeRequest)
	p.UpdateOption(dhcpv4.OptRequestedIPAddress(o.YourIPAddr))
	p.UpdateOption(dhcpv4.OptServerIdentifier(o.ServerIdentifier()))
	return p.ToBytes(), nil
}

// messageType returns the type of a packet. It parses no other option, to leave the CPU time to the server.
func messageType(data []byte) dhcpv4.MessageType {
	for o := optionsOffset; o+2 < len(data); o += 2 + int(data[o+1]) {
		if data[o] == byte(dhcpv4.OptionDHCPMessageType) {
			return dhcpv4.MessageType(data[o+2])
		}
	}
	return dhcpv4.MessageTypeNone
}

// resend sends the packets that were not answered in time again.
func (l *dhcpLoad) resend(pending map[dhcpClient]*exchange) error {
	for _, x := range pending {
		if time.Since(x.sent) < resendAfter {
			continue
		}
		x.sent = time.Now()
		if err := l.send(x.packet); err != nil {
			return err
		}
	}
	return nil
}

// send sends a packet to the server. It ignores ECONNREFUSED, because the server may not listen yet.
func (l *dhcpLoad) send(packet []byte) error {
	_, err := l.relay.WriteToUDP(packet, dhcpPort)
	if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("sending to the server: %w", err)
	}
	return nil
}

// receive returns the next packet, or nil if none arrives in the given time.
func (l *dhcpLoad) receive(wait time.Duration) ([]byte, error) {
	if err := l.relay.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return nil, fmt.Errorf("waiting for a reply: %w", err)
	}
	var buffer [1500]byte
	n, err := l.relay.Read(buffer[:])
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNREFUSED):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("waiting for a reply: %w", err)
	case n < optionsOffset:
		return nil, fmt.Errorf("a reply of %d bytes", n)
	}
	return buffer[:n], nil
}
