package render

import (
	"net/netip"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// TestServersOfDHCP checks which routers, routes, DNS servers and NTP servers clients get.
func TestServersOfDHCP(t *testing.T) {
	const (
		near = "proxy: {serverIP: 192.0.2.4}"
		far  = "proxy: {serverIP: 198.51.100.4, instances: [{ip: 198.51.100.5}, {ip: 198.51.100.6}]}"
		ntp  = "}\n  egress: {ntp: [time.example.com]" // after the proxy
	)
	for _, tc := range []struct {
		name, gateway, dhcp, proxy string
		want                       []string
	}{
		{"all options", "192.0.2.1", "", near, []string{"router: 192.0.2.1", "dns: 192.0.2.3"}},
		{"no router", "", "", near, []string{"dns: 192.0.2.3"}},
		{"no default route", "192.0.2.1", "defaultRoute: false", near, []string{"dns: 192.0.2.3"}},
		{"no resolvers", "192.0.2.1", "dns: false", near, []string{"router: 192.0.2.1"}},
		{"proxy in another subnet", "192.0.2.1", "", far, []string{"router: 192.0.2.1", "dns: 192.0.2.3"}},
		{
			"no default route, and the proxy in another subnet", "192.0.2.1", "defaultRoute: false, dns: false", far,
			[]string{"routes=198.51.100.0/24>192.0.2.1"},
		},
		{
			"no default route, and other routes", "192.0.2.1", "defaultRoute: false, options: [{name: classless-routes, value: 203.0.113.0/24>192.0.2.9}]", far,
			[]string{"dns: 192.0.2.3", "routes=203.0.113.0/24>192.0.2.9"},
		},
		{"no router, and the proxy in another subnet", "", "defaultRoute: false", far, []string{"dns: 192.0.2.3"}},
		{"NTP", "", "", near + ntp, []string{"dns: 192.0.2.3", "ntp=192.0.2.4"}},
		{"NTP at a floating address", "", "", far + ntp, []string{"dns: 192.0.2.3", "ntp=198.51.100.4"}},
		{
			"NTP at several addresses", "", "", "proxy: {serverIP: 192.0.2.4/24, additionalServerIPs: ['2001:db8::4', 192.0.2.5]}" + ntp,
			[]string{"dns: 192.0.2.3", "ntp=192.0.2.4,192.0.2.5"},
		},
		{"NTP at no IPv4 address", "", "", "proxy: {serverIP: '2001:db8::4'}" + ntp, []string{"dns: 192.0.2.3"}},
		{"NTP without a proxy", "", "", "proxy: {serverIP: 192.0.2.4, enabled: false}" + ntp, []string{"dns: 192.0.2.3"}},
		{
			"NTP, and other servers by name", "", "options: [{name: ntp-servers, value: 192.0.2.9}]", near + ntp,
			[]string{"dns: 192.0.2.3", "ntp=192.0.2.9"},
		},
		{"NTP, and other servers by code", "", "options: [{code: 42, value: 'ip:192.0.2.9'}]", near + ntp, []string{"dns: 192.0.2.3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			infra := &v1alpha1.Infra{}
			text := "metadata: {name: demo, namespace: clusters}\nspec:\n" +
				"  networkConfig: {cidr: 192.0.2.0/24, additionalCIDRs: [198.51.100.0/24], gateway: '" + tc.gateway + "', networkAttachmentDefinition: vlan100}\n" +
				"  infraComponents: {dhcp: {serverIP: 192.0.2.2, rangeStart: 192.0.2.10, rangeEnd: 192.0.2.99, vmSelector: {}, " + tc.dhcp + "}, " +
				"dns: {serverIP: 192.0.2.3}, " + tc.proxy + "}\n"
			lab.Must(t, yaml.UnmarshalStrict([]byte(text), infra))
			infra.Default()
			config, err := (&Input{Infra: infra}).dhcpConfig(instance{name: "demo-dhcp", addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}, "vms")
			lab.Must(t, err)
			for _, option := range []string{"router:", "dns:", "ntp=", "routes="} {
				got := ""
				for line := range strings.Lines(config) {
					if at := strings.Index(line, option); at >= 0 {
						got = strings.Trim(line[at:], " \"'\n")
					}
				}
				want := ""
				for _, w := range tc.want {
					if strings.HasPrefix(w, option) {
						want = w
					}
				}
				if got != want {
					t.Errorf("got %q, want %q in\n%s", got, want, config)
				}
			}
		})
	}
}

// TestHostsAndRelaysOfDHCP checks the arguments for hosts and relay agents.
func TestHostsAndRelaysOfDHCP(t *testing.T) {
	infra := &v1alpha1.Infra{}
	if err := yaml.UnmarshalStrict([]byte(`
metadata: {name: demo, namespace: clusters}
spec:
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan100}
  infraComponents:
    dhcp:
      serverIP: 192.0.2.2
      rangeStart: 192.0.2.10
      rangeEnd: 192.0.2.99
      vmSelector: {}
      relays: [198.51.100.0/24, 203.0.113.9/28]
      hosts: [{mac: "52:54:00:00:00:01", hostname: a, address: 192.0.2.20}, {mac: "52:54:00:00:00:02"}]
`), infra); err != nil {
		t.Fatal(err)
	}
	infra.Default()
	config, err := (&Input{Infra: infra}).dhcpConfig(instance{name: "demo-dhcp", addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}, "vms")
	lab.Must(t, err)
	config = strings.Join(strings.Fields(config), " ")
	for _, want := range []string{
		"host=52:54:00:00:00:01,hostname=a,address=192.0.2.20 host=52:54:00:00:00:02", "relay=198.51.100.0/24 relay=203.0.113.0/28",
	} {
		if !strings.Contains(config, want) {
			t.Errorf("%s is missing in %s", want, config)
		}
	}
}
