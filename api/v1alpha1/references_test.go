package v1alpha1

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
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
		name string
		ref  *HostedClusterReference
		want types.NamespacedName
	}{
		{"absent", nil, types.NamespacedName{}},
		{"without a name, as the earlier operator wrote it", &HostedClusterReference{Namespace: "clusters"}, types.NamespacedName{}},
		{"without a namespace", &HostedClusterReference{Name: "blue"}, types.NamespacedName{Namespace: "clusters", Name: "blue"}},
		{"name and namespace", &HostedClusterReference{Name: "blue", Namespace: "tenants"}, types.NamespacedName{Namespace: "tenants", Name: "blue"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.ref.NamespacedName(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if got := test.ref.IsSet(); got != (test.want.Name != "") {
				t.Errorf("IsSet is %v", got)
			}
		})
	}
}
