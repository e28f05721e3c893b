package read

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
)

// MachineInterfaces returns the names of a VirtualMachineInstance's interfaces on the network of a
// NetworkAttachmentDefinition, "namespace/name"; nil if it has none. If networks is nil, interfaces match by name.
func MachineInterfaces(u *unstructured.Unstructured, networks cni.Networks, nad string) []string {
	names, _ := machineNetworks(u, networks, nad)
	return names
}

// MachineAttachments returns the NetworkAttachmentDefinitions, "namespace/name", of MachineInterfaces, in the same order. They
// may configure the network differently.
func MachineAttachments(u *unstructured.Unstructured, networks cni.Networks, nad string) []string {
	_, attachments := machineNetworks(u, networks, nad)
	return attachments
}

func machineNetworks(u *unstructured.Unstructured, networks cni.Networks, nad string) (names, attachments []string) {
	attached, _, _ := unstructured.NestedSlice(u.Object, "spec", "networks")
	for _, n := range attached {
		n, _ := n.(map[string]any)
		network, multus, _ := unstructured.NestedString(n, "multus", "networkName")
		ref := cni.Reference(u.GetNamespace(), network)
		if name, ok := n["name"].(string); ok && multus && networks.Same(ref, nad) {
			names, attachments = append(names, name), append(attachments, ref)
		}
	}
	return names, attachments
}

// WithoutMAC returns the names among MachineInterfaces without a macAddress in the spec: the interface gets another MAC
// address in each pod, whereas a migrated guest keeps its MAC address.
func WithoutMAC(u *unstructured.Unstructured, networks cni.Networks, nad string) []string {
	list := MachineInterfaces(u, networks, nad)
	interfaces, _, _ := unstructured.NestedSlice(u.Object, "spec", "domain", "devices", "interfaces")
	for _, i := range interfaces {
		i, _ := i.(map[string]any)
		if mac, _ := i["macAddress"].(string); mac != "" {
			list = slices.DeleteFunc(list, func(name string) bool { return name == i["name"] })
		}
	}
	return list
}

// MachineMACs returns the MAC addresses that the status of a VirtualMachineInstance reports for its interfaces on the network
// of a NetworkAttachmentDefinition, as in MachineInterfaces; nil if it reports none.
func MachineMACs(u *unstructured.Unstructured, networks cni.Networks, nad string) []string {
	var list []string
	eachInterface(u, networks, nad, func(status map[string]any) {
		if mac, _ := status["mac"].(string); mac != "" {
			list = append(list, mac)
		}
	})
	return list
}

// MachineAddresses returns the addresses that the status of a VirtualMachineInstance reports for its interfaces on the
// network of a NetworkAttachmentDefinition, as in MachineInterfaces; nil if it reports none. Link-local and invalid
// addresses are omitted.
func MachineAddresses(u *unstructured.Unstructured, networks cni.Networks, nad string) []netip.Addr {
	var list []netip.Addr
	eachInterface(u, networks, nad, func(status map[string]any) {
		texts, _, _ := unstructured.NestedStringSlice(status, "ipAddresses")
		for _, text := range texts {
			if a, err := v1alpha1.ParseAddress(text); err == nil && !a.IsLinkLocalUnicast() {
				list = append(list, a)
			}
		}
	})
	return list
}

// eachInterface calls f with the status of each interface on a network, as in MachineInterfaces.
func eachInterface(u *unstructured.Unstructured, networks cni.Networks, nad string, f func(status map[string]any)) {
	interfaces, _, _ := unstructured.NestedSlice(u.Object, "status", "interfaces")
	for _, name := range MachineInterfaces(u, networks, nad) {
		for _, i := range interfaces {
			if status, _ := i.(map[string]any); status["name"] == name {
				f(status)
			}
		}
	}
}
