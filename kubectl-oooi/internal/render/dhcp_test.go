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
	golden.Transcript(t, "testdata/dhcp-options.txt", func(line string) (output []string) {
		for option := range strings.Lines(dhcpConfigOf(t, "spec: {networkConfig: {additionalCIDRs: [198.51.100.0/24]}}", "spec: "+line)) {
			if option = strings.Trim(option, " \"'\n"); regexp.MustCompile(`router:|dns:|ntp=|routes=`).MatchString(option) {
				output = append(output, option)
			}
		}
		return output
	})
}

// dhcpConfigOf returns the configuration of DHCP for any VM, of an Infra with changes.
func dhcpConfigOf(t *testing.T, changes ...string) string {
	t.Helper()
	infra := &v1alpha1.Infra{}
	text := lab.Site{}.Infra(append(changes, "spec: {infraComponents: {dhcp: {vmSelector: {}}}}")...)
	lab.Must(t, yaml.UnmarshalStrict([]byte(text), infra))
	infra.Default()
	config, err := (&Input{Infra: infra}).dhcpConfig(instance{name: "demo-dhcp", addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}, "vms")
	lab.Must(t, err)
	return config
}

// TestHostsAndRelaysOfDHCP checks the arguments for hosts and relay agents, and for addresses of the proxy.
func TestHostsAndRelaysOfDHCP(t *testing.T) {
	config := strings.Join(strings.Fields(dhcpConfigOf(t, `spec: {infraComponents: {proxy: {serverIP: 192.0.2.40, instances: [{ip: 192.0.2.41}]}, dhcp: {
		relays: [198.51.100.0/24, 203.0.113.9/28],
		hosts: [{mac: "52:54:00:00:00:01", hostname: a, address: 192.0.2.20}, {mac: "52:54:00:00:00:02"}]}}}`)), " ")
	for _, want := range []string{
		"host=52:54:00:00:00:01,hostname=a,address=192.0.2.20 host=52:54:00:00:00:02", "relay=198.51.100.0/24 relay=203.0.113.0/28",
		"protected=192.0.2.40 protected=192.0.2.41",
	} {
		if !strings.Contains(config, want) {
			t.Errorf("%s is missing in %s", want, config)
		}
	}
}
