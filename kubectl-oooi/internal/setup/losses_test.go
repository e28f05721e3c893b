package setup

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
)

// TestLossesWithoutTheInfraThatWasApplied covers an Infra that was edited or deleted before setup: its pods still serve.
func TestLossesWithoutTheInfraThatWasApplied(t *testing.T) {
	vm := &unstructured.Unstructured{Object: map[string]any{}}
	vm.SetNamespace("clusters-demo")
	vm.SetName("worker")
	lease := &leases.Lease{
		Infra: "demo", VM: "clusters-demo/worker", Interface: "vlan", MAC: "52:54:00:00:00:01", Address: netip.MustParseAddr("192.168.100.50"), State: "bound",
	}
	const dns, address = "would lose the names of the hosted cluster", "(192.168.100.50) would lose"
	for _, tc := range []struct {
		name   string
		change func(c *change)
		want   []string // none without a loss
	}{
		{"nothing changes", func(*change) {}, nil},
		{"DNS was disabled by hand, and serves", func(k *change) {
			k.before = k.Infra.DeepCopy()
			k.Infra.Spec.InfraComponents.DNS, k.before.Spec.InfraComponents.DNS = nil, nil
		}, []string{"VM clusters-demo/worker " + dns}},
		{"DNS was disabled by hand, and has ended", func(k *change) {
			k.before = k.Infra.DeepCopy()
			k.Infra.Spec.InfraComponents.DNS, k.before.Spec.InfraComponents.DNS = nil, nil
			delete(k.serving, v1alpha1.ComponentDNS)
		}, nil},
		{"DNS is disabled, and the Infra was deleted", func(k *change) { k.Infra.Spec.InfraComponents.DNS = nil }, []string{dns}},
		{"the range is smaller, and the Infra was deleted", func(k *change) { k.Infra.Spec.InfraComponents.DHCP.RangeEnd = "192.168.100.40" }, []string{address}},
		{"the address is reserved, and the Infra was deleted", func(k *change) {
			k.Infra.Spec.InfraComponents.DHCP.RangeEnd = "192.168.100.40"
			vm := vm.DeepCopy()
			vm.SetAnnotations(map[string]string{v1alpha1.AnnotationDHCPAddresses: "192.168.100.50"})
			k.attached = []*unstructured.Unstructured{vm}
		}, nil},
		{"another subnet, and the Infra was deleted", func(k *change) { k.Infra.Spec.NetworkConfig.CIDR = "192.168.101.0/24" }, []string{address}},
		{"a host has the MAC address of the VM", func(k *change) {
			k.Infra.Spec.InfraComponents.DHCP.Hosts = []v1alpha1.DHCPHost{{MAC: "52:54:00:00:00:01"}}
		}, []string{"VM clusters-demo/worker (52:54:00:00:00:01) would lose their addresses and names"}},
		{"the host was there before", func(k *change) {
			k.Infra.Spec.InfraComponents.DHCP.Hosts = []v1alpha1.DHCPHost{{MAC: "52:54:00:00:00:01"}}
			k.before = k.Infra.DeepCopy()
		}, nil},
		{"the NetworkAttachmentDefinition was changed", func(k *change) {
			k.before = k.Infra.DeepCopy()
			k.podNetwork = "bridge vlan50"
		}, []string{"would lose DHCP, DNS and the proxy, unless they move, too: NetworkAttachmentDefinition"}},
		{"the range is smaller, and Infra and VM were deleted", func(k *change) {
			k.Infra.Spec.InfraComponents.DHCP.RangeEnd, k.attached = "192.168.100.40", nil
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := exampleKnown(t)
			c := &change{Known: k}
			c.attached, c.leased = []*unstructured.Unstructured{vm}, []*leases.Lease{lease}
			c.serving = map[string]bool{v1alpha1.ComponentDHCP: true, v1alpha1.ComponentDNS: true, v1alpha1.ComponentProxy: true}
			tc.change(c)
			c.is, c.was = k.site(), k.siteBefore()
			var got []string
			for _, check := range checks {
				check(c)
			}
			for _, p := range c.problems {
				if p.severity == loss {
					got = append(got, p.text)
				}
			}
			if len(got) != len(tc.want) {
				t.Fatalf("%q, want %q", got, tc.want)
			}
			for i, want := range tc.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("%q, want %q", got[i], want)
				}
			}
		})
	}
}

// TestAddressesOfClients covers addresses that clients of DHCP have and that a change uses otherwise.
func TestAddressesOfClients(t *testing.T) {
	for address, want := range map[string]string{"192.168.100.3": "", "192.168.100.50": "192.168.100.50 of StatefulSet demo-dns is leased to VM clusters-demo/worker"} {
		c := &change{Known: exampleKnown(t)}
		c.leased = []*leases.Lease{{Infra: "demo", VM: "clusters-demo/worker", Address: netip.MustParseAddr("192.168.100.50"), State: "bound"}}
		c.Infra.Spec.InfraComponents.DNS.ServerIP = address
		got := ""
		c.leasedAddresses()
		for _, p := range c.problems {
			got += p.text
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
