package dhcp4

import (
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

const (
	// minMessageSize is the size that every client accepts, and the limit of clients without option 57. It includes
	// the IP and UDP headers. RFC 2131, section 2; RFC 2132, section 9.10.
	minMessageSize = 576
	headers        = 20 + 8
	// fixedSize is the size of a message without options: header, magic cookie and end option.
	fixedSize = 236 + 4 + 1
	// overloadSize is the size of option 52, which marks the fields for boot file and server name as containing
	// options.
	overloadSize = 3
	// fileSize and snameSize are the sizes of these fields without the end option and a terminating zero.
	fileSize, snameSize = 128 - 2, 64 - 2
)

// essentialOptions are message type, server identifier, lease time, client identifier, netmask, routers, DNS
// servers and renewal times, without which a reply or its client does not work. They are omitted last.
var essentialOptions = []uint8{53, 54, 51, 61, 1, 3, 6, 58, 59}

// fit returns a reply that does not exceed the client's maximum message size, and the options that it omits. If
// necessary, it moves options to the unused fields for server name and boot file. It puts each option into the smallest
// field that has room, which leaves the others to longer options. Essential options come first, then those that the
// client requested, in its order, then all others.
func fit(req, resp *dhcpv4.DHCPv4) (fitting *dhcpv4.DHCPv4, omitted []uint8) {
	agent := dhcpv4.OptionRelayAgentInformation.Code() // removed by the relay agent (RFC 3046, section 2.1)
	room := maxBytes(req) - fixedSize
	total := 0
	for code, value := range resp.Options {
		if code != agent {
			total += optionSize(value)
		}
	}
	if total <= room {
		return resp, nil
	}
	options, file, sname := newField(room-overloadSize), newField(fileSize), newField(snameSize)
	if resp.BootFileName != "" {
		file.room = 0
	}
	if resp.ServerHostName != "" {
		sname.room = 0
	}
	for _, code := range byImportance(req, resp.Options) {
		value := resp.Options[code]
		switch {
		case code == agent:
			options.options[code] = value
		case slices.Contains(essentialOptions, code) && options.add(code, value):
		case !sname.add(code, value) && !file.add(code, value) && !options.add(code, value):
			omitted = append(omitted, code)
		}
	}
	whole := *resp
	whole.Options = options.options
	var overload uint8
	if len(file.options) > 0 {
		overload |= 1
		whole.BootFileName = file.text()
	}
	if len(sname.options) > 0 {
		overload |= 2
		whole.ServerHostName = sname.text()
	}
	if overload != 0 {
		whole.Options[dhcpv4.OptionOptionOverload.Code()] = []byte{overload}
	}
	return &whole, omitted
}

// maxBytes returns the maximum size of a UDP payload for a client.
func maxBytes(req *dhcpv4.DHCPv4) int {
	size, err := req.MaxMessageSize()
	if err != nil {
		size = minMessageSize
	}
	return max(int(size), minMessageSize) - headers
}

// byImportance returns the options of a reply in the order in which they get room.
func byImportance(req *dhcpv4.DHCPv4, options dhcpv4.Options) []uint8 {
	var codes []uint8
	add := func(code uint8) {
		if options.Has(dhcpv4.GenericOptionCode(code)) && !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	for _, code := range essentialOptions {
		add(code)
	}
	for _, code := range req.ParameterRequestList() {
		add(code.Code())
	}
	for code := range 256 {
		add(uint8(code))
	}
	return codes
}

// optionSize returns the encoded size of an option: its value, and two bytes of code and length for each part of at
// most 255 bytes (RFC 3396).
func optionSize(value []byte) int {
	const head, maxPart = 2, 255
	return len(value) + head*max(1, (len(value)+maxPart-1)/maxPart)
}

// A field is a part of a message that can contain options.
type field struct {
	options dhcpv4.Options
	room    int
}

func newField(room int) *field { return &field{options: dhcpv4.Options{}, room: room} }

// add adds an option if the field has room for all of it.
func (f *field) add(code uint8, value []byte) bool {
	size := optionSize(value)
	if size > f.room {
		return false
	}
	f.options[code] = value
	f.room -= size
	return true
}

// text returns the content of a field for a name.
func (f *field) text() string {
	return string(append(f.options.ToBytes(), dhcpv4.OptionEnd.Code()))
}
