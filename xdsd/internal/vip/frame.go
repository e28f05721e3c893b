package vip

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
)

// mac is the hardware address of an Ethernet interface.
type mac [6]byte

// String is the usual notation.
func (m mac) String() string { return net.HardwareAddr(m[:]).String() }

// parseMAC reads the usual notation.
func parseMAC(text string) (mac, bool) {
	parsed, err := net.ParseMAC(text)
	if err != nil || len(parsed) != len(mac{}) {
		return mac{}, false
	}
	return mac(parsed), true
}

// before reports whether the first of two hardware addresses is the lower one.
func (m mac) before(other mac) bool { return bytes.Compare(m[:], other[:]) < 0 }

var (
	broadcast = mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodes  = mac{0x33, 0x33, 0, 0, 0, 1}
)

// heard is what a frame on the network tells.
type heard struct {
	// By is who sent it, as it says itself.
	By mac
	// Address is the one that the sender says is its own; invalid for a frame that says of none.
	Address netip.Addr
	// Leased is whether it is an announcement by who has the Lease.
	Leased bool
}

// Words of ARP (RFC 826).
const (
	arpSize    = 28
	arpRequest = 1
	arpReply   = 2
)

// arpHeader is Ethernet and IPv4.
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

// arpProbe asks who has an address without saying anything of one's own (RFC 5227, 2.1.1).
func arpProbe(by mac, address netip.Addr) []byte {
	return arp(arpRequest, by, netip.IPv4Unspecified(), mac{}, address)
}

// arpAnnouncements say that an address is one's own (RFC 5227, 2.3).
func arpAnnouncements(by mac, address netip.Addr, leased bool) [][]byte {
	frames := [][]byte{arp(arpRequest, by, address, mac{}, address)}
	if leased {
		frames = append(frames, arp(arpReply, by, address, broadcast, address))
	}
	return frames
}

// parseARP reads an ARP packet without its Ethernet header.
func parseARP(frame []byte) (heard, bool) {
	if len(frame) < arpSize || !bytes.Equal(frame[:7], arpHeader) {
		return heard{}, false
	}
	h := heard{By: mac(frame[8:14])}
	sender, target := netip.AddrFrom4([4]byte(frame[14:18])), netip.AddrFrom4([4]byte(frame[24:28]))
	if sender.IsUnspecified() {
		return h, true
	}
	h.Address = sender
	h.Leased = frame[7] == arpReply && sender == target
	return h, true
}

// Words of neighbour discovery (RFC 4861).
const (
	ipv6HeaderSize    = 40
	protocolICMPv6    = 58
	solicitation      = 135
	advertisement     = 136
	ndSize            = 24 // of both, before the options
	override          = 0x20
	optionSourceMAC   = 1
	optionTargetMAC   = 2
	optionExperiment  = 253 // RFC 4727: ignored by who does not know it (RFC 4861, 4.6)
	ndHopLimit        = 255
	optionUnit        = 8
	checksumInPayload = 2
)

// leasedOption says that the sender has the Lease.
var leasedOption = []byte{optionExperiment, 1, 'o', 'o', 'o', 'i', 0, 0}

// packetV6 puts an IPv6 header before an ICMPv6 message, and its checksum into it.
func packetV6(from, to netip.Addr, message []byte) []byte {
	source, destination := from.As16(), to.As16()
	packet := make([]byte, ipv6HeaderSize, ipv6HeaderSize+len(message))
	packet[0] = 6 << 4
	binary.BigEndian.PutUint16(packet[4:], uint16(len(message))) //nolint:gosec // some dozens
	packet[6], packet[7] = protocolICMPv6, ndHopLimit
	copy(packet[8:], source[:])
	copy(packet[24:], destination[:])
	packet = append(packet, message...)
	binary.BigEndian.PutUint16(packet[ipv6HeaderSize+checksumInPayload:], checksum(packet))
	return packet
}

// checksum is that of an ICMPv6 message whose own field is zero (RFC 4443, 2.3).
func checksum(packet []byte) uint16 {
	message := packet[ipv6HeaderSize:]
	sum := uint32(len(message)) + protocolICMPv6 //nolint:gosec // some dozens
	for _, part := range [][]byte{packet[8:ipv6HeaderSize], message} {
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// solicitedNode returns the group in which the owner of an address listens for solicitations.
func solicitedNode(address netip.Addr) (netip.Addr, mac) {
	a := address.As16()
	group := [16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]}
	return netip.AddrFrom16(group), mac{0x33, 0x33, 0xff, a[13], a[14], a[15]}
}

// ndProbe asks who has an address without saying anything of one's own (RFC 4862, 5.4.2).
func ndProbe(address netip.Addr) (packet []byte, to mac) {
	group, to := solicitedNode(address)
	a := address.As16()
	return packetV6(netip.IPv6Unspecified(), group, append([]byte{solicitation, 0, 0, 0, 0, 0, 0, 0}, a[:]...)), to
}

// ndAnnouncement says that an address is one's own (RFC 4861, 7.2.6).
func ndAnnouncement(by mac, address netip.Addr, leased bool) []byte {
	a := address.As16()
	message := append([]byte{advertisement, 0, 0, 0, override, 0, 0, 0}, a[:]...)
	message = append(append(message, optionTargetMAC, 1), by[:]...)
	if leased {
		message = append(message, leasedOption...)
	}
	return packetV6(address, netip.IPv6LinkLocalAllNodes(), message)
}

// parseND reads a solicitation or an advertisement without its Ethernet header, which came from
// a hardware address.
func parseND(packet []byte, from mac) (heard, bool) {
	if len(packet) < ipv6HeaderSize+ndSize || packet[0]>>4 != 6 || packet[6] != protocolICMPv6 || packet[7] != ndHopLimit {
		return heard{}, false
	}
	h := heard{By: from}
	message := packet[ipv6HeaderSize:]
	var about byte
	switch message[0] {
	case advertisement:
		h.Address, about = netip.AddrFrom16([16]byte(message[8:24])), optionTargetMAC
	case solicitation:
		if source := netip.AddrFrom16([16]byte(packet[8:24])); !source.IsUnspecified() {
			h.Address, about = source, optionSourceMAC
		}
	default:
		return heard{}, false
	}
	for options := message[ndSize:]; len(options) >= optionUnit; {
		size := int(options[1]) * optionUnit
		if size == 0 || size > len(options) {
			return heard{}, false
		}
		switch {
		case about != 0 && options[0] == about:
			h.By = mac(options[2:8])
		case message[0] == advertisement && bytes.Equal(options[:size], leasedOption):
			h.Leased = true
		}
		options = options[size:]
	}
	return h, true
}
