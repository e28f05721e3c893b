package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
)

// network is an Infra on 192.0.2.0/24 and 2001:db8::/64, with the parts that a test is about.
func network(name, components string) string {
	return fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: %s, namespace: clusters}
spec:
  networkConfig: {cidr: 192.0.2.0/24, additionalCIDRs: ["2001:db8::/64"], gateway: 192.0.2.1, networkAttachmentDefinition: vlan}
  infraComponents: {%s}
`, name, components)
}

func TestNetworkProblems(t *testing.T) {
	const good = "dhcp: {serverIP: 192.0.2.4/24, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.199}, dns: {serverIP: 192.0.2.2}, proxy: {serverIP: 192.0.2.3, internalProxyService: 10.0.0.1}"
	for _, tc := range []struct {
		name   string
		infras []string
		want   []string
	}{
		{name: "nothing wrong", infras: []string{good}},
		{name: "an address outside", infras: []string{"dns: {serverIP: 192.0.3.2}"},
			want: []string{"a: InvalidAddress: spec.infraComponents.dns: 192.0.3.2 is not in [192.0.2.0/24 2001:db8::/64]"}},
		{name: "the other family inside", infras: []string{"dns: {instances: [{ip: 192.0.2.2, additionalIPs: ['2001:db8::2']}]}"}},
		{name: "one address for two", infras: []string{"dns: {serverIP: 192.0.2.3}, proxy: {serverIP: 192.0.2.3, internalProxyService: 10.0.0.1}"},
			want: []string{"a: AddressConflict: spec.infraComponents.dns and spec.infraComponents.proxy: both are 192.0.2.3"}},
		{name: "the gateway's address", infras: []string{"dns: {serverIP: 192.0.2.1}"},
			want: []string{"a: AddressConflict: spec.networkConfig.gateway and spec.infraComponents.dns: both are 192.0.2.1"}},
		{name: "a disabled component has no address", infras: []string{"dns: {serverIP: 192.0.2.1, enabled: false}"}},
		{name: "a floating address beside those of the instances",
			infras: []string{"proxy: {serverIP: 192.0.2.3, internalProxyService: 10.0.0.1, instances: [{ip: 192.0.2.5}, {ip: 192.0.2.6}]}"}},
		{name: "no range", infras: []string{"dhcp: {serverIP: 192.0.2.4}"},
			want: []string{"a: InvalidRange: spec.infraComponents.dhcp: there is no range to give out"}},
		{name: "half a range", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100}"},
			want: []string{"a: InvalidRange: spec.infraComponents.dhcp: the range from \"192.0.2.100\" to \"\"", "a: InvalidRange: spec.infraComponents.dhcp: there is no range"}},
		{name: "a range that ends before it starts", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.10}"},
			want: []string{"a: InvalidRange: spec.infraComponents.dhcp: the range from", "a: InvalidRange: spec.infraComponents.dhcp: there is no range"}},
		{name: "a range that leaves the network", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.3.10}"},
			want: []string{"a: InvalidRange: spec.infraComponents.dhcp: the range 192.0.2.100-192.0.3.10 is not in"}},
		{name: "a range over a service", infras: []string{"dhcp: {serverIP: 192.0.2.104, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110}"},
			want: []string{"a: AddressConflict: spec.infraComponents.dhcp: the range 192.0.2.100-192.0.2.110 holds 192.0.2.104, which is spec.infraComponents.dhcp: exclude it"}},
		{name: "which is excluded", infras: []string{"dhcp: {serverIP: 192.0.2.104, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, exclude: [192.0.2.104-192.0.2.105]}"}},
		{name: "ranges over each other", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, ranges: [{start: 192.0.2.110, end: 192.0.2.120}]}"},
			want: []string{"a: InvalidRange: spec.infraComponents.dhcp: the ranges 192.0.2.100-192.0.2.110 and 192.0.2.110-192.0.2.120 overlap"}},
		{name: "neighbours apart", infras: []string{good, "dns: {serverIP: 192.0.2.12}"}},
		{name: "neighbours with one address", infras: []string{good, "dns: {serverIP: 192.0.2.3}"},
			want: []string{"a: AddressConflict: 192.0.2.3 is also an address of Infra clusters/b on the same VLAN", "b: AddressConflict: 192.0.2.3 is also an address of Infra clusters/a on the same VLAN"}},
		{name: "a neighbour in the range", infras: []string{good, "dns: {serverIP: 192.0.2.103}"},
			want: []string{"a: AddressConflict: the range 192.0.2.100-192.0.2.199 holds 192.0.2.103, an address of Infra clusters/b on the same VLAN", "b: AddressConflict: 192.0.2.103 lies in the range 192.0.2.100-192.0.2.199 of Infra clusters/a on the same VLAN"}},
		{name: "neighbours' ranges", infras: []string{good, "dhcp: {serverIP: 192.0.2.14, rangeStart: 192.0.2.190, rangeEnd: 192.0.2.220}"},
			want: []string{"a: AddressConflict: the range 192.0.2.100-192.0.2.199 overlaps the range 192.0.2.190-192.0.2.220 of Infra clusters/b", "b: AddressConflict: the range 192.0.2.190-192.0.2.220 overlaps"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var documents []string
			for i, components := range tc.infras {
				documents = append(documents, network(string(rune('a'+i)), components))
			}
			var got []string
			for _, p := range model.Build(read(t, documents...), model.Options{}).Problems {
				if slices.Contains([]model.Reason{model.ReasonInvalidAddress, model.ReasonInvalidRange, model.ReasonAddressConflict}, p.Reason) {
					got = append(got, strings.TrimPrefix(p.String(), "Infra clusters/"))
				}
			}
			if !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
				t.Errorf("the problems are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}
