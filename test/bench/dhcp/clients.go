package dhcp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// MaxClients is the maximum number of VMs, and of clients that renew.
const MaxClients = 1 << 16

// client is the number of a DHCP client, from 0. Its MAC address derives from the number as in perfdhcp.
type client int

func (c client) mac() net.HardwareAddr {
	return net.HardwareAddr{0x02, 0, 0, byte(c >> 16), byte(c >> 8), byte(c)}
}

// packet returns a packet of the client as forwarded by a relay agent. Its transaction ID is the client's number.
func (c client) packet(kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	p := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootRequest, HWType: 1, HopCount: 1, ClientHWAddr: c.mac(),
		TransactionID: dhcpv4.TransactionID{byte(c >> 24), byte(c >> 16), byte(c >> 8), byte(c)},
		GatewayIPAddr: net.ParseIP(relayAddress), Options: dhcpv4.Options{},
	}
	p.UpdateOption(dhcpv4.OptMessageType(kind))
	p.UpdateOption(dhcpv4.OptClientIdentifier(append([]byte{1}, c.mac()...)))
	p.UpdateOption(dhcpv4.OptParameterRequestList(dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer))
	return p
}

func (c client) discover() *dhcpv4.DHCPv4 { return c.packet(dhcpv4.MessageTypeDiscover) }

// request returns a DHCPREQUEST that accepts an offer.
func (c client) request(offer *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	p := c.packet(dhcpv4.MessageTypeRequest)
	p.UpdateOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr))
	p.UpdateOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier()))
	return p
}

// renewal returns a DHCPREQUEST that renews the client's address.
func (c client) renewal(address net.IP) *dhcpv4.DHCPv4 {
	p := c.packet(dhcpv4.MessageTypeRequest)
	p.ClientIPAddr = address
	return p
}

var serverPort = &net.UDPAddr{IP: net.ParseIP(serverAddress), Port: dhcpv4.ServerPort}

// send sends a packet to the server. It ignores ECONNREFUSED, because the server may not listen yet.
func send(conn *net.UDPConn, p *dhcpv4.DHCPv4) error {
	_, err := conn.WriteToUDP(p.ToBytes(), serverPort)
	if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("sending to the server: %w", err)
	}
	return nil
}

// receive returns the next packet, or nil if none arrives until the given time.
func receive(conn *net.UDPConn, until time.Time) (*dhcpv4.DHCPv4, error) {
	if err := conn.SetReadDeadline(until); err != nil {
		return nil, fmt.Errorf("waiting for a reply: %w", err)
	}
	var buffer [1500]byte
	n, _, err := conn.ReadFromUDP(buffer[:])
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("waiting for a reply: %w", err)
	}
	p, err := dhcpv4.FromBytes(buffer[:n])
	if err != nil {
		return nil, fmt.Errorf("parsing a reply: %w", err)
	}
	return p, nil
}

// lease leases an address for each of the first n clients, and returns the addresses by client.
func lease(conn *net.UDPConn, n int) ([]net.IP, error) {
	const (
		maxConcurrent = 32
		timeout       = 500 * time.Millisecond // of one attempt
		deadline      = time.Minute            // of all
	)
	addresses := make([]net.IP, n)
	began := time.Now()
	for first := 0; first < n; {
		last := min(n, first+maxConcurrent)
		missing := 0
		for c := first; c < last; c++ {
			if addresses[c] != nil {
				continue
			}
			missing++
			if err := send(conn, client(c).discover()); err != nil {
				return nil, err
			}
		}
		if missing == 0 {
			first = last
			continue
		}
		if time.Since(began) > deadline {
			return nil, fmt.Errorf("client %d of %d has no address after %s", first, n, deadline)
		}
		if err := collect(conn, addresses, missing, time.Now().Add(timeout)); err != nil {
			return nil, err
		}
	}
	return addresses, nil
}

// collect accepts offers and sets addresses from ACKs, until it has set as many as are missing.
func collect(conn *net.UDPConn, addresses []net.IP, missing int, until time.Time) error {
	for missing > 0 {
		p, err := receive(conn, until)
		if p == nil || err != nil {
			return err
		}
		c := client(p.TransactionID[0])<<24 | client(p.TransactionID[1])<<16 | client(p.TransactionID[2])<<8 | client(p.TransactionID[3])
		if int(c) >= len(addresses) || addresses[c] != nil {
			continue
		}
		switch p.MessageType() {
		case dhcpv4.MessageTypeOffer:
			if err := send(conn, c.request(p)); err != nil {
				return err
			}
		case dhcpv4.MessageTypeAck:
			addresses[c] = p.YourIPAddr
			missing--
		default:
			return fmt.Errorf("client %d got %s", c, p.Summary())
		}
	}
	return nil
}
