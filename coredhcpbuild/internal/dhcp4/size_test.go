package dhcp4

import (
	"bytes"
	"maps"
	"net"
	"slices"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/test/lab"
)

// text returns an option with a value of the given size.
func text(code uint8, size int) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(code), bytes.Repeat([]byte{code}, size)))
}

// parseOptions returns all options of a message, including those in the fields for boot file and server name
// (RFC 2131, section 4.1). The library reads only the options field.
func parseOptions(t *testing.T, data []byte) dhcpv4.Options {
	t.Helper()
	const sname, file, options = 44, 108, 240
	m, err := dhcpv4.FromBytes(data)
	lab.Must(t, err)
	all := m.Options
	if value := all.Get(dhcpv4.OptionOptionOverload); value != nil {
		for bit, part := range map[byte][]byte{1: data[file : options-4], 2: data[sname:file]} {
			if value[0]&bit == 0 {
				continue
			}
			if err := all.FromBytes(part); err != nil {
				t.Errorf("field %d: %v", bit, err)
			}
			if part[len(part)-1] != 0 || !bytes.Contains(part, []byte{255}) {
				t.Errorf("field %d has no end: %x", bit, part)
			}
		}
	}
	return all
}

func TestRepliesDoNotExceedTheMaximumMessageSize(t *testing.T) {
	maxSize := func(n uint16) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptMaxMessageSize(n)) }
	requests := func(codes ...uint8) dhcpv4.Modifier {
		var list []dhcpv4.OptionCode
		for _, code := range codes {
			list = append(list, dhcpv4.GenericOptionCode(code))
		}
		return dhcpv4.WithRequestedOptions(list...)
	}
	essential := []dhcpv4.Modifier{
		dhcpv4.WithServerIP(net.IPv4(192, 0, 2, 2)), dhcpv4.WithLeaseTime(3600), text(54, 4), text(1, 4), text(3, 4), text(6, 8), text(58, 4), text(59, 4),
	}
	for _, tc := range []struct {
		name     string
		request  []dhcpv4.Modifier
		response []dhcpv4.Modifier
		size     int
		overload []byte
		omitted  []uint8
	}{
		{"fits into the options field", nil, []dhcpv4.Modifier{text(12, 20)}, 548, nil, nil},
		{"long reply, large maximum", []dhcpv4.Modifier{maxSize(1500)}, []dhcpv4.Modifier{text(121, 255), text(119, 255)}, 1472, nil, nil},
		{"long reply, no maximum", nil, []dhcpv4.Modifier{text(121, 250), text(119, 60)}, 548, []byte{2}, nil},
		{"both fields used", []dhcpv4.Modifier{maxSize(576)}, []dhcpv4.Modifier{text(121, 240), text(119, 120), text(15, 60)}, 548, []byte{3}, nil},
		{"maximum below the minimum", []dhcpv4.Modifier{maxSize(100)}, []dhcpv4.Modifier{text(121, 240), text(119, 120), text(15, 60)}, 548, []byte{3}, nil},
		{"options that were not requested are omitted first", []dhcpv4.Modifier{requests(121, 119, 15)}, []dhcpv4.Modifier{text(15, 60), text(43, 60), text(119, 120), text(121, 240)}, 548, []byte{3}, []uint8{43}},
		{"the option requested last is omitted", []dhcpv4.Modifier{requests(43, 15, 119, 121)}, []dhcpv4.Modifier{text(15, 60), text(43, 60), text(119, 120), text(121, 240)}, 548, []byte{3}, []uint8{121}},
		{"a field with a name is not used", nil, []dhcpv4.Modifier{text(121, 240), text(119, 120), func(m *dhcpv4.DHCPv4) { m.BootFileName = "boot" }}, 548, nil, []uint8{121}},
		{"option in several parts", []dhcpv4.Modifier{maxSize(1500)}, []dhcpv4.Modifier{text(121, 900), text(119, 255)}, 1472, nil, nil},
		{"option 82 does not count", nil, []dhcpv4.Modifier{text(82, 200), text(12, 200)}, 548 + 202, nil, nil},
		{"option 82 is not omitted", nil, []dhcpv4.Modifier{text(82, 200), text(121, 250), text(119, 120), text(43, 250)}, 548 + 202, []byte{1}, []uint8{121}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := request(t, 1, 1, dhcpv4.MessageTypeDiscover, tc.request...)
			resp, _, err := newResponse(req)
			lab.Must(t, err)
			for _, mod := range append(essential, tc.response...) {
				mod(resp)
			}
			want := maps.Clone(resp.Options)
			fitting, omitted := fit(req, resp)
			data := fitting.ToBytes()
			if len(data) > tc.size {
				t.Errorf("the reply has %d bytes, want at most %d", len(data), tc.size)
			}
			if !slices.Equal(omitted, tc.omitted) {
				t.Errorf("the omitted options are %v, want %v", omitted, tc.omitted)
			}
			got := parseOptions(t, data)
			if overload := got.Get(dhcpv4.OptionOptionOverload); !bytes.Equal(overload, tc.overload) {
				t.Errorf("option 52 is %v, want %v", overload, tc.overload)
			}
			got.Del(dhcpv4.OptionOptionOverload)
			for _, code := range omitted {
				delete(want, code)
			}
			if !maps.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("the options are\n%v, want\n%v", got, want)
			}
		})
	}
}

// TestEssentialOptionsAreNotOmitted builds a reply with more options than any client accepts.
func TestEssentialOptionsAreNotOmitted(t *testing.T) {
	req := request(t, 1, 1, dhcpv4.MessageTypeDiscover)
	resp, _, err := newResponse(req)
	lab.Must(t, err)
	for code := uint8(1); code < 255; code++ {
		text(code, 4)(resp)
	}
	resp.Options.Del(dhcpv4.OptionOptionOverload)
	fitting, omitted := fit(req, resp)
	if n := len(fitting.ToBytes()); n > 548+6 || len(omitted) == 0 { // with option 82
		t.Errorf("%d bytes, with %d options omitted", n, len(omitted))
	}
	for _, code := range essentialOptions {
		if slices.Contains(omitted, code) {
			t.Errorf("option %d is omitted", code)
		}
	}
}
