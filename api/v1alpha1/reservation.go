package v1alpha1

import (
	"fmt"
	"net/netip"
	"strings"
)

// AnnotationDHCPAddresses is the annotation of a VirtualMachineInstance with its DHCP reservations.
const AnnotationDHCPAddresses = GroupName + "/dhcp-addresses"

// ReservedAddresses parses the value of AnnotationDHCPAddresses, "[INTERFACE=]ADDRESS,...", and returns the
// addresses that it reserves for the interface nic: at most one of each family. An address without INTERFACE applies
// to every interface of the VM without an address of the same family. It returns an error, which names the
// annotation, if an element has an invalid address, even for another interface, or if nic would get two addresses of
// one family.
func ReservedAddresses(annotation, nic string) ([]netip.Addr, error) {
	var general, own []netip.Addr
	for element := range strings.SplitSeq(annotation, ",") {
		element = strings.TrimSpace(element)
		if element == "" {
			continue
		}
		name, text, named := strings.Cut(element, "=")
		if !named {
			text = element
		}
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" || !address.IsGlobalUnicast() {
			return nil, fmt.Errorf("annotation %s: %q is not a usable unicast address", AnnotationDHCPAddresses, text)
		}
		list := &general
		if named {
			list = &own
		}
		if named && name != nic {
			continue
		}
		if hasFamily(*list, address) {
			return nil, fmt.Errorf("annotation %s: %s is a second address of its family for one interface; remove one", AnnotationDHCPAddresses, address)
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

// hasFamily reports whether list has an address of the same family as other.
func hasFamily(list []netip.Addr, other netip.Addr) bool {
	for _, address := range list {
		if address.Is4() == other.Is4() {
			return true
		}
	}
	return false
}
