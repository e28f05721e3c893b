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
	invalid := func(text string) string {
		return "Infra clusters/demo: InvalidAddress: spec.appsIngress.metallb.ipAddressPoolRange" + text
	}
	const nothing = notAllowed + `Service openshift-ingress/demo-apps in HostedCluster clusters/demo has the address "192.0.2.100", ` +
		"which is not in the allowed ranges (there are none: "
	vlan := []string{demoInfra("{enabled: true}", "")}
	const notInVLAN = `", which is not in the allowed ranges 192.0.2.0-192.0.2.255, 2001:db8::-2001:db8::ffff:ffff:ffff:ffff: not used`
	runApps(t, []appsCase{
		{name: "the VLAN's networks, of both families", objects: vlan, guest: guest("192.0.2.254", "2001:db8::ffff", "192.0.3.0", "2001:db8:0:1::"),
			want: "[192.0.2.254 2001:db8::ffff] by hosted", says: []string{
				notAllowed + `Service openshift-ingress/demo-apps in HostedCluster clusters/demo has the address "192.0.3.0` + notInVLAN,
				notAllowed + `Service openshift-ingress/demo-apps in HostedCluster clusters/demo has the address "2001:db8:0:1::` + notInVLAN,
			}},
		{name: "the networks of every Infra of the cluster", objects: []string{
			vlan[0], strings.NewReplacer("name: demo, namespace", "name: demo2, namespace", "192.0.2.", "198.51.100.", "2001:db8::/64", "2001:db8:2::/64", ": vlan", ": vlan2").Replace(demoInfra("{}", "")),
		}, guest: guest("192.0.2.100", "198.51.100.100"), want: "[192.0.2.100 198.51.100.100] by hosted"},
		{name: "a range", objects: pool("192.0.2.100-192.0.2.109"), guest: guest("192.0.2.99", "192.0.2.100", "192.0.2.109", "192.0.2.110"),
			want: "[192.0.2.100 192.0.2.109] by hosted", says: []string{notAllowed, notAllowed}},
		{name: "several in one text", objects: pool(`"198.51.100.0/28, 2001:db8:5::/64"`), guest: guest("198.51.100.9", "2001:db8:5::9"),
			want: "[198.51.100.9 2001:db8:5::9] by hosted"},
		{name: "several in a list", objects: pool(`[198.51.100.7, "2001:db8:5::7-2001:db8:5::9"]`), guest: guest("198.51.100.7", "2001:db8:5::8"),
			want: "[198.51.100.7 2001:db8:5::8] by hosted"},
		{name: "a range takes the VLAN's place", objects: pool("198.51.100.0/24"), guest: guest("192.0.2.100"), want: "[]", says: []string{notAllowed}},
		{name: "a range of one family", objects: pool("192.0.2.64/26"), guest: guest("192.0.2.100", "2001:db8::100"),
			want: "[192.0.2.100] by hosted", says: []string{notAllowed}},
		{name: "a range that cannot be read, beside one that can", objects: pool("[192.0.2.9-192.0.2.1, 192.0.2.64/26]"), guest: guest("192.0.2.100"),
			want: "[192.0.2.100] by hosted", says: []string{invalid(`: range "192.0.2.9-192.0.2.1" ends before it starts`)}},
		{name: "a range that cannot be read allows nothing", objects: pool("most of them"), guest: guest("192.0.2.100"),
			want: "[]", says: []string{nothing, invalid(": ")}},
		{name: "a range of another type", objects: pool("{first: 192.0.2.1}"), guest: guest("192.0.2.100"),
			want: "[]", says: []string{nothing, invalid(" must be a string or an array of strings")}},
		{name: "an empty range allows nothing", objects: pool("[]"), guest: guest("192.0.2.100"), want: "[]", says: []string{nothing}},
		{name: "no range is the VLAN's", objects: pool("null"), guest: guest("192.0.2.100"), want: "[192.0.2.100] by hosted"},

		{name: "the Corefile's take the place of the range", objects: pool("192.0.2.64/26"), options: allow("198.51.100.0/24", "2001:db8:5::/64"),
			guest: guest("192.0.2.100", "198.51.100.9", "2001:db8:5::9"), want: "[198.51.100.9 2001:db8:5::9] by hosted", says: []string{notAllowed}},
		{name: "the Corefile's hide a range that cannot be read", objects: pool("most of them"), options: allow("198.51.100.0/24"),
			guest: guest("198.51.100.9"), want: "[198.51.100.9] by hosted"},
		{name: "without an Infra there is no VLAN", guest: guest("192.0.2.100"), options: model.AppsOptions{Sources: []model.AppsSource{model.AppsHosted}},
			want: "[]", says: []string{"HostedCluster clusters/demo: AddressNotAllowed: "}},
		{name: "an Infra that does not ask has a VLAN all the same", objects: []string{demoInfra("{enabled: false, metallb: {ipAddressPoolRange: 192.0.2.1}}", "")},
			guest: guest("192.0.2.100"), options: model.AppsOptions{Sources: []model.AppsSource{model.AppsHosted}}, want: "[192.0.2.100] by hosted"},
		{name: "what is no address", objects: vlan, guest: guest("evil.example.org", "192.0.2.100/24", " 192.0.2.100"), want: "[]",
			says: []string{notAllowed, notAllowed, notAllowed}},
	})
}

// Whoever owns a hosted cluster could otherwise send clients, or the proxy itself,
// where he cannot go himself.
func TestAddressesThatAreNeverAllowed(t *testing.T) {
	everywhere := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	neighbour := strings.NewReplacer("name: demo, namespace", "name: neighbour, namespace", "{name: demo}", "{name: none}",
		"serverIP: 192.0.2.4", "serverIP: 192.0.2.14, instances: [{ip: 192.0.2.15, additionalIPs: ['2001:db8::15']}]",
		"serverIP: 192.0.2.2/24", "serverIP: 192.0.2.12", "serverIP: 192.0.2.3/24", "serverIP: 192.0.2.13, additionalServerIPs: ['2001:db8::13'], instances: [{ip: 192.0.2.16}]").
		Replace(demoInfra("{}", ""))
	elsewhere := strings.NewReplacer("name: demo, namespace", "name: elsewhere, namespace", "{name: demo}", "{name: none}",
		"networkAttachmentDefinition: vlan", "networkAttachmentDefinition: vlan2", "192.0.2.3/24", "192.0.2.33").Replace(demoInfra("{}", ""))
	switchedOff := strings.NewReplacer("name: demo, namespace", "name: idle, namespace", "{name: demo}", "{name: none}",
		"serverIP: 192.0.2.4", "enabled: false, serverIP: 192.0.2.44").Replace(demoInfra("{}", ""))
	tests := []struct{ name, address, why string }{
		{"unspecified", "0.0.0.0", "no address that a client can reach"},
		{"unspecified IPv6", "::", "no address that a client can reach"},
		{"loopback", "127.0.0.1", "no address that a client can reach"},
		{"all of the loopback network", "127.96.0.77", "no address that a client can reach"},
		{"loopback IPv6", "::1", "no address that a client can reach"},
		{"loopback written as IPv6", "::ffff:127.0.0.1", "no address that a client can reach"},
		{"link-local, where clouds keep secrets", "169.254.169.254", "no address that a client can reach"},
		{"link-local IPv6", "fe80::1", "no address that a client can reach"},
		{"with a zone", "fe80::1%eth0", "no address that a client can reach"},
		{"an address that needs none, with a zone", "2001:db8::100%eth0", "no address that a client can reach"},
		{"multicast", "224.0.0.251", "no address that a client can reach"},
		{"multicast IPv6", "ff02::fb", "no address that a client can reach"},
		{"broadcast", "255.255.255.255", "no address that a client can reach"},
		{"the VLAN's network address", "192.0.2.0", "is the network address of 192.0.2.0/24"},
		{"the VLAN's broadcast address", "192.0.2.255", "is the broadcast address of 192.0.2.0/24"},
		{"the VLAN's broadcast address written as IPv6", "::ffff:192.0.2.255", "is the broadcast address"},
		{"the address of all routers on the VLAN", "2001:db8::", "is the subnet-router anycast address of 2001:db8::/64"},
		{"the last address of an IPv6 network", "2001:db8::ffff:ffff:ffff:ffff", ""},
		{"an end of another network", "198.51.100.255", ""},
		{"the gateway", "192.0.2.1", "belongs to the VLAN's gateway or to a service of ours"},
		{"our DNS server", "192.0.2.2", "belongs to the VLAN's gateway or to a service of ours"},
		{"our proxy, which would be its own upstream", "192.0.2.3", "belongs to the VLAN's gateway or to a service of ours"},
		{"our proxy written as IPv6", "::ffff:192.0.2.3", "belongs to the VLAN's gateway or to a service of ours"},
		{"our DHCP server", "192.0.2.4", "belongs to the VLAN's gateway or to a service of ours"},
		{"another cluster's DNS server on the VLAN", "192.0.2.12", "belongs to the VLAN's gateway or to a service of ours"},
		{"the address of another cluster's proxies on the VLAN", "2001:db8::13", "belongs to the VLAN's gateway or to a service of ours"},
		{"another cluster's proxy on the VLAN", "192.0.2.16", "belongs to the VLAN's gateway or to a service of ours"},
		{"another cluster's DHCP instance on the VLAN", "2001:db8::15", "belongs to the VLAN's gateway or to a service of ours"},
		{"a proxy's address on another VLAN", "192.0.2.33", ""},
		{"the address of a service that is switched off", "192.0.2.44", ""},
		{"anything else", "198.51.100.1", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := appsCase{objects: []string{demoInfra("{enabled: true}", ""), neighbour, elsewhere, switchedOff}, guest: guest(test.address)}
			s := model.Build(c.input(t), model.Options{Apps: &model.AppsOptions{Allow: everywhere}})
			if got := fmt.Sprint(s.Clusters[0].Apps.Addresses); (got == "[]") != (test.why != "") {
				t.Errorf("got %s", got)
			}
			said := ""
			for _, p := range s.Problems {
				if p.Reason == model.ReasonAddressNotAllowed {
					said = p.Message
				}
			}
			if !strings.Contains(said, test.why) || (said == "") != (test.why == "") {
				t.Errorf("said is %q", said)
			}
		})
	}
}
