package setup

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// TestLossesWithoutTheInfraThatWasApplied covers an Infra that was edited or deleted before setup: its pods still serve.
func TestLossesWithoutTheInfraThatWasApplied(t *testing.T) {
	vm := &unstructured.Unstructured{Object: map[string]any{}}
	vm.SetNamespace("clusters-demo")
	vm.SetName("worker")
	lease := &leases.Lease{Infra: "demo", VM: "clusters-demo/worker", Interface: "vlan", Address: netip.MustParseAddr("192.168.100.50"), State: "bound"}
	const dns, address = "would lose the names of the hosted cluster", "(192.168.100.50) would lose"
	for _, tc := range []struct {
		name   string
		change func(k *Known)
		want   []string // none without a loss
	}{
		{"nothing changes", func(*Known) {}, nil},
		{"DNS was disabled by hand, and serves", func(k *Known) {
			k.before = k.Infra.DeepCopy()
			k.Infra.Spec.InfraComponents.DNS, k.before.Spec.InfraComponents.DNS = nil, nil
		}, []string{"VM clusters-demo/worker " + dns}},
		{"DNS was disabled by hand, and has ended", func(k *Known) {
			k.before = k.Infra.DeepCopy()
			k.Infra.Spec.InfraComponents.DNS, k.before.Spec.InfraComponents.DNS = nil, nil
			delete(k.serving, v1alpha1.ComponentDNS)
		}, nil},
		{"DNS is disabled, and the Infra was deleted", func(k *Known) { k.Infra.Spec.InfraComponents.DNS = nil }, []string{dns}},
		{"the range is smaller, and the Infra was deleted", func(k *Known) { k.Infra.Spec.InfraComponents.DHCP.RangeEnd = "192.168.100.40" }, []string{address}},
		{"the address is reserved, and the Infra was deleted", func(k *Known) {
			k.Infra.Spec.InfraComponents.DHCP.RangeEnd = "192.168.100.40"
			vm := vm.DeepCopy()
			vm.SetAnnotations(map[string]string{v1alpha1.AnnotationDHCPAddresses: "192.168.100.50"})
			k.attached = []*unstructured.Unstructured{vm}
		}, nil},
		{"another subnet, and the Infra was deleted", func(k *Known) { k.Infra.Spec.NetworkConfig.CIDR = "192.168.101.0/24" }, []string{address}},
		{"the range is smaller, and Infra and VM were deleted", func(k *Known) {
			k.Infra.Spec.InfraComponents.DHCP.RangeEnd, k.attached = "192.168.100.40", nil
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := exampleKnown(t)
			k.attached, k.leased = []*unstructured.Unstructured{vm}, []*leases.Lease{lease}
			k.serving = map[string]bool{v1alpha1.ComponentDHCP: true, v1alpha1.ComponentDNS: true, v1alpha1.ComponentProxy: true}
			tc.change(k)
			before := k.snapshotBefore()
			var got []string
			for _, err := range k.losses(before, k.snapshot(), &Plan{}) {
				got = append(got, err.Error())
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
	own := &leases.Lease{Infra: "demo", VM: "clusters-demo/worker", Address: netip.MustParseAddr("192.168.100.50"), State: "bound"}
	other := &leases.Lease{Metadata: output.Metadata{Namespace: "clusters"}, Infra: "blue", VM: "clusters-blue/worker", Address: netip.MustParseAddr("192.168.100.60"), State: "bound"}
	for _, tc := range []struct {
		name   string
		change func(k *Known)
		want   string // empty without an error
	}{
		{"none", func(k *Known) { k.Infra.Spec.InfraComponents.DHCP.Exclude = []string{"192.168.100.60"} }, ""},
		{"of DNS", func(k *Known) {
			k.Infra.Spec.InfraComponents.DNS.ServerIP, k.leasedByOthers = "192.168.100.50", nil
		}, "is leased to VM clusters-demo/worker"},
		{"of DNS, leased by another Infra", func(k *Known) {
			k.Infra.Spec.InfraComponents.DNS.ServerIP, k.Infra.Spec.InfraComponents.DHCP.Exclude = "192.168.100.60", []string{"192.168.100.60"}
		}, "192.168.100.60 of StatefulSet demo-dns is leased to VM clusters-blue/worker"},
		{"of the gateway", func(k *Known) {
			k.Infra.Spec.NetworkConfig.Gateway, k.leasedByOthers = "192.168.100.50", nil
		}, "spec.networkConfig.gateway: 192.168.100.50 is leased to VM clusters-demo/worker"},
		{"in the ranges, leased by another Infra", func(*Known) {}, "the ranges contain 192.168.100.60, which Infra clusters/blue has leased to VM clusters-blue/worker"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := exampleKnown(t)
			k.leased, k.leasedByOthers = []*leases.Lease{own}, []*leases.Lease{other}
			tc.change(k)
			got := ""
			for _, err := range k.leasedAddresses() {
				got += err.Error()
			}
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
