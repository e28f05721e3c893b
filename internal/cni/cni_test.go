package cni

import (
	"strings"
	"testing"
)

// cudn returns the configuration that OVN-Kubernetes writes for a ClusterUserDefinedNetwork in a namespace.
func cudn(namespace string) string {
	return `{"cniVersion":"1.0.0","name":"cluster_udn_vlan50","type":"ovn-k8s-cni-overlay","netAttachDefName":"` + namespace +
		`/vlan50","topology":"localnet","physicalNetworkName":"physnet","vlanID":50,"mtu":1500,"role":"secondary"}`
}

func TestIdentity(t *testing.T) {
	for _, tc := range []struct{ name, config, want string }{
		{"bridge", `{"type":"bridge","bridge":"br1","vlan":100}`, "bridge br1 vlan 100"},
		{"bridge of OpenShift Virtualization", `{"type":"cnv-bridge","bridge":"br1","vlan":100}`, "bridge br1 vlan 100"},
		{"VLAN ID as text", `{"type":"bridge","bridge":"br1","vlan":" 100 "}`, "bridge br1 vlan 100"},
		{"untagged", `{"type":"bridge","bridge":"br1"}`, "bridge br1 vlan 0"},
		{"VLAN 0", `{"type":"bridge","bridge":"br1","vlan":0}`, "bridge br1 vlan 0"},
		{"trunk with a native VLAN", `{"type":"bridge","bridge":"br1","vlan":100,"vlanTrunk":[{"id":200}]}`, "bridge br1 vlan 100"},
		{"default bridge", `{"type":"bridge"}`, "bridge cni0 vlan 0"},
		{"list", `{"name":"n","plugins":[{"type":"bridge","bridge":"br1","vlan":100},{"type":"tuning"}]}`, "bridge br1 vlan 100"},
		{"Open vSwitch", `{"type":"ovs","bridge":"br1","vlan":100}`, "ovs bridge br1 vlan 100"},
		{"macvlan", `{"type":"macvlan","master":"eth1.100"}`, "interface eth1.100 vlan 0"},
		{"ipvlan", `{"type":"ipvlan","master":"eth1"}`, "interface eth1 vlan 0"},
		{"vlan", `{"type":"vlan","master":"eth1","vlanId":100}`, "interface eth1 vlan 100"},
		{"macvlan on the interface of the default route", `{"type":"macvlan"}`, "interface of the default route vlan 0"},
		{"macvlan on an interface of the pod", `{"type":"macvlan","master":"eth1","linkInContainer":true}`, ""},
		{"CUDN", cudn("clusters"), "localnet physnet vlan 50"},
		{"localnet with the default physical network", `{"type":"ovn-k8s-cni-overlay","name":"a.b","topology":"localnet","vlanID":50}`, "localnet a.b vlan 50"},
		{"localnet in a list", `{"name":"n","plugins":[{"type":"ovn-k8s-cni-overlay","topology":"localnet"}]}`, "localnet n vlan 0"},
		{"localnet without a name", `{"type":"ovn-k8s-cni-overlay","topology":"localnet"}`, ""},
		{"layer 2 of OVN-Kubernetes", `{"type":"ovn-k8s-cni-overlay","name":"n","topology":"layer2"}`, "layer2 n"},
		{"primary network of OVN-Kubernetes", `{"type":"ovn-k8s-cni-overlay","name":"n"}`, ""},
		{"unknown plugin", `{"type":"host-device","device":"eth1"}`, ""},
		{"VLAN ID out of range", `{"type":"bridge","bridge":"br1","vlan":4095}`, ""},
		{"negative VLAN ID", `{"type":"bridge","bridge":"br1","vlan":-1}`, ""},
		{"fraction of a VLAN ID", `{"type":"bridge","bridge":"br1","vlan":1.5}`, ""},
		{"VLAN ID that is no number", `{"type":"bridge","bridge":"br1","vlan":"blue"}`, ""},
		{"VLAN ID of another type", `{"type":"bridge","bridge":"br1","vlan":[100]}`, ""},
		{"no configuration", ``, ""},
		{"no JSON", `{`, ""},
		{"null", `null`, ""},
		{"list of nothing", `{"plugins":[null]}`, ""},
		{"type that is no text", `{"type":7}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, reduced := Identity(tc.config), Identity(Reduce(tc.config)); got != tc.want || reduced != tc.want {
				t.Errorf("got %q, and %q after Reduce, want %q", got, reduced, tc.want)
			}
		})
	}
	if got := Reduce(`{"type":"bridge","bridge":"br1","args":{"password":"secret"}}`); strings.Contains(got, "secret") {
		t.Errorf("Reduce keeps a secret: %s", got)
	}
	if Identity(cudn("clusters")) != Identity(cudn("clusters-demo")) {
		t.Error("the NetworkAttachmentDefinitions of one ClusterUserDefinedNetwork are of different networks")
	}
}

func TestIPAM(t *testing.T) {
	for _, tc := range []struct{ name, config, want, err string }{
		{"none", `{"type":"bridge"}`, "", ""},
		{"empty", `{"type":"bridge","ipam":{}}`, "", ""},
		{"static", `{"type":"bridge","ipam":{"type":"static"}}`, StaticIPAM, ""},
		{"static with addresses", `{"type":"bridge","ipam":{"type":"static","addresses":[{}]}}`, "ipam", ""},
		{"DHCP", `{"type":"bridge","ipam":{"type":"dhcp"}}`, DHCPIPAM, ""},
		{"DHCP of OVN-Kubernetes", `{"cniVersion":"1.0.0","name":"n","type":"ovn-k8s-cni-overlay","topology":"localnet","role":"secondary","ipam":{"type":"dhcp"}}`, DHCPIPAM, ""},
		{"another plugin", `{"plugins":[{"type":"bridge","ipam":{"type":"whereabouts"}}]}`, "ipam", ""},
		{"subnets of OVN-Kubernetes", `{"type":"ovn-k8s-cni-overlay","subnets":"192.0.2.0/24"}`, "subnets", ""},
		{"invalid", `{}`, "", "the fields type and plugins are missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := IPAM(tc.config)
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %q, %v; want %q, %q", got, err, tc.want, tc.err)
			}
		})
	}
}

// FuzzConfig reads arbitrary configurations, which anybody with the right to create a NetworkAttachmentDefinition writes.
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
