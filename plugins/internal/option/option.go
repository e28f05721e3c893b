// Package option parses DHCPv4 options as users write them: in the configuration for all clients, in an annotation
// for one VM.
package option

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/rfc1035label"
)

// A Set contains parsed options.
type Set struct {
	// Options are sent to clients that request them, and to clients without a parameter request list.
	Options dhcpv4.Options
	// Forced are sent to all clients.
	Forced dhcpv4.Options
	// Boot contains the boot files, at most one for each kind of client.
	Boot []Boot
}

// Parse parses words of the form key=value. Keys are hostname, domain, mtu, broadcast, ntp, t1, t2, search and
// routes; option and force with the value code:type:value; and boot with client:URL. Each option may occur once,
// and boot once for each client; t1 must be shorter than t2. Errors name the invalid word.
func Parse(words []string) (Set, error) {
	s := Set{Options: dhcpv4.Options{}, Forced: dhcpv4.Options{}}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || value == "" {
			return Set{}, fmt.Errorf("%q: must be key=value", word)
		}
		if key == "boot" {
			b, err := parseBoot(value)
			if err != nil {
				return Set{}, fmt.Errorf("%s: %w", word, err)
			}
			if slices.ContainsFunc(s.Boot, func(other Boot) bool { return other.client == b.client }) {
				return Set{}, fmt.Errorf("%s: duplicate boot file of client %s; remove one", word, b.client)
			}
			s.Boot = append(s.Boot, b)
			continue
		}
		o, err := parse(key, value)
		if err != nil {
			return Set{}, fmt.Errorf("%s: %w", word, err)
		}
		if code := o.Code.Code(); s.Options.Has(o.Code) || s.Forced.Has(o.Code) {
			return Set{}, fmt.Errorf("%s: duplicate option %d; remove one", word, code)
		}
		// Clients accept renewal times that they have not requested, and many never request them.
		if key == "force" || key == "t1" || key == "t2" {
			s.Forced.Update(o)
		} else {
			s.Options.Update(o)
		}
	}
	t1, t2 := Seconds(s.Forced, dhcpv4.OptionRenewTimeValue), Seconds(s.Forced, dhcpv4.OptionRebindingTimeValue)
	if t1 != 0 && t2 != 0 && t1 >= t2 {
		return Set{}, fmt.Errorf("t1 %s must be shorter than t2 %s", t1, t2)
	}
	return s, nil
}

// Seconds returns the duration in an option whose value is a number of seconds. It returns 0 if the option is absent or
// invalid.
func Seconds(options dhcpv4.Options, code dhcpv4.OptionCode) time.Duration {
	var d dhcpv4.Duration
	if err := d.FromBytes(options.Get(code)); err != nil {
		return 0
	}
	return time.Duration(d)
}

// All returns Options and Forced in one new map.
func (s Set) All() dhcpv4.Options {
	all := maps.Clone(s.Options)
	maps.Copy(all, s.Forced)
	return all
}

// minMTU is the minimum of RFC 2132, section 5.1.
const minMTU = 68

// keys maps keys to their options and types.
var keys = map[string]struct {
	code dhcpv4.OptionCode
	kind string
}{
	"hostname":  {dhcpv4.OptionHostName, "name"},
	"domain":    {dhcpv4.OptionDomainName, "name"},
	"mtu":       {dhcpv4.OptionInterfaceMTU, "uint16"},
	"broadcast": {dhcpv4.OptionBroadcastAddress, "ip"},
	"ntp":       {dhcpv4.OptionNTPServers, "ips"},
	"t1":        {dhcpv4.OptionRenewTimeValue, "duration"},
	"t2":        {dhcpv4.OptionRebindingTimeValue, "duration"},
	"search":    {dhcpv4.OptionDNSDomainSearchList, "names"},
	"routes":    {dhcpv4.OptionClasslessStaticRoute, "routes"},
}

// parse parses one word.
func parse(key, value string) (dhcpv4.Option, error) {
	if key == "option" || key == "force" {
		return parseTyped(value)
	}
	word, ok := keys[key]
	if !ok {
		return dhcpv4.Option{}, fmt.Errorf("unknown key %q; must be hostname, domain, mtu, broadcast, ntp, t1, t2, search, routes, option, force or boot", key)
	}
	if mtu, err := strconv.ParseUint(value, 0, 16); key == "mtu" && err == nil && mtu < minMTU {
		return dhcpv4.Option{}, fmt.Errorf("the MTU must be at least %d", minMTU)
	}
	return encode(word.code, word.kind, value)
}

// reservedOptions are the options that the protocol or another plugin sets, each with the reason.
var reservedOptions = map[uint64]string{
	0: "padding", 50: "sent by clients only", 51: "set by leasedb or lease_time", 52: "set by the server", 53: "the message type",
	54: "set by the server", 55: "sent by clients only", 56: "set by the server", 57: "sent by clients only", 61: "the client identifier",
	82: "set by relay agents", 255: "the end marker",
}

// parseTyped parses code:type:value.
func parseTyped(text string) (dhcpv4.Option, error) {
	number, rest, _ := strings.Cut(text, ":")
	kind, value, ok := strings.Cut(rest, ":")
	if !ok {
		return dhcpv4.Option{}, errors.New("must be code:type:value, such as 42:ips:192.0.2.9")
	}
	code, err := strconv.ParseUint(number, 10, 8)
	if err != nil {
		return dhcpv4.Option{}, fmt.Errorf("the code %q is not a number from 1 to 254", number)
	}
	if why, ok := reservedOptions[code]; ok {
		return dhcpv4.Option{}, fmt.Errorf("option %d cannot be set: it is %s", code, why)
	}
	return encode(dhcpv4.GenericOptionCode(code), kind, value)
}

// encode parses a value of the given type.
func encode(code dhcpv4.OptionCode, kind, text string) (dhcpv4.Option, error) {
	parser, ok := parsers[kind]
	if !ok {
		return dhcpv4.Option{}, fmt.Errorf("unknown type %q; must be one of %s", kind, strings.Join(slices.Sorted(maps.Keys(parsers)), ", "))
	}
	value, err := parser(text)
	if err != nil {
		return dhcpv4.Option{}, err
	}
	return dhcpv4.Option{Code: code, Value: value}, nil
}

func names(text string) (dhcpv4.OptionValue, error) {
	list := strings.Split(text, ",")
	for _, name := range list {
		if err := checkName(name); err != nil {
			return nil, err
		}
	}
	return &rfc1035label.Labels{Labels: list}, nil
}

func checkName(name string) error {
	if len(name) > 253 {
		return fmt.Errorf("the name %q is longer than 253 bytes", name)
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, letters) != "" || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return fmt.Errorf("%q is not a host or domain name", name)
		}
	}
	return nil
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
