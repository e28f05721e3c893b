package status

import (
	"fmt"
	"regexp"
)

// Messages of CNI plugins about a network that is missing on a node.
var (
	missingPlugin  = regexp.MustCompile(`failed to find plugin \\?"([^"\\]+)\\?"`)
	missingMapping = regexp.MustCompile(`failed to find OVN bridge-mapping for network: \\*"([^"\\]+)\\*"`)
	missingLink    = regexp.MustCompile(`(?i)link not found|no such network interface|no such device|failed to lookup (master|bridge|iface)`)
)

// otherNodes is the remedy if only some nodes have the VLAN.
const otherNodes = "select the nodes that have the VLAN in spec.nodePlacement, and run setup"

// NetworkFailure returns the cause and the remedy from the Event of a pod without a network; empty if the cause is unknown. The
// node may be empty.
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
		return fmt.Sprintf("network %s lacks an OVN bridge mapping %s", network[1], onNode),
			fmt.Sprintf("map the network to a bridge %s: create a NodeNetworkConfigurationPolicy that selects the node, with desiredState.ovn.bridge-mappings: "+
				"[{localnet: %s, bridge: BRIDGE, state: present}]; or %s", onNode, network[1], otherNodes)
	case missingLink.MatchString(message):
		return "an interface of the NetworkAttachmentDefinition does not exist " + onNode,
			"create the bridge or VLAN interface " + onNode + ", or " + otherNodes
	}
	return "", ""
}
