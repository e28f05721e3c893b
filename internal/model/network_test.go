package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
)

// infraYAML returns an Infra on 192.0.2.0/24 and 2001:db8::/64 with the given infraComponents.
func infraYAML(name, components string) string {
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
		{name: "valid", infras: []string{good}},
		{name: "an address outside", infras: []string{"dns: {serverIP: 192.0.3.2}"},
			want: []string{"a: InvalidAddress: spec.infraComponents.dns: 192.0.3.2 is not in the VLAN's subnets [192.0.2.0/24 2001:db8::/64]"}},
		{name: "an address of the other family", infras: []string{"dns: {instances: [{ip: 192.0.2.2, additionalIPs: ['2001:db8::2']}]}"}},
		{name: "one address for two components", infras: []string{"dns: {serverIP: 192.0.2.3}, proxy: {serverIP: 192.0.2.3, internalProxyService: 10.0.0.1}"},
			want: []string{"a: AddressConflict: spec.infraComponents.dns and spec.infraComponents.proxy: both are 192.0.2.3"}},
		{name: "the gateway's address", infras: []string{"dns: {serverIP: 192.0.2.1}"},
			want: []string{"a: AddressConflict: spec.networkConfig.gateway and spec.infraComponents.dns: both are 192.0.2.1"}},
		{name: "a disabled component has no address", infras: []string{"dns: {serverIP: 192.0.2.1, enabled: false}"}},
		{name: "a floating address beside those of the instances",
			infras: []string{"proxy: {serverIP: 192.0.2.3, internalProxyService: 10.0.0.1, instances: [{ip: 192.0.2.5}, {ip: 192.0.2.6}]}"}},
		{name: "a floating address that an instance has", infras: []string{"proxy: {serverIP: 192.0.2.3, internalProxyService: 10.0.0.1, instances: [{ip: 192.0.2.5}, {ip: 192.0.2.3}]}"},
			want: []string{"a: AddressConflict: spec.infraComponents.proxy and spec.infraComponents.proxy.instances: both are 192.0.2.3"}},
		{name: "no range", infras: []string{"dhcp: {serverIP: 192.0.2.4}"},
			want: []string{"a: InvalidRange: spec.infraComponents.dhcp: no range to lease from"}},
		{name: "a range without an end", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100}"},
			want: []string{"a: InvalidRange: spec.infraComponents.dhcp: end of range \"192.0.2.100-\"", "a: InvalidRange: spec.infraComponents.dhcp: no range"}},
		{name: "a range that ends before it starts", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.10}"},
			want: []string{"a: InvalidRange: spec.infraComponents.dhcp: no range", "a: InvalidRange: spec.infraComponents.dhcp: range \"192.0.2.100-192.0.2.10\" ends before"}},
		{name: "a range that leaves the network", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.3.10}"},
			want: []string{"a: InvalidRange: spec.infraComponents.dhcp: the range 192.0.2.100-192.0.3.10 is not in"}},
		{name: "addresses of DHCP in another subnet", infras: []string{"dhcp: {serverIP: '2001:db8::4', rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, ranges: [{start: '2001:db8::10', end: '2001:db8::1f'}], exclude: ['2001:db8::1f']}"},
			want: []string{
				"a: InvalidAddress: spec.infraComponents.dhcp: 2001:db8::4 is not in spec.networkConfig.cidr 192.0.2.0/24, the only subnet that DHCP serves: clients in additionalCIDRs could not reach the gateway",
				"a: InvalidRange: spec.infraComponents.dhcp.exclude: 2001:db8::1f is not in spec.networkConfig.cidr 192.0.2.0/24",
				"a: InvalidRange: spec.infraComponents.dhcp: the range 2001:db8::10-2001:db8::1f is not in spec.networkConfig.cidr 192.0.2.0/24",
			}},
		{name: "a range over a service", infras: []string{"dhcp: {serverIP: 192.0.2.104, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110}"},
			want: []string{"a: AddressConflict: spec.infraComponents.dhcp: the range 192.0.2.100-192.0.2.110 contains 192.0.2.104, which is spec.infraComponents.dhcp: exclude it"}},
		{name: "a range over a service, which is excluded", infras: []string{"dhcp: {serverIP: 192.0.2.104, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, exclude: [192.0.2.104-192.0.2.105]}"}},
		{name: "overlapping ranges", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, ranges: [{start: 192.0.2.110, end: 192.0.2.120}]}"},
			want: []string{"a: InvalidRange: spec.infraComponents.dhcp: the ranges 192.0.2.100-192.0.2.110 and 192.0.2.110-192.0.2.120 overlap"}},
		{name: "the network's and the broadcast address", infras: []string{"dns: {serverIP: 192.0.2.255}, proxy: {serverIP: 192.0.2.0, internalProxyService: 10.0.0.1}"},
			want: []string{
				"a: InvalidAddress: spec.infraComponents.dns: 192.0.2.255 is the broadcast address of 192.0.2.0/24",
				"a: InvalidAddress: spec.infraComponents.proxy: 192.0.2.0 is the network address of 192.0.2.0/24",
			}},
		{name: "a range of the whole network", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.0, rangeEnd: 192.0.2.255, exclude: [192.0.2.1-192.0.2.4]}"},
			want: []string{
				"a: InvalidRange: spec.infraComponents.dhcp: the range 192.0.2.0-192.0.2.255 contains 192.0.2.0, the network address of 192.0.2.0/24: exclude it",
				"a: InvalidRange: spec.infraComponents.dhcp: the range 192.0.2.0-192.0.2.255 contains 192.0.2.255, the broadcast address",
			}},
		{name: "relay agents", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, relays: [198.51.100.0/24, '2001:db8::/64']}"},
			want: []string{"a: InvalidAddress: spec.infraComponents.dhcp.relays: 2001:db8::/64 is not an IPv4 network"}},
		{name: "hosts of DHCP", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, hosts: [" +
			"{mac: '52:54:00:00:00:01', address: 192.0.2.20}, {mac: '52:54:00:00:00:02', address: 192.0.2.100}, {mac: '52:54:00:00:00:03'}, {mac: '52:54:00:00:00:04'}]}"}},
		{name: "hosts of DHCP with addresses that they cannot have", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, hosts: [" +
			"{mac: '52:54:00:00:00:01', address: 192.0.3.20}, {mac: '52:54:00:00:00:02', address: 192.0.2.1}, {mac: '52:54:00:00:00:03', address: 192.0.2.20}, " +
			"{mac: '52:54:00:00:00:04', address: 192.0.2.20}, {mac: '52:54:00:00:00:05', address: 192.0.2.255}, {mac: '52:54:00:00:00:06', address: '2001:db8::9'}]}"},
			want: []string{
				"a: AddressConflict: spec.infraComponents.dhcp.hosts: address of 52:54:00:00:00:02: 192.0.2.1 is spec.networkConfig.gateway: use another",
				"a: AddressConflict: spec.infraComponents.dhcp.hosts: address of 52:54:00:00:00:04: 192.0.2.20 is also that of 52:54:00:00:00:03: use another",
				"a: InvalidAddress: spec.infraComponents.dhcp.hosts: address of 52:54:00:00:00:01: 192.0.3.20 is not in spec.networkConfig.cidr 192.0.2.0/24",
				"a: InvalidAddress: spec.infraComponents.dhcp.hosts: address of 52:54:00:00:00:05: 192.0.2.255 is the broadcast address of 192.0.2.0/24",
				"a: InvalidAddress: spec.infraComponents.dhcp.hosts: address of 52:54:00:00:00:06: 2001:db8::9 is not in spec.networkConfig.cidr",
			}},
		{name: "the address of a host in the range of another Infra", infras: []string{
			"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, hosts: [{mac: '52:54:00:00:00:01', address: 192.0.2.205}]}",
			"dhcp: {serverIP: 192.0.2.14, rangeStart: 192.0.2.200, rangeEnd: 192.0.2.220}"},
			want: []string{"a: AddressConflict: the range 192.0.2.205", "b: AddressConflict: the range 192.0.2.200-192.0.2.220 overlaps"}},
		{name: "two Infras without a conflict", infras: []string{good, "dns: {serverIP: 192.0.2.12}"}},
		{name: "two Infras with one address", infras: []string{good, "dns: {serverIP: 192.0.2.3}"},
			want: []string{"a: AddressConflict: 192.0.2.3 is also an address of Infra clusters/b on the same VLAN", "b: AddressConflict: 192.0.2.3 is also an address of Infra clusters/a on the same VLAN"}},
		{name: "an address in the range of another Infra", infras: []string{good, "dns: {serverIP: 192.0.2.103}"},
			want: []string{"a: AddressConflict: the range 192.0.2.100-192.0.2.199 contains 192.0.2.103, an address of Infra clusters/b on the same VLAN", "b: AddressConflict: 192.0.2.103 lies in the range 192.0.2.100-192.0.2.199 of Infra clusters/a on the same VLAN"}},
		{name: "ranges of two Infras overlap", infras: []string{good, "dhcp: {serverIP: 192.0.2.14, rangeStart: 192.0.2.190, rangeEnd: 192.0.2.220}"},
			want: []string{"a: AddressConflict: the range 192.0.2.100-192.0.2.199 overlaps the range 192.0.2.190-192.0.2.220 of Infra clusters/b", "b: AddressConflict: the range 192.0.2.190-192.0.2.220 overlaps"}},
		{name: "the network address", infras: []string{"dns: {serverIP: 192.0.2.0}"},
			want: []string{"a: InvalidAddress: spec.infraComponents.dns: 192.0.2.0 is the network address of 192.0.2.0/24: use another address"}},
		{name: "the broadcast address", infras: []string{"proxy: {serverIP: 192.0.2.255, internalProxyService: 10.0.0.1}"},
			want: []string{"a: InvalidAddress: spec.infraComponents.proxy: 192.0.2.255 is the broadcast address of 192.0.2.0/24: use another address"}},
		{name: "the subnet-router anycast address", infras: []string{"dns: {instances: [{ip: 192.0.2.2, additionalIPs: ['2001:db8::']}]}"},
			want: []string{"a: InvalidAddress: spec.infraComponents.dns: 2001:db8:: is the subnet-router anycast address of 2001:db8::/64: use another address"}},
		{name: "a range over the network and broadcast addresses", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.0, rangeEnd: 192.0.2.255, exclude: [192.0.2.1-192.0.2.9]}"},
			want: []string{"a: InvalidRange: spec.infraComponents.dhcp: the range 192.0.2.0-192.0.2.255 contains 192.0.2.0, the network address of 192.0.2.0/24: exclude it", "a: InvalidRange: spec.infraComponents.dhcp: the range 192.0.2.0-192.0.2.255 contains 192.0.2.255, the broadcast address of 192.0.2.0/24: exclude it"}},
		{name: "a range over the network and broadcast addresses, which are excluded", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.0, rangeEnd: 192.0.2.255, exclude: [192.0.2.0-192.0.2.9, 192.0.2.255]}"}},
		{name: "a range over the gateway", infras: []string{"dhcp: {serverIP: 192.0.2.200, rangeStart: 192.0.2.1, rangeEnd: 192.0.2.9}"},
			want: []string{"a: AddressConflict: spec.infraComponents.dhcp: the range 192.0.2.1-192.0.2.9 contains 192.0.2.1, which is spec.networkConfig.gateway: exclude it"}},
		{name: "a range over apps addresses", infras: []string{good + "}\n  appsIngress: {enabled: true, hostedClusterRef: {name: demo}, metallb: {ipAddressPoolRange: '198.51.100.0/24, 192.0.2.190-192.0.2.209'}"},
			want: []string{"a: AddressConflict: spec.infraComponents.dhcp: the range 192.0.2.100-192.0.2.199 contains 192.0.2.190-192.0.2.199, which is spec.appsIngress.metallb.ipAddressPoolRange: exclude it"}},
		{name: "a range over apps addresses, which are excluded in two parts", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.199, exclude: [192.0.2.195-192.0.2.199, 192.0.2.190-192.0.2.194]}}\n  appsIngress: {enabled: true, hostedClusterRef: {name: demo}, metallb: {ipAddressPoolRange: 192.0.2.190-192.0.2.209}"}},
		{name: "a range over apps addresses, of which one is not excluded", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.199, exclude: [192.0.2.196-192.0.2.199, 192.0.2.190-192.0.2.194]}}\n  appsIngress: {enabled: true, hostedClusterRef: {name: demo}, metallb: {ipAddressPoolRange: 192.0.2.190-192.0.2.209}"},
			want: []string{"a: AddressConflict: spec.infraComponents.dhcp: the range 192.0.2.100-192.0.2.199 contains 192.0.2.190-192.0.2.199, which is spec.appsIngress.metallb.ipAddressPoolRange"}},
		{name: "disabled apps have no addresses", infras: []string{good + "}\n  appsIngress: {enabled: false, metallb: {ipAddressPoolRange: 192.0.2.190-192.0.2.209}"}},
		{name: "a range over a static apps address", infras: []string{good + "}\n  appsIngress: {enabled: true, hostedClusterRef: {name: demo}, source: Static, addresses: [192.0.2.150]"},
			want: []string{"a: AddressConflict: spec.infraComponents.dhcp: the range 192.0.2.100-192.0.2.199 contains 192.0.2.150, which is spec.appsIngress.addresses: exclude it"}},
		{name: "a static apps address that a component has", infras: []string{good + "}\n  appsIngress: {enabled: true, hostedClusterRef: {name: demo}, source: Static, addresses: [192.0.2.3]"},
			want: []string{"a: AddressConflict: spec.appsIngress.addresses: 192.0.2.3 is spec.infraComponents.proxy: use another address"}},
		{name: "a range over apps addresses of another Infra", infras: []string{
			"dns: {serverIP: 192.0.2.2}}\n  appsIngress: {enabled: true, hostedClusterRef: {name: demo}, metallb: {ipAddressPoolRange: 192.0.2.190-192.0.2.209}",
			"dhcp: {serverIP: 192.0.2.14, rangeStart: 192.0.2.200, rangeEnd: 192.0.2.220}"},
			want: []string{
				"a: AddressConflict: the apps addresses 192.0.2.190-192.0.2.209 overlap the range 192.0.2.200-192.0.2.220 of Infra clusters/b",
				"b: AddressConflict: the range 192.0.2.200-192.0.2.220 overlaps the apps addresses 192.0.2.190-192.0.2.209 of Infra clusters/a"}},
		{name: "an address in the apps subnet of another Infra", infras: []string{
			"dns: {serverIP: 192.0.2.2}}\n  appsIngress: {enabled: true, hostedClusterRef: {name: demo}, metallb: {ipAddressPoolRange: 192.0.2.0/24}", "dns: {serverIP: 192.0.2.12}"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var documents []string
			for i, components := range tc.infras {
				documents = append(documents, infraYAML(string(rune('a'+i)), components))
			}
			var got []string
			for _, p := range model.Build(readObjects(t, documents...), model.Options{}).Problems {
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

func TestUpstreamResolvers(t *testing.T) {
	const ownDNS = `
apiVersion: v1
kind: Service
metadata: {name: a-dns, namespace: clusters}
spec: {type: ClusterIP, clusterIP: 10.0.0.53, clusterIPs: [10.0.0.53], ports: [{port: 53}]}
`
	const remedy = "name a resolver that "
	for _, tc := range []struct {
		servers string
		want    []string
	}{
		{servers: "[203.0.113.53, 192.0.2.53, '203.0.113.54:5353', '[2001:db8:1::53]:53', 'tls://203.0.113.55', 'tls://203.0.113.56%dns.example.com']"},
		{servers: "[192.0.2.1]"}, // the gateway may be a resolver
		{servers: "[dns.example.com]", want: []string{`InvalidAddress: spec.networkConfig.dnsServers: "dns.example.com" is not an IP address: use an address such as`}},
		{servers: "[203.0.113.53, 192.0.2.2]", want: []string{"AddressConflict: spec.networkConfig.dnsServers: 192.0.2.2 is spec.infraComponents.dns: " + remedy}},
		{servers: "['192.0.2.2:53']", want: []string{"AddressConflict: spec.networkConfig.dnsServers: 192.0.2.2 is spec.infraComponents.dns: " + remedy}},
		{servers: "[192.0.2.3]", want: []string{"AddressConflict: spec.networkConfig.dnsServers: 192.0.2.3 is spec.infraComponents.proxy: " + remedy}},
		{servers: "[10.0.0.53]", want: []string{"AddressConflict: spec.networkConfig.dnsServers: 10.0.0.53 is the cluster IP of Service clusters/a-dns, our own DNS: " + remedy}},
		{servers: "[192.0.2.150]", want: []string{"AddressConflict: spec.infraComponents.dhcp: the range 192.0.2.100-192.0.2.199 contains 192.0.2.150, which is spec.networkConfig.dnsServers: exclude it"}},
	} {
		t.Run(tc.servers, func(t *testing.T) {
			infra := infraYAML("a", "dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.199}, dns: {serverIP: 192.0.2.2}, proxy: {serverIP: 192.0.2.3, internalProxyService: 10.0.0.1}")
			infra = strings.Replace(infra, "networkConfig: {", "networkConfig: {dnsServers: "+tc.servers+", ", 1)
			expectAddressProblems(t, "Infra clusters/a: ", tc.want, ownDNS, infra)
		})
	}
}

// withProxies are options that include ProxyServers.
var withProxies = model.Options{Proxies: true}

// expectAddressProblems compares the address problems of one object, whose problems begin with object, with
// the prefixes in want.
func expectAddressProblems(t *testing.T, object string, want []string, documents ...string) {
	t.Helper()
	var got []string
	for _, p := range model.Build(readObjectsFor(t, withProxies, documents...), withProxies).Problems {
		text, ours := strings.CutPrefix(p.String(), object)
		if ours && slices.Contains([]model.Reason{model.ReasonInvalidAddress, model.ReasonInvalidRange, model.ReasonAddressConflict}, p.Reason) {
			got = append(got, text)
		}
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("the problems are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// standaloneProxy returns a ProxyServer without an infraRef.
func standaloneProxy(name, address string) string {
	return fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: %s, namespace: clusters}
spec:
  networkConfig: {serverIP: %s, networkAttachmentName: vlan, gateway: 192.0.2.1}
  backends: [{name: registry, hostname: registry.example.com, port: 443, targetService: registry, targetPort: 5000, targetNamespace: registry}]
`, name, address)
}

func TestAddressesOfProxyServers(t *testing.T) {
	infra := infraYAML("a", "dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.199}, dns: {serverIP: 192.0.2.2}, proxy: {serverIP: 192.0.2.3, internalProxyService: 10.0.0.1}")
	for _, tc := range []struct {
		name, address string
		want          []string // problems of the ProxyServer
		others        string   // a problem of another object, empty for none
	}{
		{name: "a free address", address: "192.0.2.9/24"},
		{name: "the address of an Infra", address: "192.0.2.2/24",
			want:   []string{"AddressConflict: 192.0.2.2 is also an address of Infra clusters/a on the same VLAN"},
			others: "Infra clusters/a: AddressConflict: 192.0.2.2 is also an address of ProxyServer clusters/lone on the same VLAN"},
		{name: "the range of an Infra", address: "192.0.2.102/24",
			want:   []string{"AddressConflict: 192.0.2.102 lies in the range 192.0.2.100-192.0.2.199 of Infra clusters/a on the same VLAN"},
			others: "Infra clusters/a: AddressConflict: the range 192.0.2.100-192.0.2.199 contains 192.0.2.102, an address of ProxyServer clusters/lone on the same VLAN"},
		{name: "the address of another ProxyServer", address: "192.0.2.8/24",
			want:   []string{"AddressConflict: 192.0.2.8 is also an address of ProxyServer clusters/other on the same VLAN"},
			others: "ProxyServer clusters/other: AddressConflict: 192.0.2.8 is also an address of ProxyServer clusters/lone on the same VLAN"},
		{name: "its gateway", address: "192.0.2.1/24",
			want: []string{"AddressConflict: 192.0.2.1 is also the gateway of Infra clusters/a on the same VLAN", "AddressConflict: 192.0.2.1 is also the gateway of ProxyServer clusters/other on the same VLAN", "AddressConflict: spec.networkConfig.gateway and spec.networkConfig.serverIP: both are 192.0.2.1"}},
		{name: "the network address", address: "192.0.2.0/24", want: []string{"InvalidAddress: spec.networkConfig.serverIP: 192.0.2.0 is the network address of 192.0.2.0/24: use another address"}},
		{name: "the broadcast address", address: "192.0.2.255/24", want: []string{"InvalidAddress: spec.networkConfig.serverIP: 192.0.2.255 is the broadcast address of 192.0.2.0/24: use another address"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			documents := []string{infra, standaloneProxy("lone", tc.address), standaloneProxy("other", "192.0.2.8/24")}
			expectAddressProblems(t, "ProxyServer clusters/lone: ", tc.want, documents...)
			all := model.Build(readObjectsFor(t, withProxies, documents...), withProxies).Problems
			if tc.others != "" && !slices.ContainsFunc(all, func(p model.Problem) bool { return p.String() == tc.others }) {
				t.Errorf("the problems are\n%v\nwant one to be %s", all, tc.others)
			}
		})
	}
}

// TestNetworksTooLargeForAVLAN checks that networks that include pods are not used as VLANs.
func TestNetworksTooLargeForAVLAN(t *testing.T) {
	for _, tc := range []struct{ cidr, want string }{
		{"0.0.0.0/0", "[2001:db8::/64]"},
		{"128.0.0.0/1", "[2001:db8::/64]"},
		{"::/0", "[2001:db8::/64]"},
		{"2000::/3", "[2001:db8::/64]"},
		{"10.0.0.0/8", "[10.0.0.0/8 2001:db8::/64]"},
		{"fd00::/20", "[fd00::/20 2001:db8::/64]"},
	} {
		s := model.Build(readObjects(t, strings.Replace(infraYAML("a", ""), "192.0.2.0/24", `"`+tc.cidr+`"`, 1)), model.Options{})
		if got := fmt.Sprint(s.Infras[0].CIDRs); got != tc.want {
			t.Errorf("%s: the networks are %s, want %s", tc.cidr, got, tc.want)
		}
		reported := slices.ContainsFunc(s.Problems, func(p model.Problem) bool {
			return p.Reason == model.ReasonInvalidAddress && strings.HasPrefix(p.Message, "spec.networkConfig.cidr: "+tc.cidr)
		})
		if rejected := !strings.Contains(tc.want, tc.cidr); reported != rejected {
			t.Errorf("%s: the problems are %v", tc.cidr, s.Problems)
		}
	}
}

func TestStaticAddressesThatNoHostCanHave(t *testing.T) {
	s := model.Build(readObjects(t, demoCluster, demoInfra("{enabled: true, source: Static, addresses: [192.0.2.0, 192.0.2.100, 192.0.2.255]}", "")), model.Options{Apps: &model.AppsOptions{}})
	if got := fmt.Sprint(s.Clusters[0].Apps.Addresses); got != "[192.0.2.100]" {
		t.Errorf("the addresses are %s: %v", got, s.Problems)
	}
}

func TestInfrasOfOneNetworkWithOtherSubnets(t *testing.T) {
	with := func(name, cidr, additional string) string {
		return strings.NewReplacer("192.0.2.0/24", `"`+cidr+`"`, `["2001:db8::/64"]`, additional).Replace(infraYAML(name, ""))
	}
	for _, tc := range []struct {
		name   string
		infras []string
		want   string // the Infras with a problem, and the family
	}{
		{"one subnet", []string{with("a", "192.0.2.0/24", "[]"), with("b", "192.0.2.0/24", "[]")}, ""},
		{"a part of the other's subnet", []string{with("a", "192.0.2.0/24", "[]"), with("b", "192.0.2.0/25", "[]")}, ""},
		{"one in common", []string{with("a", "192.0.2.0/24", "[198.51.100.0/24]"), with("b", "198.51.100.0/24", "[]")}, ""},
		{"a family that only one has", []string{with("a", "192.0.2.0/24", "['2001:db8::/64']"), with("b", "192.0.2.0/24", "[]")}, ""},
		{"a different family each", []string{with("a", "192.0.2.0/24", "[]"), with("b", "2001:db8::/64", "[]")}, ""},
		{"two subnets", []string{with("a", "192.0.2.0/24", "[]"), with("b", "198.51.100.0/24", "[]")}, "a IPv4, b IPv4"},
		{"two of IPv6", []string{with("a", "192.0.2.0/24", "['2001:db8::/64']"), with("b", "192.0.2.0/24", "['2001:db8:1::/64']")}, "a IPv6, b IPv6"},
		{"another network", []string{with("a", "192.0.2.0/24", "[]"), strings.Replace(with("b", "198.51.100.0/24", "[]"), "vlan}", "vlan2}", 1)}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, p := range model.Build(readObjects(t, tc.infras...), model.Options{}).Problems {
				if p.Reason == model.ReasonVLANMismatch {
					_, rest, _ := strings.Cut(p.Message, "but different ")
					family, _, _ := strings.Cut(rest, " ")
					got = append(got, p.Object.Name+" "+family)
				}
			}
			if got := strings.Join(got, ", "); got != tc.want {
				t.Errorf("problems of %q, want %q", got, tc.want)
			}
		})
	}
}
