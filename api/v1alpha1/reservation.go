package v1alpha1

import (
	"fmt"
	"net/netip"
	"strings"
)

// AnnotationDHCPAddresses is the annotation of a VirtualMachineInstance that reserves addresses for it.
const AnnotationDHCPAddresses = GroupName + "/dhcp-addresses"

// ReservedAddresses returns the addresses that AnnotationDHCPAddresses reserves for an interface:
// "[INTERFACE=]ADDRESS,...", at most one a family and interface. Without an interface an address is
// for all that the machine has on the network. An error names the annotation and what is wrong in it.
func ReservedAddresses(annotation, nic string) ([]netip.Addr, error) {
	var general, own []netip.Addr
	for word := range strings.SplitSeq(annotation, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		name, text, named := strings.Cut(word, "=")
		if !named {
			text = word
		}
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" || !address.IsGlobalUnicast() {
			return nil, fmt.Errorf("%s: %q is not an address that a machine can have", AnnotationDHCPAddresses, text)
		}
		list := &general
		if named {
			list = &own
		}
		if named && name != nic {
			continue
		}
		if hasFamily(*list, address) {
			return nil, fmt.Errorf("%s: %s is one address too many of its family", AnnotationDHCPAddresses, address)
		}
		*list = append(*list, address)
	}
	for _, address := range general {
		if !hasFamily(own, address) {
			own = append(own, address)
		}
	}
	return own, nil
}

// hasFamily reports whether there is an address of another's family.
func hasFamily(list []netip.Addr, other netip.Addr) bool {
	for _, address := range list {
		if address.Is4() == other.Is4() {
			return true
		}
	}
	return false
}
