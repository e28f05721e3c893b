package option

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// parsers maps the names of value types to their parsers.
var parsers = map[string]func(string) (dhcpv4.OptionValue, error){
	"bool":     boolean,
	"duration": duration,
	"hex":      hexadecimal,
	"ip":       oneAddress,
	"ips":      addresses,
	"name":     name,
	"names":    names,
	"routes":   routes,
	"string":   func(text string) (dhcpv4.OptionValue, error) { return dhcpv4.String(text), nil },
	"uint8":    number(8),
	"uint16":   number(16),
	"uint32":   number(32),
}

func boolean(text string) (dhcpv4.OptionValue, error) {
	switch text {
	case "true":
		return dhcpv4.OptionGeneric{Data: []byte{1}}, nil
	case "false":
		return dhcpv4.OptionGeneric{Data: []byte{0}}, nil
	}
	return nil, fmt.Errorf("%q: must be true or false", text)
}

func duration(text string) (dhcpv4.OptionValue, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a duration such as 30m", text)
	}
	if d < time.Second || d%time.Second != 0 || d/time.Second > math.MaxUint32 {
		return nil, fmt.Errorf("%q is not a whole number of seconds from 1s to 4294967295s", text)
	}
	return dhcpv4.Duration(d), nil
}

func hexadecimal(text string) (dhcpv4.OptionValue, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if err != nil {
		return nil, fmt.Errorf("%q is not hexadecimal; must be bytes such as 0a0b or 0a:0b", text)
	}
	return dhcpv4.OptionGeneric{Data: b}, nil
}

func address(text string) (net.IP, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() {
		return nil, fmt.Errorf("%q is not an IPv4 address", text)
	}
	return a.AsSlice(), nil
}

func oneAddress(text string) (dhcpv4.OptionValue, error) {
	ip, err := address(text)
	return dhcpv4.IP(ip), err
}

func addresses(text string) (dhcpv4.OptionValue, error) {
	var list dhcpv4.IPs
	for element := range strings.SplitSeq(text, ",") {
		ip, err := address(element)
		if err != nil {
			return nil, err
		}
		list = append(list, ip)
	}
	return list, nil
}

func name(text string) (dhcpv4.OptionValue, error) { return dhcpv4.String(text), checkName(text) }

func number(bits int) func(string) (dhcpv4.OptionValue, error) {
	return func(text string) (dhcpv4.OptionValue, error) {
		n, err := strconv.ParseUint(text, 0, bits)
		if err != nil {
			return nil, fmt.Errorf("%q is not an unsigned number of %d bits", text, bits)
		}
		return dhcpv4.OptionGeneric{Data: binary.BigEndian.AppendUint64(nil, n)[8-bits/8:]}, nil
	}
}

// routes parses NETWORK>GATEWAY,... (RFC 3442). The gateway 0.0.0.0 means that the network is on the link.
func routes(text string) (dhcpv4.OptionValue, error) {
	var list dhcpv4.Routes
	for element := range strings.SplitSeq(text, ",") {
		to, by, _ := strings.Cut(element, ">")
		prefix, err := netip.ParsePrefix(to)
		if err != nil || !prefix.Addr().Is4() || prefix != prefix.Masked() {
			return nil, fmt.Errorf("%q is not an IPv4 network; must be NETWORK>GATEWAY, such as 198.51.100.0/24>192.0.2.1", to)
		}
		gateway, err := address(by)
		if err != nil {
			return nil, fmt.Errorf("gateway of network %s: %w", to, err)
		}
		list = append(list, &dhcpv4.Route{
			Dest:   &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), 32)},
			Router: gateway,
		})
	}
	return list, nil
}
