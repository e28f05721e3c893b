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

// optionsAnnotation is the annotation of a VirtualMachineInstance, which inherits it from the template of its
// VirtualMachine, with DHCP options of the VM in the syntax of the plugin options without boot, separated by white
// space.
const optionsAnnotation = v1alpha1.GroupName + "/dhcp-options"

// parseOptions parses the value of optionsAnnotation.
func parseOptions(annotation string) (dhcpv4.Options, error) {
	if strings.TrimSpace(annotation) == "" {
		return nil, nil
	}
	set, err := option.Parse(strings.Fields(annotation))
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", optionsAnnotation, err)
	}
	if len(set.Boot) > 0 {
		return nil, fmt.Errorf("annotation %s: boot is not supported in an annotation; configure it in the plugin options", optionsAnnotation)
	}
	return set.All(), nil
}

// parseAnnotations parses both annotations for an interface. An error in one does not affect the result of the
// other.
func (i *instance) parseAnnotations(nic string) ([]netip.Addr, dhcpv4.Options, error) {
	addresses, err := v1alpha1.ReservedAddresses(i.Addresses, nic)
	options, err2 := parseOptions(i.Options)
	return addresses, options, errors.Join(err, err2)
}
