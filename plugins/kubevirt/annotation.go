package kubevirt

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/plugins/internal/option"
)

// Annotations of a VirtualMachineInstance, which has those of its VirtualMachine's template.
const (
	// AddressesAnnotation reserves addresses: "[INTERFACE=]ADDRESS,...", at most one a family
	// and interface. Without an interface it is for all that the machine has on the network.
	AddressesAnnotation = "hostedcluster.densityops.com/dhcp-addresses"
	// OptionsAnnotation has DHCP options of the machine's own, in the words of the plugin
	// options, separated by white space.
	OptionsAnnotation = "hostedcluster.densityops.com/dhcp-options"
)

// reserved returns the addresses that an annotation reserves for an interface.
func reserved(annotation, nic string) ([]netip.Addr, error) {
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
			return nil, fmt.Errorf("%s: %q is not an address that a machine can have", AddressesAnnotation, text)
		}
		list := &general
		if named {
			list = &own
		}
		if named && name != nic {
			continue
		}
		if has(*list, address) {
			return nil, fmt.Errorf("%s: %s is one address too many of its family", AddressesAnnotation, address)
		}
		*list = append(*list, address)
	}
	for _, address := range general {
		if !has(own, address) {
			own = append(own, address)
		}
	}
	return own, nil
}

// has reports whether there is an address of another's family.
func has(list []netip.Addr, other netip.Addr) bool {
	for _, address := range list {
		if address.Is4() == other.Is4() {
			return true
		}
	}
	return false
}

// ownOptions returns the options of an annotation.
func ownOptions(annotation string) (dhcpv4.Options, error) {
	if strings.TrimSpace(annotation) == "" {
		return nil, nil
	}
	set, err := option.Parse(strings.Fields(annotation))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", OptionsAnnotation, err)
	}
	return set.All(), nil
}

// annotated reads both annotations for an interface. What is wrong in one costs the other
// nothing.
func (i *instance) annotated(nic string) ([]netip.Addr, dhcpv4.Options, error) {
	addresses, err := reserved(i.Addresses, nic)
	options, err2 := ownOptions(i.Options)
	return addresses, options, errors.Join(err, err2)
}
