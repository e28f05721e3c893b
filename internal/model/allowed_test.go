package model_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
)

func TestAllowedRanges(t *testing.T) {
	pool := func(ranges string) []string {
		return []string{demoInfra("{enabled: true, metallb: {ipAddressPoolRange: "+ranges+"}}", "")}
	}
	allow := func(list ...string) model.AppsOptions {
		var o model.AppsOptions
		for _, text := range list {
			o.Allow = append(o.Allow, netip.MustParsePrefix(text))
		}
		return o
	}
	vlanOnly := []string{demoInfra("{enabled: true}", "")}
	runApps(t, []appsCase{
		{name: "the VLAN's networks of both families", objects: vlanOnly, hostedService: hostedService("192.0.2.254", "2001:db8::ffff", "192.0.3.0", "2001:db8:0:1::")},
		{name: "the networks of all Infras of the cluster", objects: []string{
			vlanOnly[0], strings.NewReplacer("name: demo, namespace", "name: demo2, namespace", "192.0.2.", "198.51.100.", "2001:db8::/64", "2001:db8:2::/64", ": vlan", ": vlan2").Replace(demoInfra("{}", "")),
		}, hostedService: hostedService("192.0.2.100", "198.51.100.100")},
		{name: "a range", objects: pool("192.0.2.100-192.0.2.109"), hostedService: hostedService("192.0.2.99", "192.0.2.100", "192.0.2.109", "192.0.2.110")},
		{name: "several ranges in one string", objects: pool(`"198.51.100.0/28, 2001:db8:5::/64"`), hostedService: hostedService("198.51.100.9", "2001:db8:5::9")},
		{name: "several ranges in a list", objects: pool(`[198.51.100.7, "2001:db8:5::7-2001:db8:5::9"]`), hostedService: hostedService("198.51.100.7", "2001:db8:5::8")},
		{name: "a range replaces the VLAN's networks", objects: pool("198.51.100.0/24"), hostedService: hostedService("192.0.2.100")},
		{name: "a range of one family", objects: pool("192.0.2.64/26"), hostedService: hostedService("192.0.2.100", "2001:db8::100")},
		{name: "an invalid range and a valid one", objects: pool("[192.0.2.9-192.0.2.1, 192.0.2.64/26]"), hostedService: hostedService("192.0.2.100")},
		{name: "an invalid range allows nothing", objects: pool("most of them"), hostedService: hostedService("192.0.2.100")},
		{name: "a range of another type", objects: pool("{first: 192.0.2.1}"), hostedService: hostedService("192.0.2.100")},
		{name: "an empty range allows nothing", objects: pool("[]"), hostedService: hostedService("192.0.2.100")},
		{name: "without a range the VLAN's networks are allowed", objects: pool("null"), hostedService: hostedService("192.0.2.100")},

		{name: "networks in the Corefile replace the range", objects: pool("192.0.2.64/26"), options: allow("198.51.100.0/24", "2001:db8:5::/64"),
			hostedService: hostedService("192.0.2.100", "198.51.100.9", "2001:db8:5::9")},
		{name: "networks in the Corefile replace an invalid range", objects: pool("most of them"), options: allow("198.51.100.0/24"),
			hostedService: hostedService("198.51.100.9")},
		{name: "without an Infra nothing is allowed", hostedService: hostedService("192.0.2.100"), options: model.AppsOptions{Sources: []model.AppsSource{model.AppsHosted}}},
		{name: "the VLAN of an Infra with disabled apps is allowed", objects: []string{demoInfra("{enabled: false, metallb: {ipAddressPoolRange: 192.0.2.1}}", "")},
			hostedService: hostedService("192.0.2.100"), options: model.AppsOptions{Sources: []model.AppsSource{model.AppsHosted}}},
		{name: "invalid addresses", objects: vlanOnly, hostedService: hostedService("evil.example.org", "192.0.2.100/24", " 192.0.2.100")},
	})
}

// TestAddressesThatAreNeverAllowed checks addresses that are rejected even if the allowed ranges contain all
// addresses. Otherwise the owner of a hosted cluster could direct clients, or the proxy, to hosts that the
// owner cannot reach.
func TestAddressesThatAreNeverAllowed(t *testing.T) {
	everywhere := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	sameVLAN := strings.NewReplacer("name: demo, namespace", "name: same-vlan, namespace", "{name: demo}", "{name: none}",
		"serverIP: 192.0.2.4", "serverIP: 192.0.2.14, instances: [{ip: 192.0.2.15, additionalIPs: ['2001:db8::15']}]",
		"serverIP: 192.0.2.2/24", "serverIP: 192.0.2.12", "serverIP: 192.0.2.3/24", "serverIP: 192.0.2.13, additionalServerIPs: ['2001:db8::13'], instances: [{ip: 192.0.2.16}]").
		Replace(demoInfra("{}", ""))
	otherVLAN := strings.NewReplacer("name: demo, namespace", "name: other-vlan, namespace", "{name: demo}", "{name: none}",
		"networkAttachmentDefinition: vlan", "networkAttachmentDefinition: vlan2", "192.0.2.3/24", "192.0.2.33").Replace(demoInfra("{}", ""))
	disabledDHCP := strings.NewReplacer("name: demo, namespace", "name: idle, namespace", "{name: demo}", "{name: none}",
		"serverIP: 192.0.2.4", "enabled: false, serverIP: 192.0.2.44").Replace(demoInfra("{}", ""))
	tests := []struct{ name, address, why string }{
		{"unspecified", "0.0.0.0", "not an address that clients can reach"},
		{"unspecified IPv6", "::", "not an address that clients can reach"},
		{"loopback", "127.0.0.1", "not an address that clients can reach"},
		{"another loopback address", "127.96.0.77", "not an address that clients can reach"},
		{"loopback IPv6", "::1", "not an address that clients can reach"},
		{"loopback as IPv4-mapped IPv6", "::ffff:127.0.0.1", "not an address that clients can reach"},
		{"link-local, such as cloud metadata services", "169.254.169.254", "not an address that clients can reach"},
		{"link-local IPv6", "fe80::1", "not an address that clients can reach"},
		{"link-local with a zone", "fe80::1%eth0", "not an address that clients can reach"},
		{"global address with a zone", "2001:db8::100%eth0", "not an address that clients can reach"},
		{"multicast", "224.0.0.251", "not an address that clients can reach"},
		{"multicast IPv6", "ff02::fb", "not an address that clients can reach"},
		{"broadcast", "255.255.255.255", "not an address that clients can reach"},
		{"the VLAN's network address", "192.0.2.0", "is the network address of 192.0.2.0/24"},
		{"the VLAN's broadcast address", "192.0.2.255", "is the broadcast address of 192.0.2.0/24"},
		{"the VLAN's broadcast address as IPv4-mapped IPv6", "::ffff:192.0.2.255", "is the broadcast address"},
		{"the VLAN's subnet-router anycast address", "2001:db8::", "is the subnet-router anycast address of 2001:db8::/64"},
		{"the last address of an IPv6 network", "2001:db8::ffff:ffff:ffff:ffff", ""},
		{"the broadcast address of another network", "198.51.100.255", ""},
		{"the gateway", "192.0.2.1", "belongs to the VLAN's gateway or to a DHCP, DNS or proxy server on the VLAN"},
		{"our DNS server", "192.0.2.2", "belongs to the VLAN's gateway or to a DHCP, DNS or proxy server on the VLAN"},
		{"our proxy, as its own upstream", "192.0.2.3", "belongs to the VLAN's gateway or to a DHCP, DNS or proxy server on the VLAN"},
		{"our proxy as IPv4-mapped IPv6", "::ffff:192.0.2.3", "belongs to the VLAN's gateway or to a DHCP, DNS or proxy server on the VLAN"},
		{"our DHCP server", "192.0.2.4", "belongs to the VLAN's gateway or to a DHCP, DNS or proxy server on the VLAN"},
		{"another cluster's DNS server on the VLAN", "192.0.2.12", "belongs to the VLAN's gateway or to a DHCP, DNS or proxy server on the VLAN"},
		{"the floating address of another cluster's proxy on the VLAN", "2001:db8::13", "belongs to the VLAN's gateway or to a DHCP, DNS or proxy server on the VLAN"},
		{"another cluster's proxy on the VLAN", "192.0.2.16", "belongs to the VLAN's gateway or to a DHCP, DNS or proxy server on the VLAN"},
		{"another cluster's DHCP replica on the VLAN", "2001:db8::15", "belongs to the VLAN's gateway or to a DHCP, DNS or proxy server on the VLAN"},
		{"a proxy's address on another VLAN", "192.0.2.33", ""},
		{"the address of a disabled component", "192.0.2.44", ""},
		{"any other address", "198.51.100.1", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := appsCase{objects: []string{demoInfra("{enabled: true}", ""), sameVLAN, otherVLAN, disabledDHCP}, hostedService: hostedService(test.address)}
			s := model.Build(c.input(t), model.Options{Apps: &model.AppsOptions{Allow: everywhere}})
			if got := fmt.Sprint(s.Clusters[0].Apps.Addresses); (got == "[]") != (test.why != "") {
				t.Errorf("got %s", got)
			}
			message := ""
			for _, p := range s.Problems {
				if p.Reason == model.ReasonAddressNotAllowed {
					message = p.Message
				}
			}
			if !strings.Contains(message, test.why) || (message == "") != (test.why == "") {
				t.Errorf("problem is %q, want %q", message, test.why)
			}
		})
	}
}
