package kubevirt

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/plugins/internal/option"
)

// Annotations of a VirtualMachineInstance, which has those of its VirtualMachine's template.
const (
	// AddressesAnnotation reserves addresses: see v1alpha1.ReservedAddresses.
	AddressesAnnotation = v1alpha1.AnnotationDHCPAddresses
	// OptionsAnnotation has DHCP options of the machine's own, in the words of the plugin
	// options, separated by white space.
	OptionsAnnotation = "hostedcluster.densityops.com/dhcp-options"
)

// ownOptions returns the options of an annotation.
func ownOptions(annotation string) (dhcpv4.Options, error) {
	if strings.TrimSpace(annotation) == "" {
		return nil, nil
	}
	set, err := option.Parse(strings.Fields(annotation))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", OptionsAnnotation, err)
	}
	if len(set.Boot) > 0 {
		return nil, fmt.Errorf("%s: boot is for the plugin options, where it says which clients it is for", OptionsAnnotation)
	}
	return set.All(), nil
}

// annotated reads both annotations for an interface. What is wrong in one costs the other
// nothing.
func (i *instance) annotated(nic string) ([]netip.Addr, dhcpv4.Options, error) {
	addresses, err := v1alpha1.ReservedAddresses(i.Addresses, nic)
	options, err2 := ownOptions(i.Options)
	return addresses, options, errors.Join(err, err2)
}
