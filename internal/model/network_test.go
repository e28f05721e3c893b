package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/golden"
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
	var b strings.Builder
	const good = "dhcp: {serverIP: 192.0.2.4/24, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.199}, dns: {serverIP: 192.0.2.2}, proxy: {serverIP: 192.0.2.3, internalProxyService: 10.0.0.1}"
	for _, tc := range []struct {
		name   string
		infras []string
	}{
		{name: "valid", infras: []string{good}},
		{name: "an address outside", infras: []string{"dns: {serverIP: 192.0.3.2}"}},
		{name: "an address of the other family", infras: []string{"dns: {instances: [{ip: 192.0.2.2, additionalIPs: ['2001:db8::2']}]}"}},
		{name: "one address for two components", infras: []string{"dns: {serverIP: 192.0.2.3}, proxy: {serverIP: 192.0.2.3, internalProxyService: 10.0.0.1}"}},
		{name: "the gateway's address", infras: []string{"dns: {serverIP: 192.0.2.1}"}},
		{name: "a disabled component has no address", infras: []string{"dns: {serverIP: 192.0.2.1, enabled: false}"}},
		{name: "a floating address beside those of the instances",
			infras: []string{"proxy: {serverIP: 192.0.2.3, internalProxyService: 10.0.0.1, instances: [{ip: 192.0.2.5}, {ip: 192.0.2.6}]}"}},
		{name: "a floating address that an instance has", infras: []string{"proxy: {serverIP: 192.0.2.3, internalProxyService: 10.0.0.1, instances: [{ip: 192.0.2.5}, {ip: 192.0.2.3}]}"}},
		{name: "no range", infras: []string{"dhcp: {serverIP: 192.0.2.4}"}},
		{name: "a range without an end", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100}"}},
		{name: "a range that ends before it starts", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.10}"}},
		{name: "a range that leaves the network", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.3.10}"}},
		{name: "addresses of DHCP in another subnet", infras: []string{"dhcp: {serverIP: '2001:db8::4', rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, ranges: [{start: '2001:db8::10', end: '2001:db8::1f'}], exclude: ['2001:db8::1f']}"}},
		{name: "a range over a service", infras: []string{"dhcp: {serverIP: 192.0.2.104, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110}"}},
		{name: "a range over a service, which is excluded", infras: []string{"dhcp: {serverIP: 192.0.2.104, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, exclude: [192.0.2.104-192.0.2.105]}"}},
		{name: "overlapping ranges", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, ranges: [{start: 192.0.2.110, end: 192.0.2.120}]}"}},
		{name: "the network's and the broadcast address", infras: []string{"dns: {serverIP: 192.0.2.255}, proxy: {serverIP: 192.0.2.0, internalProxyService: 10.0.0.1}"}},
		{name: "relay agents", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, relays: [198.51.100.0/24, '2001:db8::/64']}"}},
		{name: "hosts of DHCP", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, hosts: [" +
			"{mac: '52:54:00:00:00:01', address: 192.0.2.20}, {mac: '52:54:00:00:00:02', address: 192.0.2.100}, {mac: '52:54:00:00:00:03'}, {mac: '52:54:00:00:00:04'}]}"}},
		{name: "hosts of DHCP with addresses that they cannot have", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, hosts: [" +
			"{mac: '52:54:00:00:00:01', address: 192.0.3.20}, {mac: '52:54:00:00:00:02', address: 192.0.2.1}, {mac: '52:54:00:00:00:03', address: 192.0.2.20}, " +
			"{mac: '52:54:00:00:00:04', address: 192.0.2.20}, {mac: '52:54:00:00:00:05', address: 192.0.2.255}, {mac: '52:54:00:00:00:06', address: '2001:db8::9'}]}"}},
		{name: "the address of a host in the range of another Infra", infras: []string{
			"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.110, hosts: [{mac: '52:54:00:00:00:01', address: 192.0.2.205}]}",
			"dhcp: {serverIP: 192.0.2.14, rangeStart: 192.0.2.200, rangeEnd: 192.0.2.220}"}},
		{name: "two Infras without a conflict", infras: []string{good, "dns: {serverIP: 192.0.2.12}"}},
		{name: "two Infras with one address", infras: []string{good, "dns: {serverIP: 192.0.2.3}"}},
		{name: "an address in the range of another Infra", infras: []string{good, "dns: {serverIP: 192.0.2.103}"}},
		{name: "ranges of two Infras overlap", infras: []string{good, "dhcp: {serverIP: 192.0.2.14, rangeStart: 192.0.2.190, rangeEnd: 192.0.2.220}"}},
		{name: "the subnet-router anycast address", infras: []string{"dns: {instances: [{ip: 192.0.2.2, additionalIPs: ['2001:db8::']}]}"}},
		{name: "a range over the network and broadcast addresses", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.0, rangeEnd: 192.0.2.255, exclude: [192.0.2.1-192.0.2.9]}"}},
		{name: "a range over the network and broadcast addresses, which are excluded", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.0, rangeEnd: 192.0.2.255, exclude: [192.0.2.0-192.0.2.9, 192.0.2.255]}"}},
		{name: "a range over the gateway", infras: []string{"dhcp: {serverIP: 192.0.2.200, rangeStart: 192.0.2.1, rangeEnd: 192.0.2.9}"}},
		{name: "a range over apps addresses", infras: []string{good + "}\n  appsIngress: {enabled: true, hostedClusterRef: {name: demo}, metallb: {ipAddressPoolRange: '198.51.100.0/24, 192.0.2.190-192.0.2.209'}"}},
		{name: "a range over apps addresses, which are excluded in two parts", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.199, exclude: [192.0.2.195-192.0.2.199, 192.0.2.190-192.0.2.194]}}\n  appsIngress: {enabled: true, hostedClusterRef: {name: demo}, metallb: {ipAddressPoolRange: 192.0.2.190-192.0.2.209}"}},
		{name: "a range over apps addresses, of which one is not excluded", infras: []string{"dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.199, exclude: [192.0.2.196-192.0.2.199, 192.0.2.190-192.0.2.194]}}\n  appsIngress: {enabled: true, hostedClusterRef: {name: demo}, metallb: {ipAddressPoolRange: 192.0.2.190-192.0.2.209}"}},
		{name: "disabled apps have no addresses", infras: []string{good + "}\n  appsIngress: {enabled: false, metallb: {ipAddressPoolRange: 192.0.2.190-192.0.2.209}"}},
		{name: "a range over a static apps address", infras: []string{good + "}\n  appsIngress: {enabled: true, hostedClusterRef: {name: demo}, source: Static, addresses: [192.0.2.150]"}},
		{name: "a static apps address that a component has", infras: []string{good + "}\n  appsIngress: {enabled: true, hostedClusterRef: {name: demo}, source: Static, addresses: [192.0.2.3]"}},
		{name: "a range over apps addresses of another Infra", infras: []string{
			"dns: {serverIP: 192.0.2.2}}\n  appsIngress: {enabled: true, hostedClusterRef: {name: demo}, metallb: {ipAddressPoolRange: 192.0.2.190-192.0.2.209}",
			"dhcp: {serverIP: 192.0.2.14, rangeStart: 192.0.2.200, rangeEnd: 192.0.2.220}"}},
		{name: "an address in the apps subnet of another Infra", infras: []string{
			"dns: {serverIP: 192.0.2.2}}\n  appsIngress: {enabled: true, hostedClusterRef: {name: demo}, metallb: {ipAddressPoolRange: 192.0.2.0/24}", "dns: {serverIP: 192.0.2.12}"}},
	} {
		var documents []string
		for i, components := range tc.infras {
			documents = append(documents, infraYAML(string(rune('a'+i)), components))
		}
		fmt.Fprintf(&b, "%s\n", tc.name)
		for _, p := range addressProblems(t, model.Options{}, documents...) {
			fmt.Fprintf(&b, "\t%s\n", p)
		}
	}
	golden.Check(t, "testdata/"+t.Name()+".golden", b.String())
}

// addressProblems returns the problems with addresses and ranges.
func addressProblems(t *testing.T, options model.Options, documents ...string) []string {
	t.Helper()
	var list []string
	for _, p := range model.Build(readObjectsFor(t, options, documents...), options).Problems {
		if slices.Contains([]model.Reason{model.ReasonInvalidAddress, model.ReasonInvalidRange, model.ReasonAddressConflict}, p.Reason) {
			list = append(list, p.String())
		}
	}
	return list
}

func TestUpstreamResolvers(t *testing.T) {
	const ownDNS = `
apiVersion: v1
kind: Service
metadata: {name: a-dns, namespace: clusters}
spec: {type: ClusterIP, clusterIP: 10.0.0.53, clusterIPs: [10.0.0.53], ports: [{port: 53}]}
`
	var b strings.Builder
	for _, servers := range []string{
		"[203.0.113.53, 192.0.2.53, '203.0.113.54:5353', '[2001:db8:1::53]:53', 'tls://203.0.113.55', 'tls://203.0.113.56%dns.example.com', 'tls://203.0.113.57:8853%dns.example.com']",
		"[192.0.2.1]", // the gateway may be a resolver
		"[dns.example.com]", "[203.0.113.53, 192.0.2.2]", "['192.0.2.2:53']", "[192.0.2.3]", "[10.0.0.53]", "[192.0.2.150]",
	} {
		infra := infraYAML("a", "dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.199}, dns: {serverIP: 192.0.2.2}, proxy: {serverIP: 192.0.2.3, internalProxyService: 10.0.0.1}")
		infra = strings.Replace(infra, "networkConfig: {", "networkConfig: {dnsServers: "+servers+", ", 1)
		fmt.Fprintf(&b, "%s\n", servers)
		for _, p := range addressProblems(t, withProxies, ownDNS, infra) {
			fmt.Fprintf(&b, "\t%s\n", p)
		}
	}
	golden.Check(t, "testdata/"+t.Name()+".golden", b.String())
}

// withProxies are options that include ProxyServers.
var withProxies = model.Options{Proxies: true}

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
	var b strings.Builder
	for _, tc := range []struct{ name, address string }{
		{"a free address", "192.0.2.9/24"}, {"the address of an Infra", "192.0.2.2/24"}, {"the range of an Infra", "192.0.2.102/24"},
		{"the address of another ProxyServer", "192.0.2.8/24"}, {"its gateway", "192.0.2.1/24"},
		{"the network address", "192.0.2.0/24"}, {"the broadcast address", "192.0.2.255/24"},
	} {
		fmt.Fprintf(&b, "%s\n", tc.name)
		for _, p := range addressProblems(t, withProxies, infra, standaloneProxy("lone", tc.address), standaloneProxy("other", "192.0.2.8/24")) {
			fmt.Fprintf(&b, "\t%s\n", p)
		}
	}
	golden.Check(t, "testdata/"+t.Name()+".golden", b.String())
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
