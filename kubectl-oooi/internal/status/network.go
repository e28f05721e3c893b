package status

import (
	"fmt"
	"regexp"
)

// Messages of CNI plugins about a network that a node does not have.
var (
	missingPlugin  = regexp.MustCompile(`failed to find plugin \\?"([^"\\]+)\\?"`)
	missingMapping = regexp.MustCompile(`failed to find OVN bridge-mapping for network: \\*"([^"\\]+)\\*"`)
	missingLink    = regexp.MustCompile(`(?i)link not found|no such network interface|no such device|failed to lookup (master|bridge|iface)`)
)

// NetworkFailure returns what the Event of a pod without a network says about its node, and the remedy; empty if the cause
// is unknown. The node may be empty.
func NetworkFailure(message, node string) (why, remedy string) {
	onNode := "on the node"
	if node != "" {
		onNode = "on node " + node
	}
	plugin, network := missingPlugin.FindStringSubmatch(message), missingMapping.FindStringSubmatch(message)
	switch {
	case plugin != nil:
		return fmt.Sprintf("CNI plugin %s is not installed %s", plugin[1], onNode),
			fmt.Sprintf("install the plugin in the CNI directory %s (/opt/cni/bin; /var/lib/cni/bin on OpenShift), or correct the type in the configuration of "+
				"the NetworkAttachmentDefinition", onNode)
	case network != nil:
		return fmt.Sprintf("network %s has no OVN bridge mapping %s", network[1], onNode),
			fmt.Sprintf("map the network to a bridge %s: create a NodeNetworkConfigurationPolicy that selects the node, with desiredState.ovn.bridge-mappings: "+
				"[{localnet: %s, bridge: BRIDGE, state: present}]", onNode, network[1])
	case missingLink.MatchString(message):
		return "an interface of the NetworkAttachmentDefinition does not exist " + onNode,
			"create the bridge or VLAN interface " + onNode + ", or place oooi's pods on nodes that have it: docs/how-to/several-vlans.md#place-pods-on-the-vlans-nodes"
	}
	return "", ""
}
