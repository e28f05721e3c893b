package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestNodePoolNetworks covers NodePools whose NetworkAttachmentDefinition has another name than the Infra's, and a second
// Infra of the hosted cluster on another network.
func TestNodePoolNetworks(t *testing.T) {
	s := newTestSite(t)
	config, _, err := unstructured.NestedString(s.Get(kindOf(t, "NetworkAttachmentDefinition"), "$ns", "vlan100").Object, "spec", "config")
	if err != nil {
		t.Fatal(err)
	}
	nad := func(namespace, name, config string) {
		s.Add("apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: " + name + ", namespace: " + namespace + "}\nspec: {config: '" + config + "'}\n")
	}
	nad("$ns-demo", "of-vms", config)
	nad("$ns-demo", "broken", "{")
	nad("$ns", "vlan200", strings.Replace(config, `"type"`, `"vlan": 200, "type"`, 1))
	second := "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: Infra\nmetadata: {name: second, namespace: $ns}\nspec:\n  hostedClusterRef: {name: demo, namespace: $ns}\n" +
		"  networkConfig: {cidr: 198.51.100.0/24, gateway: 198.51.100.1, networkAttachmentDefinition: vlan200}\n  infraComponents: {dhcp: {enabled: false}}\n"
	for _, tc := range []struct {
		name, network string
		second        bool
		want          bool // whether the check fails
	}{
		{"another NetworkAttachmentDefinition of the network", "$ns-demo/of-vms", false, false},
		{"an invalid NetworkAttachmentDefinition", "$ns-demo/broken", false, true},
		{"another network", "$ns/vlan200", false, true},
		{"the network of another Infra, which is the only one that is used", "$ns/vlan200", true, true},
		{"both networks", `$ns/vlan200"}, {"name": "$ns-demo/of-vms`, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.second && s.Get(kindOf(t, "Infra"), "$ns", "second") == nil {
				s.Add(second)
			}
			s.Patch(kindOf(t, "NodePool"), "$ns", "workers", `{"spec": {"platform": {"kubevirt": {"additionalNetworks": [{"name": "`+tc.network+`"}]}}}}`)
			if found := s.Diagnose("--only", "OOOI-HC").Found(); slices.Contains(found, "HC-004 fail") != tc.want {
				t.Errorf("found %q", found)
			}
		})
	}
}
