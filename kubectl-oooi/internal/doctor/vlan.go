package doctor

import "github.com/densityops/oooi/api/v1alpha1"

var interfacesUp = problemCheck(Check{
	Code: "OOOI-LNK-001", Title: "the pods' interfaces on the VLAN are up",
	About: "The kernel of a pod reports whether its interface `net1` exists and has a carrier, whatever Multus has reported when the pod started.",
})

var interfaceAddresses = problemCheck(Check{
	Code: "OOOI-LNK-002", Title: "the pods' interfaces on the VLAN have their addresses",
	About: "An address that was removed from an interface of a running pod comes back only with a new pod.",
})

var hostsUnique = problemCheck(Check{
	Code: "OOOI-LNK-005", Title: "no other host uses an address of the pods, the gateway or apps",
	About: "Pods probe each other's addresses by ARP. If another MAC address answers, packets of VMs go to that host. The kernel of a pod sends its " +
		"requests only to the host that it knows. A host that answers requests and never sends one is found by the container `holder` of a proxy with " +
		"`instances`, which broadcasts probes for the addresses of DNS, DHCP and all proxy replicas. Without `instances`, no container may send them " +
		"(`NET_RAW`), and such a host is not found while the pods know the right host. OOOI-PRX-016 checks the floating address.",
})

var mtusEqual = problemCheck(Check{
	Code: "OOOI-LNK-003", Title: "the pods' interfaces on the VLAN have the same MTU",
	About: "If the MTUs differ, large packets, such as those with certificates, are lost in one direction.",
})

var podsReachable = problemCheck(Check{
	Code: "OOOI-LNK-004", Title: "the pods reach each other on the VLAN",
	About: "A pod that no longer answers the others, although its interface is up, is on another VLAN or bridge, or a filter drops its packets. " +
		"A pod that does not reach a single host, which answers other pods, is not at fault for that. OOOI-PRX-012 reports an apps address that answers " +
		"some pods only.",
})

var hostsAnswer = problemCheck(Check{
	Code: "OOOI-LNK-007", Title: "hosts other than oooi's pods answer on the VLAN",
	About: "If the gateway and the running VMs that once answered are silent while the pods still reach each other, the switch port of the pods' nodes does " +
		"not carry the VLAN, or the interface to the switch is down. Two silent hosts suffice after 45 seconds. A single VM must be silent for two minutes, " +
		"because it may reboot.",
})

var portsOpen = problemCheck(Check{
	Code: "OOOI-LNK-010", Title: "the proxy accepts connections over the VLAN", Component: v1alpha1.ComponentProxy,
	About: "DNS pods connect to the ports of the proxy over the VLAN, as VMs do. A filter on a node or in the switch drops or rejects the connections.",
})

var handshakesFinish = problemCheck(Check{
	Code: "OOOI-LNK-016", Title: "the proxy's replies reach clients", Component: v1alpha1.ComponentProxy,
	About: "The kernel counts connections whose first reply is repeated. Stateful firewalls that do not see both directions, and clients that no longer " +
		"exist, cause it.",
})
