package render

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestServersOfDHCP runs the transcript testdata/dhcp-options.txt: each line changes the spec of an Infra, and the output has the
// routers, routes, DNS servers and NTP servers of its DHCP.
func TestServersOfDHCP(t *testing.T) {
	const text = `
metadata: {name: demo, namespace: clusters}
spec:
  networkConfig: {cidr: 192.0.2.0/24, additionalCIDRs: [198.51.100.0/24], gateway: 192.0.2.1, networkAttachmentDefinition: vlan100}
  infraComponents:
    dhcp: {serverIP: 192.0.2.2, rangeStart: 192.0.2.10, rangeEnd: 192.0.2.99, vmSelector: {}}
    dns: {serverIP: 192.0.2.3}
    proxy: {serverIP: 192.0.2.4}
`
	golden.Transcript(t, "testdata/dhcp-options.txt", func(line string) (output []string) {
		for option := range strings.Lines(dhcpConfigOf(t, lab.Merge(text, "{spec: "+line+"}"))) {
			if option = strings.Trim(option, " \"'\n"); regexp.MustCompile(`router:|dns:|ntp=|routes=`).MatchString(option) {
				output = append(output, option)
			}
		}
		return output
	})
}

// dhcpConfigOf returns the configuration of DHCP of an Infra.
func dhcpConfigOf(t *testing.T, text string) string {
	t.Helper()
	infra := &v1alpha1.Infra{}
	lab.Must(t, yaml.UnmarshalStrict([]byte(text), infra))
	infra.Default()
	config, err := (&Input{Infra: infra}).dhcpConfig(instance{name: "demo-dhcp", addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}, "vms")
	lab.Must(t, err)
	return config
}

// TestHostsAndRelaysOfDHCP checks the arguments for hosts and relay agents.
func TestHostsAndRelaysOfDHCP(t *testing.T) {
	config := strings.Join(strings.Fields(dhcpConfigOf(t, `
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
`)), " ")
	for _, want := range []string{
		"host=52:54:00:00:00:01,hostname=a,address=192.0.2.20 host=52:54:00:00:00:02", "relay=198.51.100.0/24 relay=203.0.113.0/28",
	} {
		if !strings.Contains(config, want) {
			t.Errorf("%s is missing in %s", want, config)
		}
	}
}
