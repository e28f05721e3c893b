package verify

import (
	"fmt"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
)

// A Client is one of the two pods that send requests.
type Client string

// The clients.
const (
	VLAN Client = "vlan"
	Pod  Client = "pod"
)

// clientNames names the users that a client represents.
var clientNames = map[Client]string{VLAN: "VMs", Pod: "pods"}

// Groups of scenarios.
const (
	GroupDHCP      = "dhcp"
	GroupDNS       = "dns"
	GroupTLS       = "tls"
	GroupApps      = "apps"
	GroupNetwork   = "network"
	GroupIsolation = "isolation"
	// GroupEgress has scenarios about servers outside of the cluster.
	GroupEgress = "egress"
	// GroupDisruption has the disruptive scenarios.
	GroupDisruption = "disruption"
)

// A Scenario is one property of a site that VMs or pods rely on. It passes if all its requests pass.
type Scenario struct {
	// Name identifies the scenario, such as dns-vlan-names. It is stable.
	Name  string
	Group string
	// Clients send the requests.
	Clients []Client
	// Needs is the name of a scenario. If that scenario fails, this one is skipped. Empty for none.
	Needs string
	// Title is the property: a sentence that is true if the scenario passes.
	Title string
	// Remedy is what to do if the scenario fails, as an imperative.
	Remedy string
}

// Names of scenarios that others need.
const (
	dhcpLease  = "dhcp-lease"
	dnsVLANUDP = "dns-vlan-udp"
)

// Remedies of several scenarios.
const (
	dhcpRemedy     = "see the logs of the DHCP pods; if DHCP was set up by an earlier version, run 'kubectl oooi setup' again"
	dnsRemedy      = "see the logs of the DNS pods, and 'kubectl oooi resolve NAME' for the expected response"
	upstreamRemedy = "check spec.networkConfig.dnsServers of the Infra, and that the nodes reach these resolvers over UDP and TCP"
	tlsRemedy      = "run 'kubectl oooi routes -o wide' to find the backend of the name, and check the backend's log and certificate"
	appsRemedy     = "check the apps Service and its load balancer; see docs/how-to/apps-ingress.md"
)

var (
	onVLAN = []Client{VLAN}
	both   = []Client{VLAN, Pod}
)

// Scenarios returns all scenarios, by group. A scenario comes after the scenario that it needs.
func Scenarios() []Scenario {
	list := []Scenario{
		{dhcpLease, GroupDHCP, onVLAN, "", "DHCP leases an address of the ranges to a VM", dhcpRemedy},
		{"dhcp-options", GroupDHCP, onVLAN, dhcpLease, "DHCP sends the host name, and the gateway and DNS servers of the Infra", dhcpRemedy},
		{
			"dhcp-servers", GroupDHCP, onVLAN, dhcpLease, "no other DHCP server answers on the VLAN",
			"find the server by its address and stop it, or block its packets in the switch",
		},
	}
	for _, c := range both {
		clients, prefix := map[Client]string{VLAN: "VMs", Pod: "pods"}[c], "dns-"+string(c)+"-"
		list = append(list, []Scenario{
			{prefix + "udp", GroupDNS, []Client{c}, "", clients + " get DNS responses over UDP", "check that no firewall filters UDP port 53: " + dnsRemedy},
			{prefix + "names", GroupDNS, []Client{c}, prefix + "udp", clients + " resolve all names of the hosted cluster", dnsRemedy},
			{prefix + "tcp", GroupDNS, []Client{c}, "", clients + " get DNS responses over TCP", "check that no firewall filters TCP port 53: " + dnsRemedy},
			{
				prefix + "edns", GroupDNS, []Client{c}, prefix + "udp", clients + " get DNS responses to queries with EDNS",
				"check that no device in between drops DNS packets with EDNS: " + dnsRemedy,
			},
			{prefix + "negative", GroupDNS, []Client{c}, prefix + "udp", clients + " get NXDOMAIN for names that do not exist", dnsRemedy},
			{prefix + "upstream", GroupDNS, []Client{c}, prefix + "udp", clients + " resolve other names by the upstream resolvers", upstreamRemedy},
			{prefix + "upstream-tcp", GroupDNS, []Client{c}, prefix + "tcp", clients + " resolve other names over TCP", upstreamRemedy},
		}...)
	}
	for _, s := range services {
		title := fmt.Sprintf("VMs and pods reach %s through the proxy, with a certificate %s", s.role, s.promise)
		list = append(list, Scenario{"tls-" + s.name, GroupTLS, both, "", title, tlsRemedy})
	}
	list = append(list, []Scenario{
		{"apps-https", GroupApps, both, "", "VMs and pods reach apps over HTTPS, with a certificate for the name", appsRemedy},
		{"apps-http", GroupApps, both, "", "VMs and pods reach apps over HTTP", appsRemedy},
		{
			"mtu-vlan", GroupNetwork, onVLAN, dnsVLANUDP, "packets up to the MTU pass the VLAN unfragmented",
			"compare the VLAN's MTU on all nodes and switches with the NetworkAttachmentDefinition's MTU",
		},
		{
			"egress-registry", GroupEgress, onVLAN, dnsVLANUDP, "VMs reach a registry of the release image over HTTPS, with a certificate for its name",
			"list the registry in spec.egress.hosts of the Infra, or check the VLAN's router; 'kubectl oooi egress INFRA -o wide' shows why the proxy " +
				"closed connections",
		},
		{
			"isolation-names", GroupIsolation, onVLAN, dnsVLANUDP, "names of other hosted clusters do not resolve to their addresses on this VLAN",
			"compare spec.networkConfig.networkAttachmentDefinition of both Infras: Infras with the same one share a VLAN",
		},
		{
			"isolation-proxy", GroupIsolation, onVLAN, "", "the proxy does not route names of other hosted clusters",
			"run 'kubectl oooi routes -o wide' to find the route, and remove it from the ProxyServer",
		},
		{
			"isolation-addresses", GroupIsolation, onVLAN, "", "addresses of other hosted clusters cannot be reached from this VLAN",
			"check the router of the VLAN, and that the switches separate the VLANs",
		},
	}...)
	for _, component := range []string{v1alpha1.ComponentDHCP, v1alpha1.ComponentDNS, v1alpha1.ComponentProxy} {
		list = append(list, Scenario{
			"replace-" + component, GroupDisruption, onVLAN, "", fmt.Sprintf("VMs quickly get %s again after a pod is deleted", serviceNames[component]),
			"find out with 'kubectl describe pod' why the pod starts late; for a second replica, see docs/how-to/add-replicas.md",
		})
	}
	return list
}

// Quick returns the scenarios that doctor runs: they are not disruptive, and take about ten seconds if they pass. They exclude isolation,
// whose requests increase with the number of clusters and time out if they pass, and egress, which depends on external servers.
func Quick() []Scenario {
	return slices.DeleteFunc(Scenarios(), func(s Scenario) bool {
		return slices.Contains([]string{GroupDisruption, GroupIsolation, GroupEgress}, s.Group)
	})
}
