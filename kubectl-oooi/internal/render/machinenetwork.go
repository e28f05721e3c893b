package render

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/internal/cni"
)

// A MachineNetwork describes the VMs' NetworkAttachmentDefinition that setup creates if --make-network is set.
type MachineNetwork struct {
	// Kind is bridge, macvlan or localnet.
	Kind string
	// Device is the node's bridge, the node's interface, or the name of a physical network in the bridge mappings of
	// OVN-Kubernetes.
	Device string
	// VLAN is the VLAN ID with which frames on the Device are tagged; 0 for no tag.
	VLAN int
	// MTU is the MTU of the network in bytes; 0 for the default of the CNI plugin.
	MTU int
}

// macvlanNetwork is a Kind that adds no tag, and that VMs cannot use.
const macvlanNetwork = "macvlan"

// ParseMachineNetwork parses KIND=DEVICE[,vlan=ID][,mtu=BYTES], the value of --make-network. It returns an error for
// another form, an unsupported KIND, an ID with macvlan or outside of 1-4094, and BYTES outside of 1280-65535.
func ParseMachineNetwork(text string) (*MachineNetwork, error) {
	parts := strings.Split(text, ",")
	kind, device, _ := strings.Cut(parts[0], "=")
	if !slices.Contains([]string{"bridge", macvlanNetwork, "localnet"}, kind) || device == "" {
		return nil, fmt.Errorf("%q: must be bridge=BRIDGE, macvlan=INTERFACE or localnet=NETWORK, optionally followed by ,vlan=ID and ,mtu=BYTES", parts[0])
	}
	n := &MachineNetwork{Kind: kind, Device: device}
	for _, part := range parts[1:] {
		key, value, _ := strings.Cut(part, "=")
		number, err := strconv.Atoi(value)
		switch {
		case key == "vlan" && kind == macvlanNetwork:
			return nil, fmt.Errorf("vlan=%s: macvlan adds no tag; specify the node's VLAN interface, such as %s.%s", value, device, value)
		case key == "vlan" && err == nil && number >= 1 && number <= 4094:
			n.VLAN = number
		case key == "mtu" && err == nil && number >= 1280 && number <= 65535:
			n.MTU = number
		default:
			return nil, fmt.Errorf("%q: must be vlan=ID with an ID between 1 and 4094, or mtu=BYTES with a number between 1280 and 65535", part)
		}
	}
	return n, nil
}

// Config returns the CNI configuration for the NetworkAttachmentDefinition nad, without IPAM, because the Infra's DHCP
// server assigns the addresses.
func (n *MachineNetwork) Config(nad types.NamespacedName) (string, error) {
	config, vlan := map[string]any{"cniVersion": "0.3.1", "name": nad.Name, "type": n.Kind}, "vlan"
	switch n.Kind {
	case "bridge":
		config["bridge"] = n.Device
	case macvlanNetwork:
		config["master"], config["mode"] = n.Device, "bridge"
	default:
		// OVN-Kubernetes treats networks of the same name as one, so the name contains the namespace.
		config["type"], config["topology"], config["name"] = cni.OVNKubernetes, "localnet", nad.Namespace+"-"+nad.Name
		config["physicalNetworkName"], config["netAttachDefName"], vlan = n.Device, nad.String(), "vlanID"
	}
	for key, value := range map[string]int{vlan: n.VLAN, "mtu": n.MTU} {
		if value != 0 {
			config[key] = value
		}
	}
	text, err := json.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("encoding the CNI configuration of %s: %w", nad, err)
	}
	return string(text), nil
}

// ForMachines reports whether VMs can use the network, with the bridge binding that HyperShift configures in KubeVirt.
// It is false for macvlan.
func (n *MachineNetwork) ForMachines() bool { return n.Kind != macvlanNetwork }
