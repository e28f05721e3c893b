package model_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// BenchmarkLeaseChange measures the update of a snapshot after a change of one lease, with the names of many VMs.
func BenchmarkLeaseChange(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("VMs=%d", n), func(b *testing.B) {
			infra := &v1alpha1.Infra{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo"}}
			infra.Spec.NetworkConfig = v1alpha1.NetworkConfig{CIDR: "10.0.0.0/16", NetworkAttachmentDefinition: "vlan"}
			infra.Spec.InfraComponents.DNS = &v1alpha1.InfraDNS{
				ServerIP: "10.0.0.2", BaseDomain: "example.com", ClusterName: "demo", VMNames: &v1alpha1.VMNames{Enabled: true},
			}
			infra.Spec.InfraComponents.Proxy = &v1alpha1.InfraProxy{ServerIP: "10.0.0.3"}
			in := &model.Objects{Infras: []*v1alpha1.Infra{infra}}
			for i := range n {
				in.DHCPLeases = append(in.DHCPLeases, vmLease(i, "a"))
			}
			builder := model.NewBuilder(model.Options{Leases: []string{"clusters/demo"}}, nil)
			if s := builder.Update(in.Additions()); len(s.VLANs[0].View.Records) != 2*n {
				b.Fatalf("%d records, want %d", len(s.VLANs[0].View.Records), 2*n)
			}
			for i := 0; b.Loop(); i++ {
				l := vmLease(0, string(rune('a'+i%2)))
				builder.Update([]model.Change{{Kind: model.KindDHCPLease, Namespace: l.Namespace, Name: l.Name, Now: l}})
			}
		})
	}
}

func vmLease(i int, suffix string) *objects.DHCPLease {
	vm := fmt.Sprintf("worker-%d", i)
	address := netip.AddrFrom4([4]byte{10, 0, byte(1 + i/250), byte(i % 250)})
	return &objects.DHCPLease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: dhcplease.Name("clusters.demo", address)}, Address: address,
		VM: "clusters-demo/" + vm, Hostname: vm + suffix, Interface: "vlan", Used: time.Unix(1, 0).UTC(),
	}
}
