// Package option reads DHCPv4 options as people write them: in a configuration for
// everybody, in an annotation for one machine.
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

// Set is what was written.
type Set struct {
	// Options are answered to who asks for them, or asks for nothing in particular.
	Options dhcpv4.Options
	// Forced are answered to everybody.
	Forced dhcpv4.Options
	// Boot are boot files, each for some of those who boot over the network.
	Boot []Boot
}

// Parse reads words of the form key=value. Keys are hostname, domain, mtu, broadcast, ntp,
// t1, t2, search and routes; and option and force, whose value is code:type:value, and boot with client:URL. A key is
// there once at most, option and force as often as there are options, boot as often as there are clients, and nothing is
// given twice. The error names the word.
func Parse(words []string) (Set, error) {
	s := Set{Options: dhcpv4.Options{}, Forced: dhcpv4.Options{}}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || value == "" {
			return Set{}, fmt.Errorf("%q is not key=value", word)
		}
		if key == "boot" {
			b, err := parseBoot(value)
			if err != nil {
				return Set{}, fmt.Errorf("%s: %w", word, err)
			}
			if slices.ContainsFunc(s.Boot, func(other Boot) bool { return other.client == b.client }) {
				return Set{}, fmt.Errorf("%s: the client %s is there twice", word, b.client)
			}
			s.Boot = append(s.Boot, b)
			continue
		}
		o, err := parse(key, value)
		if err != nil {
			return Set{}, fmt.Errorf("%s: %w", word, err)
		}
		if code := o.Code.Code(); s.Options.Has(o.Code) || s.Forced.Has(o.Code) {
			return Set{}, fmt.Errorf("%s: option %d is there twice", word, code)
		}
		// Clients take renewal times that they have not asked for, and many never ask.
		if key == "force" || key == "t1" || key == "t2" {
			s.Forced.Update(o)
		} else {
			s.Options.Update(o)
		}
	}
	t1, t2 := Seconds(s.Forced, dhcpv4.OptionRenewTimeValue), Seconds(s.Forced, dhcpv4.OptionRebindingTimeValue)
	if t1 != 0 && t2 != 0 && t1 >= t2 {
		return Set{}, fmt.Errorf("t1 %s is not before t2 %s", t1, t2)
	}
	return s, nil
}

// Seconds returns the value of an option that is a number of seconds; zero for none.
func Seconds(options dhcpv4.Options, code dhcpv4.OptionCode) time.Duration {
	var d dhcpv4.Duration
	if err := d.FromBytes(options.Get(code)); err != nil {
		return 0
	}
	return time.Duration(d)
}

// All returns both kinds in one.
func (s Set) All() dhcpv4.Options {
	all := maps.Clone(s.Options)
	maps.Copy(all, s.Forced)
	return all
}

// leastMTU is of RFC 2132, section 5.1.
const leastMTU = 68

// keys are the keys that have a name of their own.
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

// parse reads one word.
func parse(key, value string) (dhcpv4.Option, error) {
	if key == "option" || key == "force" {
		return typed(value)
	}
	word, ok := keys[key]
	if !ok {
		return dhcpv4.Option{}, fmt.Errorf("unknown key %q", key)
	}
	if mtu, err := strconv.ParseUint(value, 0, 16); key == "mtu" && err == nil && mtu < leastMTU {
		return dhcpv4.Option{}, fmt.Errorf("an MTU is at least %d", leastMTU)
	}
	return encode(word.code, word.kind, value)
}

// ours are the options that the protocol itself, or another plugin alone, decides on.
var ours = map[uint64]string{
	0: "padding", 50: "the client's", 51: "set by leasedb or lease_time", 52: "decided on by the server", 53: "the type of the message",
	54: "the server's own", 55: "the client's", 56: "decided on by the server", 57: "the client's", 61: "the client's",
	82: "the relay agent's", 255: "the end",
}

// typed reads code:type:value.
func typed(text string) (dhcpv4.Option, error) {
	number, rest, _ := strings.Cut(text, ":")
	kind, value, ok := strings.Cut(rest, ":")
	if !ok {
		return dhcpv4.Option{}, errors.New("want code:type:value")
	}
	code, err := strconv.ParseUint(number, 10, 8)
	if err != nil {
		return dhcpv4.Option{}, fmt.Errorf("the code %q is not a number from 1 to 254", number)
	}
	if why, ok := ours[code]; ok {
		return dhcpv4.Option{}, fmt.Errorf("option %d is %s", code, why)
	}
	return encode(dhcpv4.GenericOptionCode(code), kind, value)
}

// encode makes an option of a text by its type.
func encode(code dhcpv4.OptionCode, kind, text string) (dhcpv4.Option, error) {
	parser, ok := parsers[kind]
	if !ok {
		return dhcpv4.Option{}, fmt.Errorf("unknown type %q: want one of %s", kind, Types())
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
		return fmt.Errorf("the name %q is too long", name)
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, letters) != "" || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return fmt.Errorf("%q is not a host or domain name", name)
		}
	}
	return nil
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
