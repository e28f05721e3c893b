package convert

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
)

// optionNames has the options that an Infra refers to by name, with the types of their values.
var optionNames = map[int]struct{ name, kind string }{
	15: {"domain-name", "string"}, 26: {"interface-mtu", "uint16"}, 28: {"broadcast-address", "ip"}, 42: {"ntp-servers", "ips"}, 119: {"domain-search", "names"},
}

// optionTypes has the types of other options, from RFC 2132 and, for the last three, from RFC 8910 (114), RFC 5859
// (150) and the WPAD draft (252).
var optionTypes = map[int]string{
	4: "ips", 7: "ips", 9: "ips", 19: "bool", 23: "uint8", 37: "uint8", 40: "string", 41: "ips", 44: "ips", 46: "uint8", 47: "string",
	66: "string", 67: "string", 69: "ips", 70: "ips", 114: "string", 150: "ips", 252: "string",
}

// options adds the options of a DHCPServer to its Infra. Their values have no type, so only options whose type
// follows from the code are added.
func (c *converter) options(s *infraGroup, infra *unstructured.Unstructured, typed *v1alpha1.Infra, options []dhcpOption) {
	list, _, _ := unstructured.NestedSlice(infra.Object, "spec", "infraComponents", "dhcp", "options")
	for i, o := range options {
		field := fmt.Sprintf("spec.options[%d]", i)
		if computed, ok := computedOption(typed, o.Code); ok {
			if joinValues(o.Value) != computed {
				c.warn(s.dhcp, field, "option %d, %s, is dropped: the Infra determines its value: %s", o.Code, o.Value, orNotSet(computed))
			}
			continue
		}
		option, err := convertOption(o)
		switch {
		case err != nil:
			c.warn(s.dhcp, field, "option %d, %s, is dropped: %v", o.Code, o.Value, err)
		case slices.ContainsFunc(typed.Spec.InfraComponents.DHCP.Options, func(existing v1alpha1.DHCPOption) bool {
			return existing.Name != "" && existing.Name == option["name"] || existing.Code != nil && int64(*existing.Code) == option["code"]
		}):
			c.warn(s.dhcp, field, "option %d, %s, is dropped: the Infra already has this option", o.Code, o.Value)
		default:
			list = append(list, option)
		}
	}
	if len(list) > 0 {
		fields{infra.Object}.set(list, "spec", "infraComponents", "dhcp", "options")
	}
}

// computedOption returns the value of an option that setup computes from other fields of an Infra. ok is false for
// options that it does not compute.
func computedOption(infra *v1alpha1.Infra, code int) (value string, ok bool) {
	dhcp := infra.Spec.InfraComponents.DHCP
	switch code {
	case 1:
		if network, err := netip.ParsePrefix(infra.Spec.NetworkConfig.CIDR); err == nil && network.Addr().Is4() {
			value = net.IP(net.CIDRMask(network.Bits(), 32)).String()
		}
	case 3:
		value = infra.Spec.NetworkConfig.Gateway
	case 6:
		value = strings.Join(dnsServersOfVMs(infra), ",")
	case 51:
		if lease, err := dhcp.LeaseDuration(); err == nil {
			value = strconv.Itoa(int(lease / time.Second))
		}
	case 54:
		value = dhcp.ServerIP
	default:
		return "", false
	}
	return value, true
}

// joinValues returns a list with commas and without white space between its elements.
func joinValues(text string) string {
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
	return strings.Join(parts, ",")
}

// convertOption returns an option in the form of an Infra. The error is the reason why it cannot be converted.
func convertOption(o dhcpOption) (map[string]any, error) {
	if named, ok := optionNames[o.Code]; ok {
		value, err := optionValue(named.kind, o.Value)
		return map[string]any{"name": named.name, "value": value}, err
	}
	kind, ok := optionTypes[o.Code]
	switch {
	case o.Code >= 50 && o.Code <= 57, o.Code == 12, o.Code == 58, o.Code == 59, o.Code == 61, o.Code == 82:
		return nil, errors.New("the DHCP server sets this option")
	case !ok:
		return nil, fmt.Errorf("the type of its value is unknown; add {code: %d, value: \"TYPE:VALUE\"} to spec.infraComponents.dhcp.options of the Infra", o.Code)
	}
	value, err := optionValue(kind, o.Value)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(value, " \t\n") {
		return map[string]any{"code": int64(o.Code), "value": "hex:" + hex.EncodeToString([]byte(value))}, nil
	}
	return map[string]any{"code": int64(o.Code), "value": kind + ":" + value}, nil
}

// optionValue validates and normalizes a value of a type.
func optionValue(kind, text string) (string, error) {
	switch kind {
	case "ip", "ips":
		text = joinValues(text)
		list := strings.Split(text, ",")
		for _, one := range list {
			if a, err := netip.ParseAddr(one); err != nil || !a.Is4() || kind == "ip" && len(list) > 1 {
				return "", errors.New("want an IPv4 address, or several if the option allows")
			}
		}
	case "names":
		text = joinValues(text)
	case "uint8", "uint16":
		bits := map[string]int{"uint8": 8, "uint16": 16}[kind]
		if _, err := strconv.ParseUint(text, 10, bits); err != nil {
			return "", fmt.Errorf("want an unsigned number of %d bits", bits)
		}
	case "bool":
		if _, err := strconv.ParseBool(text); err != nil {
			return "", errors.New("want true or false")
		}
	}
	if text == "" {
		return "", errors.New("the value is empty")
	}
	return text, nil
}
