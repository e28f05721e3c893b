// Package cni reads the CNI configuration in spec.config of a NetworkAttachmentDefinition, and identifies the
// network to which it attaches pods and VMs.
//
// A VLAN is a network, not the name of a NetworkAttachmentDefinition: each namespace has its own
// NetworkAttachmentDefinition of one network if Multus isolates namespaces. Two NetworkAttachmentDefinitions with the
// same Identity belong to the same network.
package cni

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is the resource of NetworkAttachmentDefinitions.
var Resource = schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}

// OVNKubernetes is the CNI plugin of OVN-Kubernetes. It cannot be chained with other plugins.
const OVNKubernetes = "ovn-k8s-cni-overlay"

// localnet is the topology of a network of OVN-Kubernetes that is connected to a physical network.
const localnet = "localnet"

// maxVLAN is the highest VLAN ID (IEEE 802.1Q).
const maxVLAN = 4094

// Plugins returns the plugins of a CNI configuration or configuration list; there is at least one. The first one creates
// the interface, and has the name of the list if it has none.
func Plugins(config string) ([]map[string]any, error) {
	var list struct {
		Name    string           `json:"name"`
		Plugins []map[string]any `json:"plugins"`
	}
	var single map[string]any
	for _, into := range []any{&single, &list} {
		if err := json.Unmarshal([]byte(config), into); err != nil {
			return nil, fmt.Errorf("spec.config is not a CNI configuration: %w", err)
		}
	}
	plugins := list.Plugins
	if len(plugins) == 0 {
		plugins = []map[string]any{single}
	}
	first := plugins[0]
	if first["type"] == nil {
		return nil, errors.New("spec.config is not a CNI configuration: the fields type and plugins are missing")
	}
	if first["name"] == nil && list.Name != "" {
		first["name"] = list.Name
	}
	return plugins, nil
}

// Identity returns the identity of the network to which a CNI configuration attaches pods: where their untagged frames
// are sent. It is empty if the configuration does not identify the network.
//
//   - bridge, cnv-bridge, ovs: the bridge and the VLAN ID
//   - macvlan, ipvlan, vlan: the master interface and the VLAN ID
//   - OVN-Kubernetes, topology localnet: the physical network and the VLAN ID. They are a function of the network's name,
//     because OVN-Kubernetes refuses a second configuration with the same name. Logical networks with different names
//     on one physical network and VLAN are one network, because the physical network joins them.
//   - OVN-Kubernetes, other topologies: the topology and the network's name
func Identity(config string) string {
	p := creator(config)
	switch text(p, "type") {
	case "bridge", "cnv-bridge":
		return onVLAN("bridge "+cmp.Or(text(p, "bridge"), "cni0"), p["vlan"]) // the plugin's default
	case "ovs":
		if bridge := text(p, "bridge"); bridge != "" {
			return onVLAN("ovs bridge "+bridge, p["vlan"])
		}
	case "macvlan", "ipvlan", "vlan":
		if p["linkInContainer"] != true {
			return onVLAN("interface "+cmp.Or(text(p, "master"), "of the default route"), p["vlanId"]) // the default of macvlan and ipvlan
		}
	case OVNKubernetes:
		topology, name := text(p, "topology"), text(p, "name")
		physical := cmp.Or(text(p, "physicalNetworkName"), name) // OVN-Kubernetes' default
		switch {
		case topology == localnet && physical != "":
			return onVLAN("localnet "+physical, p["vlanID"])
		case topology != "" && topology != localnet && name != "":
			return topology + " " + name
		}
	}
	return ""
}

// kept are the fields that Identity and ChecksMAC read.
var kept = []string{checksMAC, "type", "name", "bridge", "vlan", "vlanId", "vlanID", "master", "linkInContainer", "topology", "physicalNetworkName"}

// Reduce returns a CNI configuration with the same Identity and ChecksMAC, and no further fields, which may contain secrets;
// empty for one that does not identify its network.
func Reduce(config string) string {
	if Identity(config) == "" {
		return ""
	}
	p := creator(config)
	reduced := map[string]any{}
	for _, field := range kept {
		if value, ok := p[field]; ok {
			reduced[field] = value
		}
	}
	data, _ := json.Marshal(reduced) // cannot fail: the values were unmarshaled
	return string(data)
}

// creator returns the plugin that creates the interface; nil for an invalid configuration.
func creator(config string) map[string]any {
	plugins, err := Plugins(config)
	if err != nil {
		return nil
	}
	return plugins[0]
}

// text returns a string field of a plugin; empty if it is missing or not a string.
func text(p map[string]any, field string) string {
	s, _ := p[field].(string)
	return s
}

// onVLAN returns the identity of a VLAN on a link; empty if id is not a VLAN ID. Untagged frames have VLAN 0.
func onVLAN(link string, id any) string {
	number := 0.0
	switch id := id.(type) {
	case nil:
	case float64:
		number = id
	case string: // some plugins accept it
		n, err := strconv.Atoi(strings.TrimSpace(id))
		if err != nil {
			return ""
		}
		number = float64(n)
	default:
		return ""
	}
	if number != math.Trunc(number) || number < 0 || number > maxVLAN {
		return ""
	}
	return fmt.Sprintf("%s vlan %d", link, int(number))
}

// StaticIPAM is the result of IPAM for a configuration that assigns the addresses that a pod requests, and no others.
const StaticIPAM = "ipam of type static"

// DHCPIPAM is the result of IPAM for a configuration with which the node requests a lease of a DHCP server when a pod starts,
// such as a ClusterUserDefinedNetwork with ipam.mode DHCP (OVN-Kubernetes 1.4, its OKEP-6224).
const DHCPIPAM = "ipam of type dhcp"

// IPAM returns the field with which a CNI configuration assigns addresses, "ipam" or "subnets", or StaticIPAM or DHCPIPAM; empty if
// it assigns none. The configuration of the VMs' network must not assign addresses, because KubeVirt's DHCP server
// would offer them. IPAM returns an error if the configuration is invalid.
func IPAM(config string) (string, error) {
	plugins, err := Plugins(config)
	if err != nil {
		return "", err
	}
	if ipam, ok := plugins[0]["ipam"].(map[string]any); ok && len(ipam) > 0 {
		if ipam["type"] == "static" && ipam["addresses"] == nil {
			return StaticIPAM, nil
		}
		if ipam["type"] == "dhcp" {
			return DHCPIPAM, nil
		}
		return "ipam", nil
	}
	if text(plugins[0], "subnets") != "" && plugins[0]["type"] == OVNKubernetes {
		return "subnets", nil
	}
	return "", nil
}

// MTU returns the MTU in a CNI configuration; 0 if it has none.
func MTU(config string) int {
	mtu, _ := creator(config)["mtu"].(float64)
	return int(mtu)
}

// checksMAC is the field of the plugin bridge that ChecksMAC reads.
const checksMAC = "macspoofchk"

// ChecksMAC reports whether a bridge drops frames of a VM with another source address than its pod's interface has. It is
// false for an invalid configuration.
func ChecksMAC(config string) bool {
	return creator(config)[checksMAC] == true
}

// IsOVN reports whether a CNI configuration uses the plugin of OVN-Kubernetes. It is false for an invalid
// configuration.
func IsOVN(config string) bool {
	return creator(config)["type"] == OVNKubernetes
}
