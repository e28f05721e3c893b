package v1alpha1

import (
	"fmt"
	"testing"
)

func TestNetworkAttachment(t *testing.T) {
	tests := []struct {
		name, nad, namespace, want string
	}{
		{"name only", "vlan-7", "", "own/vlan-7"},
		{"namespace in networkAttachmentNamespace", "vlan-7", "networks", "networks/vlan-7"},
		{"namespace in the name", "networks/vlan-7", "", "networks/vlan-7"},
		{"namespace in both, the name's takes precedence", "networks/vlan-7", "default", "networks/vlan-7"},
		{"empty namespace in the name", "/vlan-7", "", "own/vlan-7"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			infra := &NetworkConfig{NetworkAttachmentDefinition: test.nad, NetworkAttachmentNamespace: test.namespace}
			if got := infra.NetworkAttachment("own").String(); got != test.want {
				t.Errorf("of an Infra: got %s, want %s", got, test.want)
			}
			proxy := &ProxyNetworkConfig{NetworkAttachmentName: test.nad, NetworkAttachmentNamespace: test.namespace}
			if got := proxy.NetworkAttachment("own").String(); got != test.want {
				t.Errorf("of a ProxyServer: got %s, want %s", got, test.want)
			}
		})
	}
}

func TestHostedClusterReference(t *testing.T) {
	tests := []struct {
		name  string
		ref   *HostedClusterReference
		infra string // namespace of the Infra
		want  string
	}{
		{"absent", nil, "own", "[]"},
		{"without a name, as the earlier operator wrote it", &HostedClusterReference{Namespace: "clusters"}, "own", "[]"},
		{"without a namespace", &HostedClusterReference{Name: "blue"}, "own", "[own/blue clusters/blue]"},
		{"without a namespace, of an Infra in the default one", &HostedClusterReference{Name: "blue"}, "clusters", "[clusters/blue]"},
		{"name and namespace", &HostedClusterReference{Name: "blue", Namespace: "tenants"}, "own", "[tenants/blue]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := fmt.Sprint(test.ref.Candidates(test.infra)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if got := test.ref.IsSet(); got != (test.want != "[]") {
				t.Errorf("IsSet is %v", got)
			}
		})
	}
}
