package problem

import (
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Code is the code of a kind of problem, in CamelCase. It is the reason of the condition that the problem makes false.
type Code string

// Codes of problems of daemons.
const (
	// DataStale: a daemon does not receive updates from the API server.
	DataStale Code = "DataStale"
	// ObjectsKept: objects disappeared from the API server, and a daemon still uses them.
	ObjectsKept Code = "ObjectsKept"
	// SnapshotNotWritten: a daemon cannot write its snapshot file.
	SnapshotNotWritten Code = "SnapshotNotWritten"
	// ConfigurationOutdated: a daemon's configuration differs from its file.
	ConfigurationOutdated Code = "ConfigurationOutdated"
)

// Codes of problems of the VLAN, which control finds by comparing the views of all pods of an Infra.
const (
	// InterfaceDown: a pod's interface on the VLAN is missing, down or without carrier.
	InterfaceDown Code = "InterfaceDown"
	// InterfaceAddressMissing: a pod's interface lacks an address that it was assigned.
	InterfaceAddressMissing Code = "InterfaceAddressMissing"
	// MTUMismatch: interfaces of pods on the same VLAN have different MTUs.
	MTUMismatch Code = "MTUMismatch"
	// AddressInUse: another host uses an address of a pod, of the gateway or of apps.
	AddressInUse Code = "AddressInUse"
	// PodUnreachable: a pod does not answer other pods on the VLAN.
	PodUnreachable Code = "PodUnreachable"
	// ProxyPortClosed: a port of the proxy accepts no connections over the VLAN, although its host is there.
	ProxyPortClosed Code = "ProxyPortClosed"
	// NoOtherHostAnswers: only oooi's pods answer on the VLAN.
	NoOtherHostAnswers Code = "NoOtherHostAnswers"
)

// Codes of problems of DHCP.
const (
	// RangesFull: the DHCP ranges are full or nearly full.
	RangesFull Code = "RangesFull"
	// LeasedAddressInUse: another host uses an address of the DHCP ranges.
	LeasedAddressInUse Code = "LeasedAddressInUse"
	// LeaseLost: the Lease of a VM was deleted or edited.
	LeaseLost Code = "LeaseLost"
	// LeaseNotRenewed: a VM does not renew its lease.
	LeaseNotRenewed Code = "LeaseNotRenewed"
	// LeaseStoreFailing: leases cannot be read or stored.
	LeaseStoreFailing Code = "LeaseStoreFailing"
	// PacketsDropped: DHCP packets are dropped.
	PacketsDropped Code = "PacketsDropped"
	// OtherDHCPServer: another DHCP server replies on the VLAN.
	OtherDHCPServer Code = "OtherDHCPServer"
	// OffersIgnored: a VM requests none of the addresses that it is offered.
	OffersIgnored Code = "OffersIgnored"
	// DuplicateMAC: several VMs, or a VM and a pod, have the same MAC address.
	DuplicateMAC Code = "DuplicateMAC"
	// AnnotationInvalid: an annotation of a VM is invalid.
	AnnotationInvalid Code = "AnnotationInvalid"
	// UnknownClient: a client with a MAC address of no VM requests an address.
	UnknownClient Code = "UnknownClient"
)

// Codes of problems of DNS.
const (
	// UpstreamFailing: an upstream resolver does not answer, or slowly.
	UpstreamFailing Code = "UpstreamFailing"
)

// Codes of problems of the proxy.
const (
	// BackendUnreachable: an endpoint of a backend refuses connections, or they time out.
	BackendUnreachable Code = "BackendUnreachable"
	// BackendHandshakeFailing: an endpoint accepts connections and completes no TLS handshake.
	BackendHandshakeFailing Code = "BackendHandshakeFailing"
	// BackendCertificateInvalid: the certificate of a backend does not contain its name, has expired or expires soon.
	BackendCertificateInvalid Code = "BackendCertificateInvalid"
	// HandshakesUnfinished: clients do not receive the proxy's packets.
	HandshakesUnfinished Code = "HandshakesUnfinished"
	// StatusNotWritten: a status cannot be written.
	StatusNotWritten Code = "StatusNotWritten"
	// AddressNotHeld: no ready proxy replica has the floating address.
	AddressNotHeld Code = "AddressNotHeld"
	// AddressHeldTwice: two hosts have the floating address.
	AddressHeldTwice Code = "AddressHeldTwice"
	// AddressUnstable: the floating address moves again and again.
	AddressUnstable Code = "AddressUnstable"
	// LeaseNotRenewable: the Lease of the floating address cannot be read or written.
	LeaseNotRenewable Code = "LeaseNotRenewable"
	// SourceLimitsNotApplied: the limits of clients do not apply.
	SourceLimitsNotApplied Code = "SourceLimitsNotApplied"
)

// Codes of problems of control.
const (
	// NoLeader: no replica of control leads, or the leader cannot renew its Lease.
	NoLeader Code = "NoLeader"
	// ServiceUnreachable: the cluster IP of a Service of oooi does not accept connections.
	ServiceUnreachable Code = "ServiceUnreachable"
	// PodNotAnswering: control cannot read the problems of a ready pod.
	PodNotAnswering Code = "PodNotAnswering"
	// LeftInHostedCluster: objects of a deleted Infra remain in a hosted cluster.
	LeftInHostedCluster Code = "LeftInHostedCluster"
)

// Severities in the texts of kinds.
const fails, warns = string(Fail), string(Warn)

// noEndpoint is the severity of kinds whose problems fail if no endpoint of a backend works.
const noEndpoint = fails + " if no endpoint of the backend works; " + warns + " if one does"

// Kind describes a code.
type Kind struct {
	Code Code
	// Check is the code of doctor's check that prints problems of this kind; several kinds can have the same.
	Check string
	// Severity is the severity of its problems, or a text that says when they have which.
	Severity string
	// Condition is the condition that a problem of severity Fail makes false, of the Infra or ProxyServer of the pod; empty for
	// none.
	Condition string
	// Remedy is what to do, as an imperative, unless the problem has another one.
	Remedy string
}

// Kind returns the kind of a code; one without a check, condition and remedy for an unknown code, as of a later version.
func (c Code) Kind() Kind {
	if at := c.position(); at < len(Kinds) {
		return Kinds[at]
	}
	return Kind{Code: c}
}

// position returns the position of a code in Kinds, or their number for an unknown code.
func (c Code) position() int {
	if at := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Code == c }); at >= 0 {
		return at
	}
	return len(Kinds)
}

// Kinds are all kinds, in the order of causes: the first problem of severity Fail is the reason of its condition.
var Kinds = []Kind{
	{NoLeader, "OOOI-CTL-004", fails, "", "see the logs of control's pods, and Lease oooi-system/oooi-control"},
	{DataStale, "OOOI-API-006", fails + " for coredhcp, which then serves no new VMs; " + warns + " for other daemons", "",
		"see the pod's log, and check that the pod reaches the API server"},
	{ObjectsKept, "OOOI-API-007", warns, "", "create the objects again; to remove an Infra, run 'kubectl oooi teardown'"},
	{StatusNotWritten, "OOOI-CTL-005", fails, "", "correct the cause of the error"},
	{SnapshotNotWritten, "OOOI-POD-011", warns, "", "check the pod's volume, and the disk of its node"},
	{ConfigurationOutdated, "OOOI-POD-013", warns, "", "replace the pod"},
	{PodNotAnswering, "OOOI-POD-014", warns, "",
		"delete the pod if its process hangs; otherwise check for a NetworkPolicy that denies connections from control"},

	{InterfaceDown, "OOOI-LNK-001", fails, v1alpha1.ConditionVLANReady,
		"check the bridge and the CNI plugins of the pod's node; delete the pod to create its interface again"},
	{InterfaceAddressMissing, "OOOI-LNK-002", fails, v1alpha1.ConditionVLANReady, "delete the pod to create its interface again"},
	{AddressInUse, "OOOI-LNK-005", fails + "; " + warns + " if two hosts answer in turn for the gateway's address", v1alpha1.ConditionVLANReady,
		"find the host by its MAC address, in the switch or with " +
			"kubectl get vmi -A -o custom-columns='NAMESPACE:.metadata.namespace,VM:.metadata.name,MAC:.status.interfaces[*].mac', and give it another address"},
	{MTUMismatch, "OOOI-LNK-003", fails, v1alpha1.ConditionVLANReady, "set the same MTU on the VLAN's interfaces of all nodes"},
	{PodUnreachable, "OOOI-LNK-004", fails, v1alpha1.ConditionVLANReady, "check the VLAN ID, the bridge and the filters of the pod's node"},
	{NoOtherHostAnswers, "OOOI-LNK-007", fails, v1alpha1.ConditionVLANReady,
		"check the interface that connects the VLAN's bridge to the switch, and the VLANs of the switch's port"},
	{ProxyPortClosed, "OOOI-LNK-010", fails, v1alpha1.ConditionVLANReady,
		"find the filter: 'nft list ruleset' on the proxy's node and in its pod, MultiNetworkPolicies, ACLs of the switch"},

	{LeaseStoreFailing, "OOOI-DHCP-012", fails, v1alpha1.ConditionDHCPReady, "correct the cause of the error; clients without an address repeat their requests"},
	{RangesFull, "OOOI-DHCP-002", fails + " if no address is free; " + warns + " if at most 10 % are", v1alpha1.ConditionDHCPReady,
		"extend infraComponents.dhcp.ranges, or delete VMs that are no longer used: their addresses become free after one minute, " +
			"or after the lease time and 10 minutes if coredhcp did not see the deletion"},
	{OtherDHCPServer, "OOOI-DHCP-014", fails + " if a VM accepted the server's address or lost its own; " + warns + " if the server only replies",
		v1alpha1.ConditionDHCPReady,
		"find the server by its address and stop it, or block its packets in the switch; then restart the clients that have its addresses"},
	{OffersIgnored, "OOOI-DHCP-017", fails, v1alpha1.ConditionDHCPReady,
		"find what drops packets from UDP port 67 on the way to VMs, such as DHCP snooping of the switch"},
	{PacketsDropped, "OOOI-DHCP-018", warns, "", "see OooiDHCPDropsPackets in docs/reference/alerts.md"},
	{LeasedAddressInUse, "OOOI-DHCP-004", fails + " if the address is leased to a VM; " + warns + " if it is not, since DHCP then leases it to no client", "",
		"find the host in the MAC address table of the switch, and give it another address, or exclude its address from the DHCP ranges"},
	{DuplicateMAC, "OOOI-DHCP-009", fails, "", "assign a unique MAC address and restart the VM"},
	{AnnotationInvalid, "OOOI-DHCP-010", warns, "", "correct the annotation: docs/reference/dhcp.md has the syntax"},
	{UnknownClient, "OOOI-DHCP-015", warns, "", "set the MAC address in the VM's specification to the one that it uses, or attach the VM to the Infra's network"},
	{LeaseLost, "OOOI-DHCP-016", fails + " if the Lease was edited and names another client; " + warns + " if it was deleted", "",
		"restart the VM's DHCP client, or let it renew: coredhcp then stores the lease again"},
	{LeaseNotRenewed, "OOOI-DHCP-005", warns, "", "check the VM's network; if the VM was migrated, compare the MAC addresses of the VM and its pod"},

	{UpstreamFailing, "OOOI-DNS-007", fails + " if no resolver works: each is silent, fails a quarter of its health checks or more, returns SERVFAIL for all " +
		"names, or is oooi's DNS; otherwise " + warns, v1alpha1.ConditionUpstreamReady,
		"correct networkConfig.dnsServers, or the path from the DNS pods to the resolver"},

	{AddressHeldTwice, "OOOI-PRX-016", fails, v1alpha1.ConditionProxyReady, "find the other host by its MAC address, and remove the address from it"},
	{AddressNotHeld, "OOOI-PRX-017", fails, v1alpha1.ConditionProxyReady, "see the logs of container holder in the proxy's pods"},
	{AddressUnstable, "OOOI-PRX-017", warns, "", "see the logs of container holder: the proxy's readiness changes, or the VLAN loses frames"},
	{LeaseNotRenewable, "OOOI-API-006", warns, "", "check that the pod reaches the API server, and that its ServiceAccount may update the Lease"},
	{BackendUnreachable, "OOOI-PRX-012", noEndpoint + "; " + fails + " if an apps address does not answer ARP requests", v1alpha1.ConditionBackendsReady,
		"see the pods of the backend's Service, and the NetworkPolicies that select them"},
	{BackendHandshakeFailing, "OOOI-PRX-018", noEndpoint, v1alpha1.ConditionBackendsReady, "see the log of the endpoint's pod"},
	{BackendCertificateInvalid, "OOOI-PRX-019", noEndpoint + ", or if the certificate expires within 7 days", v1alpha1.ConditionBackendsReady,
		"check spec.configuration.apiServer.servingCerts of the HostedCluster and the Service's selector"},
	{HandshakesUnfinished, "OOOI-LNK-016", fails, "", "find what drops these packets, such as a stateful firewall that does not see both directions"},
	{SourceLimitsNotApplied, "OOOI-PRX-013", warns, "", "load the kernel module that the message names on the proxy's nodes"},
	{ServiceUnreachable, "OOOI-SVC-004", fails, "", "check kube-proxy or its replacement on the nodes"},
	{LeftInHostedCluster, "OOOI-OLD-004", warns, "", "delete the objects in the hosted cluster"},
}
