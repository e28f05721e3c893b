package dhcp4

import (
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

const (
	// leastSize is what every client takes, and what one takes that does not say more. It counts the headers of IP and
	// UDP. RFC 2131, section 2; RFC 2132, section 9.10.
	leastSize = 576
	headers   = 20 + 8
	// fixedSize is of a message without any option: its header, the cookie and the end.
	fixedSize = 236 + 4 + 1
	// overloadSize is of option 52, which says that the fields for a boot file's and a server's name hold options.
	overloadSize = 3
	// fileSize and snameSize are of these fields, less a zero at the end, which stays, and the end of the options.
	fileSize, snameSize = 128 - 2, 64 - 2
)

// foremost are the options that make an answer one, and those that its client cannot do without: type, server, lease,
// client, netmask, routers, name servers, times of renewal. They are left out last.
var foremost = []uint8{53, 54, 51, 61, 1, 3, 6, 58, 59}

// fit returns an answer that is no longer than its client takes. Where it would be, options go where the names of a boot
// file and of a server would stand, if there are none; the smallest place that an option has room in leaves the others to
// longer ones. What has room nowhere is left out, and who is asked first is what its client needs, then what it asked
// for, in its order.
func fit(req, resp *dhcpv4.DHCPv4) (fitting *dhcpv4.DHCPv4, left []uint8) {
	agent := dhcpv4.OptionRelayAgentInformation.Code() // taken out again by the agent; RFC 3046, section 2.1
	room := mostBytes(req) - fixedSize
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
		case slices.Contains(foremost, code) && options.take(code, value):
		case !sname.take(code, value) && !file.take(code, value) && !options.take(code, value):
			left = append(left, code)
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
	return &whole, left
}

// mostBytes is how many bytes of ours a client takes.
func mostBytes(req *dhcpv4.DHCPv4) int {
	most, err := req.MaxMessageSize()
	if err != nil {
		most = leastSize
	}
	return max(int(most), leastSize) - headers
}

// byImportance returns an answer's options in the order in which they get room.
func byImportance(req *dhcpv4.DHCPv4, options dhcpv4.Options) []uint8 {
	var codes []uint8
	add := func(code uint8) {
		if options.Has(dhcpv4.GenericOptionCode(code)) && !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	for _, code := range foremost {
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

// optionSize is what an option takes: before its value are code and length, and again before each further part of a long
// one. RFC 3396.
func optionSize(value []byte) int {
	const head, most = 2, 255
	return len(value) + head*max(1, (len(value)+most-1)/most)
}

// field is a part of a message that options can be in.
type field struct {
	options dhcpv4.Options
	room    int
}

func newField(room int) *field { return &field{options: dhcpv4.Options{}, room: room} }

// take takes an option as a whole, if there is room.
func (f *field) take(code uint8, value []byte) bool {
	size := optionSize(value)
	if size > f.room {
		return false
	}
	f.options[code] = value
	f.room -= size
	return true
}

// text is what the field holds when it is one for a name.
func (f *field) text() string {
	return string(append(f.options.ToBytes(), dhcpv4.OptionEnd.Code()))
}
