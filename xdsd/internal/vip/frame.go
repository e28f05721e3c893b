package vip

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
)

// mac is the hardware address of an Ethernet interface.
type mac [6]byte

// String returns the address as six hexadecimal numbers with colons.
func (m mac) String() string { return net.HardwareAddr(m[:]).String() }

// MarshalText implements encoding.TextMarshaler.
func (m mac) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *mac) UnmarshalText(text []byte) error {
	parsed, err := net.ParseMAC(string(text))
	if err != nil {
		return err
	}
	if len(parsed) != len(m) {
		return fmt.Errorf("%s is not a MAC address of six bytes", text)
	}
	*m = mac(parsed)
	return nil
}

// less reports whether m is lower than other.
func (m mac) less(other mac) bool { return bytes.Compare(m[:], other[:]) < 0 }

var (
	broadcast = mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodes  = mac{0x33, 0x33, 0, 0, 0, 1}
)

// A parsedFrame is the content of a received ARP or neighbour discovery frame.
type parsedFrame struct {
	// Sender is the sender's MAC address, according to the frame. It is not authenticated.
	Sender mac
	// Address is the address that the sender claims to have; invalid if the frame claims none.
	Address netip.Addr
	// Leased is set if the frame is an announcement by the holder of the Lease.
	Leased bool
}

// Constants of ARP (RFC 826).
const (
	arpSize    = 28
	arpRequest = 1
	arpReply   = 2
)

// arpHeader is the start of an ARP packet for Ethernet and IPv4, without the last byte, which is the operation.
var arpHeader = []byte{0, 1, 8, 0, 6, 4, 0}

func arp(operation byte, by mac, sender netip.Addr, to mac, target netip.Addr) []byte {
	from, at := sender.As4(), target.As4()
	frame := append(make([]byte, 0, arpSize), arpHeader...)
	frame = append(frame, operation)
	frame = append(frame, by[:]...)
	frame = append(frame, from[:]...)
	frame = append(frame, to[:]...)
	return append(frame, at[:]...)
}

// arpProbe returns an ARP probe: a request without a sender address, which does not change neighbour caches (RFC 5227,
// 2.1.1).
func arpProbe(by mac, address netip.Addr) []byte {
	return arp(arpRequest, by, netip.IPv4Unspecified(), mac{}, address)
}

// arpAnnouncements returns the ARP announcement of an address (RFC 5227, 2.3), and with leased also a gratuitous reply.
func arpAnnouncements(by mac, address netip.Addr, leased bool) [][]byte {
	frames := [][]byte{arp(arpRequest, by, address, mac{}, address)}
	if leased {
		frames = append(frames, arp(arpReply, by, address, broadcast, address))
	}
	return frames
}

// parseARP parses an ARP packet without its Ethernet header. It returns false for other packets.
func parseARP(frame []byte, _ mac) (parsedFrame, bool) {
	if len(frame) < arpSize || !bytes.Equal(frame[:7], arpHeader) {
		return parsedFrame{}, false
	}
	f := parsedFrame{Sender: mac(frame[8:14])}
	sender, target := netip.AddrFrom4([4]byte(frame[14:18])), netip.AddrFrom4([4]byte(frame[24:28]))
	if sender.IsUnspecified() {
		return f, true
	}
	f.Address = sender
	f.Leased = frame[7] == arpReply && sender == target
	return f, true
}

// Constants of neighbour discovery (RFC 4861).
const (
	ipv6HeaderSize   = 40
	protocolICMPv6   = 58
	solicitation     = 135
	advertisement    = 136
	ndSize           = 24 // of solicitation and advertisement, before the options
	override         = 0x20
	optionSourceMAC  = 1
	optionTargetMAC  = 2
	optionExperiment = 253 // RFC 4727; other hosts ignore unknown options (RFC 4861, 4.6)
	ndHopLimit       = 255
	optionUnit       = 8
)

// leasedOption is the option of announcements by the holder of the Lease.
var leasedOption = []byte{optionExperiment, 1, 'o', 'o', 'o', 'i', 0, 0}

// packetV6 returns an IPv6 packet with an ICMPv6 message. content comes after the checksum.
func packetV6(from, to netip.Addr, kind ipv6.ICMPType, content []byte) []byte {
	source, destination := from.As16(), to.As16()
	// Marshal fails for no RawBody.
	message, _ := (&icmp.Message{Type: kind, Body: &icmp.RawBody{Data: content}}).Marshal(icmp.IPv6PseudoHeader(source[:], destination[:]))
	header := [8]byte{0: 6 << 4, 5: byte(len(message)), 6: protocolICMPv6, 7: ndHopLimit} //nolint:gosec // less than 100 bytes
	return slices.Concat(header[:], source[:], destination[:], message)
}

// solicitedNode returns the solicited-node multicast address of an address, and its MAC address (RFC 4291, 2.7.1).
func solicitedNode(address netip.Addr) (netip.Addr, mac) {
	a := address.As16()
	group := [16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]}
	return netip.AddrFrom16(group), mac{0x33, 0x33, 0xff, a[13], a[14], a[15]}
}

// ndProbe returns a neighbour solicitation for an address from the unspecified address, as for duplicate address
// detection (RFC 4862, 5.4.2), and the MAC address to send it to.
func ndProbe(address netip.Addr) (packet []byte, to mac) {
	group, to := solicitedNode(address)
	a := address.As16()
	return packetV6(netip.IPv6Unspecified(), group, ipv6.ICMPTypeNeighborSolicitation, append([]byte{0, 0, 0, 0}, a[:]...)), to
}

// ndAnnouncement returns an unsolicited neighbour advertisement of an address (RFC 4861, 7.2.6).
func ndAnnouncement(by mac, address netip.Addr, leased bool) []byte {
	a := address.As16()
	message := append([]byte{override, 0, 0, 0}, a[:]...)
	message = append(append(message, optionTargetMAC, 1), by[:]...)
	if leased {
		message = append(message, leasedOption...)
	}
	return packetV6(address, netip.IPv6LinkLocalAllNodes(), ipv6.ICMPTypeNeighborAdvertisement, message)
}

// parseND parses a neighbour solicitation or advertisement without its Ethernet header, whose source is from. It
// returns false for other packets.
func parseND(packet []byte, from mac) (parsedFrame, bool) {
	if len(packet) < ipv6HeaderSize+ndSize || packet[0]>>4 != 6 || packet[6] != protocolICMPv6 || packet[7] != ndHopLimit {
		return parsedFrame{}, false
	}
	f := parsedFrame{Sender: from}
	message := packet[ipv6HeaderSize:]
	var macOption byte
	switch message[0] {
	case advertisement:
		f.Address, macOption = netip.AddrFrom16([16]byte(message[8:24])), optionTargetMAC
	case solicitation:
		if source := netip.AddrFrom16([16]byte(packet[8:24])); !source.IsUnspecified() {
			f.Address, macOption = source, optionSourceMAC
		}
	default:
		return parsedFrame{}, false
	}
	for options := message[ndSize:]; len(options) >= optionUnit; {
		size := int(options[1]) * optionUnit
		if size == 0 || size > len(options) {
			return parsedFrame{}, false
		}
		switch {
		case macOption != 0 && options[0] == macOption:
			f.Sender = mac(options[2:8])
		case message[0] == advertisement && bytes.Equal(options[:size], leasedOption):
			f.Leased = true
		}
		options = options[size:]
	}
	return f, true
}
