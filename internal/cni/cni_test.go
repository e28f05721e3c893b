package cni

import (
	"fmt"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/golden"
)

// cudn returns the configuration that OVN-Kubernetes writes for a ClusterUserDefinedNetwork in a namespace.
func cudn(namespace string) string {
	return `{"cniVersion":"1.0.0","name":"cluster_udn_vlan50","type":"ovn-k8s-cni-overlay","netAttachDefName":"` + namespace +
		`/vlan50","topology":"localnet","physicalNetworkName":"physnet","vlanID":50,"mtu":1500,"role":"secondary"}`
}

// TestConfigs runs the transcript testdata/configs.txt. The output of a configuration is the identity of its network, its IPAM, and what Reduce keeps.
func TestConfigs(t *testing.T) {
	golden.Transcript(t, "testdata/configs.txt", func(line string) []string {
		config := strings.TrimPrefix(strings.TrimPrefix(line, "config"), " ")
		identity, reduced := Identity(config), Reduce(config)
		if again := Identity(reduced); again != identity {
			t.Errorf("%s: the identity is %q, and %q after Reduce", config, identity, again)
		}
		ipam, err := IPAM(config)
		if err != nil {
			ipam = err.Error()
		}
		return []string{fmt.Sprintf("identity %q", identity), "IPAM: " + ipam, reduced}
	})
}

// FuzzConfig reads arbitrary configurations, which anybody with permission to create a NetworkAttachmentDefinition writes.
func FuzzConfig(f *testing.F) {
	for _, config := range []string{
		cudn("clusters"), `{"type":"bridge","bridge":"br1","vlan":"100","mtu":1400}`, `{"plugins":[null,{}]}`, `[]`,
		`{"name":1,"plugins":[{"type":"macvlan","master":"eth1"}]}`,
	} {
		f.Add(config)
	}
	f.Fuzz(func(t *testing.T, config string) {
		plugins, err := Plugins(config)
		if err == nil && (len(plugins) == 0 || plugins[0]["type"] == nil) {
			t.Errorf("no plugin creates the interface: %v", plugins)
		}
		if got, want := Identity(Reduce(config)), Identity(config); got != want {
			t.Errorf("Reduce changes the identity from %q to %q", want, got)
		}
		_, ipamErr := IPAM(config)
		if (err == nil) != (ipamErr == nil) || err != nil && (Identity(config) != "" || MTU(config) != 0 || IsOVN(config)) {
			t.Errorf("an invalid configuration is read: %v", err)
		}
	})
}
