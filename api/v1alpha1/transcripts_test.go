package v1alpha1

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/golden"
)

// TestAddresses runs the transcript testdata/addresses.txt. The commands are:
//
//	address TEXT                parse an address
//	range TEXT                  parse a range, and print what its text is parsed as
//	contains RANGE ADDRESS...   which of the addresses are in a range
//	without RANGE RANGE...      a range without others
//	elements YAML               the elements of AddressRanges
func TestAddresses(t *testing.T) {
	golden.Transcript(t, "testdata/addresses.txt", func(line string) []string {
		command, argument, _ := strings.Cut(line, " ")
		switch command {
		case "address":
			return result(ParseAddress(unquoted(argument)))
		case "range":
			r, err := ParseAddressRange(unquoted(argument))
			if again, err := ParseAddressRange(r.String()); err == nil && again != r {
				t.Errorf("%s is written as %s, which is %s", argument, r, again)
			}
			return result(fmt.Sprintf("%s to %s, written as %s", r.First, r.Last, r), err)
		case "contains":
			words := strings.Fields(argument)
			var inside []string
			for _, text := range words[1:] {
				if parseRange(t, words[0]).Contains(netip.MustParseAddr(text)) {
					inside = append(inside, text)
				}
			}
			return inside
		case "without":
			words := strings.Fields(argument)
			var others []AddressRange
			for _, text := range words[1:] {
				others = append(others, parseRange(t, text))
			}
			var rest []string
			for _, r := range parseRange(t, words[0]).Without(others...) {
				rest = append(rest, r.String())
			}
			return rest
		case "elements":
			elements, err := decode[*AddressRanges](t, argument).Elements()
			return result(fmt.Sprintf("%q", elements), err)
		}
		t.Fatalf("unknown command %s", line)
		return nil
	})
}

// TestFields runs the transcript testdata/fields.txt. Each line has a word for a type and a value of the type in YAML, and the output is what
// its methods return.
func TestFields(t *testing.T) {
	golden.Transcript(t, "testdata/fields.txt", func(line string) []string {
		kind, text, _ := strings.Cut(line, " ")
		switch kind {
		case "dhcp":
			d := decode[*InfraDHCP](t, text)
			lease, err := d.LeaseDuration()
			return []string{
				fmt.Sprintf("enabled %t, instances %s, ranges %s", d.IsEnabled(), encode(t, d.EffectiveInstances()), encode(t, d.EffectiveRanges())),
				"lease time " + result(lease, err)[0],
			}
		case "dns":
			d := decode[*InfraDNS](t, text)
			return []string{fmt.Sprintf("enabled %t, instances %s, domain %q", d.IsEnabled(), encode(t, d.EffectiveInstances()), d.ClusterDomain())}
		case "proxy":
			p := decode[*InfraProxy](t, text)
			return []string{fmt.Sprintf("enabled %t, instances %s, addresses %s", p.IsEnabled(), encode(t, p.EffectiveInstances()), p.ServerIPs())}
		case "apps":
			a := decode[*AppsIngress](t, text)
			return []string{fmt.Sprintf("enabled %t, ports %s, Service %s, lacks a class with KubeVirt %t, with Agent %t",
				a.IsEnabled(), encode(t, a.EffectivePorts()), a.ServiceKey("blue"), a.LacksClass("KubeVirt"), a.LacksClass("Agent"))}
		case "metallb":
			return []string{fmt.Sprintf("should install %t", decode[*AppsIngressMetalLB](t, text).ShouldInstall())}
		case "network":
			infra, proxy := decode[*NetworkConfig](t, text), decode[*ProxyNetworkConfig](t, text)
			proxy.NetworkAttachmentName = infra.NetworkAttachmentDefinition
			return []string{fmt.Sprintf("Infra %s, ProxyServer %s", infra.NetworkAttachment("own"), proxy.NetworkAttachment("own"))}
		case "cluster":
			r := decode[*HostedClusterReference](t, text)
			return []string{fmt.Sprintf("set %t, from own %v, from clusters %v", r.IsSet(), r.Candidates("own"), r.Candidates("clusters"))}
		case "duration":
			d := decode[Duration](t, text)
			parsed, err := d.Parse()
			return []string{result(parsed, err)[0] + "; or the default: " + d.Or(DefaultProxyConnectTimeout).String()}
		}
		t.Fatalf("unknown type %s", line)
		return nil
	})
}

// unquoted returns a text without the quotes that make its spaces visible.
func unquoted(text string) string { return strings.Trim(text, `"`) }

// result returns a value, or the error.
func result[T any](value T, err error) []string {
	if err != nil {
		return []string{err.Error()}
	}
	return []string{fmt.Sprint(value)}
}

func parseRange(t *testing.T, text string) AddressRange {
	t.Helper()
	r, err := ParseAddressRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func decode[T any](t *testing.T, text string) (value T) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func encode(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
