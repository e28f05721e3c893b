package read

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
)

// MachineInterfaces returns the names of a VirtualMachineInstance's interfaces on the network nad, which is the
// "namespace/name" of a NetworkAttachmentDefinition; nil if it has none.
func MachineInterfaces(u *unstructured.Unstructured, nad string) []string {
	var list []string
	networks, _, _ := unstructured.NestedSlice(u.Object, "spec", "networks")
	for _, n := range networks {
		n, _ := n.(map[string]any)
		network, _, _ := unstructured.NestedString(n, "multus", "networkName")
		if name, ok := n["name"].(string); ok && (network == nad || u.GetNamespace()+"/"+network == nad) {
			list = append(list, name)
		}
	}
	return list
}

// MachineAddresses returns the addresses that the status of a VirtualMachineInstance reports for its interfaces on the
// network nad, which is the "namespace/name" of a NetworkAttachmentDefinition; nil if it reports none. Link-local and
// invalid addresses are omitted.
func MachineAddresses(u *unstructured.Unstructured, nad string) []netip.Addr {
	var list []netip.Addr
	interfaces, _, _ := unstructured.NestedSlice(u.Object, "status", "interfaces")
	for _, name := range MachineInterfaces(u, nad) {
		for _, i := range interfaces {
			i, _ := i.(map[string]any)
			if i["name"] != name {
				continue
			}
			texts, _, _ := unstructured.NestedStringSlice(i, "ipAddresses")
			for _, text := range texts {
				if a, err := v1alpha1.ParseAddress(text); err == nil && !a.IsLinkLocalUnicast() {
					list = append(list, a)
				}
			}
		}
	}
	return list
}
