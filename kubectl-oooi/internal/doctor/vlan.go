package doctor

import "github.com/densityops/oooi/api/v1alpha1"

var interfacesUp = problemCheck(Check{
	Code: "OOOI-LNK-001", Title: "the pods' interfaces on the VLAN are up",
	About: "A daemon reads from the kernel whether the pod's interface `net1` exists and has a carrier, since Multus reports only the state at the pod's start.",
})

var interfaceAddresses = problemCheck(Check{
	Code: "OOOI-LNK-002", Title: "the pods' interfaces on the VLAN have their addresses",
	About: "Only a new pod restores an address that was removed from a running pod's interface.",
})

var hostsUnique = problemCheck(Check{
	Code: "OOOI-LNK-005", Title: "no other host uses an address of the pods, the gateway or apps",
	About: "Pods probe each other's addresses by ARP. If another MAC address answers, VMs' packets go to that host. A pod's kernel sends " +
		"requests only to the MAC address that it knows, so that it misses a host that only answers requests. Container `holder` of a proxy with `instances` finds " +
		"such a host: it broadcasts probes for the addresses of DNS, DHCP and all proxy replicas. Without `instances`, no container has permission to send " +
		"these probes (`NET_RAW`), and the host is not found while the pods know the right MAC address. OOOI-PRX-016 checks the floating address.",
})

var mtusEqual = problemCheck(Check{
	Code: "OOOI-LNK-003", Title: "the pods' interfaces on the VLAN have the same MTU",
	About: "If the MTUs differ, large packets, for example with certificates, are lost in one direction.",
})

var podsReachable = problemCheck(Check{
	Code: "OOOI-LNK-004", Title: "the pods reach each other on the VLAN",
	About: "If a pod's interface is up but the pod no longer answers the other pods, it is on another VLAN or bridge, or a filter drops its packets. " +
		"A pod is not reported if it misses only one host that other pods reach. OOOI-PRX-012 reports an apps address that answers only some pods.",
})

var hostsAnswer = problemCheck(Check{
	Code: "OOOI-LNK-007", Title: "hosts other than oooi's pods answer on the VLAN",
	About: "If the gateway and running VMs no longer answer while the pods still reach each other, the switch port of the pods' nodes does " +
		"not carry the VLAN, or the interface to the switch is down. Two silent hosts are reported after 45 seconds, and a single VM, which may reboot, after " +
		"two minutes.",
})

var portsOpen = problemCheck(Check{
	Code: "OOOI-LNK-010", Title: "the proxy accepts connections over the VLAN", Component: v1alpha1.ComponentProxy,
	About: "DNS pods connect to the ports of the proxy over the VLAN, as VMs do. A filter on a node or in the switch drops or rejects the connections.",
})

var handshakesFinish = problemCheck(Check{
	Code: "OOOI-LNK-016", Title: "the proxy's replies reach clients", Component: v1alpha1.ComponentProxy,
	About: "The kernel counts connections whose first reply is repeated. Causes are stateful firewalls that see only one direction, and clients that no " +
		"longer exist.",
})
