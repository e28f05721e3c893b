package model_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
)

// networkYAML returns the NetworkAttachmentDefinition vlan of a ClusterUserDefinedNetwork with a VLAN ID in a namespace.
func networkYAML(namespace string, vlan int) string {
	return fmt.Sprintf(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan, namespace: %[1]s}
spec:
  config: '{"cniVersion":"1.0.0","name":"cluster_udn_vlan","type":"ovn-k8s-cni-overlay","netAttachDefName":"%[1]s/vlan","topology":"localnet","physicalNetworkName":"physnet","vlanID":%[2]d}'
`, namespace, vlan)
}

// TestInfrasOnOneNetwork covers Infras and ProxyServers whose NetworkAttachmentDefinitions are in different namespaces.
func TestInfrasOnOneNetwork(t *testing.T) {
	first := infraYAML("a", "dns: {serverIP: 192.0.2.2}, proxy: {serverIP: 192.0.2.3, internalProxyService: 10.0.0.1}")
	second := strings.Replace(infraYAML("b", "dns: {serverIP: 192.0.2.2}"), "namespace: clusters", "namespace: other", 1)
	proxy := strings.Replace(standaloneProxy("lone", "192.0.2.3/24"), "namespace: clusters", "namespace: third", 1)
	const conflicts = "Infra clusters/a: 192.0.2.2 is also an address of Infra other/b on the same VLAN, " +
		"Infra clusters/a: 192.0.2.3 is also an address of ProxyServer third/lone on the same VLAN, " +
		"Infra other/b: 192.0.2.2 is also an address of Infra clusters/a on the same VLAN, " +
		"ProxyServer third/lone: 192.0.2.3 is also an address of Infra clusters/a on the same VLAN"
	builder := model.NewBuilder(withProxies, nil)
	before := &model.Objects{}
	for _, tc := range []struct {
		name     string
		networks []string
		vlans    string // each with its number of Infras
		want     string // address conflicts
	}{
		{"no NetworkAttachmentDefinition", nil, "clusters/vlan:1 other/vlan:1", ""},
		{"one network", []string{networkYAML("clusters", 50), networkYAML("other", 50), networkYAML("third", 50)}, "clusters/vlan:2", conflicts},
		{"deleted NetworkAttachmentDefinitions", nil, "clusters/vlan:2", conflicts},
		{"another VLAN", []string{networkYAML("clusters", 50), networkYAML("other", 60), networkYAML("third", 70)}, "clusters/vlan:1 other/vlan:1", ""},
		{"an invalid configuration", []string{networkYAML("clusters", 50), strings.Replace(networkYAML("other", 50), "50}'", "50'", 1)}, "clusters/vlan:1 other/vlan:1", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := readObjectsFor(t, withProxies, append([]string{first, second, proxy}, tc.networks...)...)
			s := builder.Update(changesOf(before, in))
			var conflicts []string
			for _, p := range s.Problems {
				if p.Reason == model.ReasonAddressConflict {
					conflicts = append(conflicts, p.Object.String()+": "+p.Message)
				}
			}
			if got := strings.Join(conflicts, ", "); got != tc.want {
				t.Errorf("the conflicts are\n%s\nwant\n%s", got, tc.want)
			}
			var vlans []string
			for _, v := range s.VLANs {
				n := 0
				for _, i := range s.Infras {
					if i.VLAN == v.Name {
						n++
					}
					if (i.VLAN == v.Name) != v.Uses(i.NetworkAttachment) {
						t.Errorf("%s is on VLAN %s, and %s uses its NetworkAttachmentDefinition: %t", i.Ref, i.VLAN, v.Name, v.Uses(i.NetworkAttachment))
					}
				}
				vlans = append(vlans, fmt.Sprintf("%s:%d", v.Name, n))
			}
			if got := strings.Join(vlans, " "); got != tc.vlans {
				t.Errorf("the VLANs are %s, want %s", got, tc.vlans)
			}
			before = in
		})
	}
}
