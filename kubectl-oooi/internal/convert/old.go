package convert

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// dhcpServer is the operator's DHCPServer.
type dhcpServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		NetworkConfig struct {
			CIDR       string   `json:"cidr"`
			Gateway    string   `json:"gateway"`
			ServerIP   string   `json:"serverIP"`
			DNSServers []string `json:"dnsServers"`
			attachment
		} `json:"networkConfig"`
		LeaseConfig struct {
			RangeStart string `json:"rangeStart"`
			RangeEnd   string `json:"rangeEnd"`
			LeaseTime  string `json:"leaseTime"`
		} `json:"leaseConfig"`
		Options []dhcpOption `json:"options"`
		Image   string       `json:"image"`
	} `json:"spec"`
}

// dhcpOption is one of its options, whose value has no type.
type dhcpOption struct {
	Code  int    `json:"code"`
	Value string `json:"value"`
}

// dnsServer is the operator's DNSServer.
type dnsServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		NetworkConfig struct {
			ServerIP             string `json:"serverIP"`
			ProxyIP              string `json:"proxyIP"`
			InternalProxyIP      string `json:"internalProxyIP"`
			SecondaryNetworkCIDR string `json:"secondaryNetworkCIDR"`
			DNSPort              int32  `json:"dnsPort"`
			attachment
		} `json:"networkConfig"`
		HostedClusterDomain string        `json:"hostedClusterDomain"`
		StaticEntries       []staticEntry `json:"staticEntries"`
		UpstreamDNS         []string      `json:"upstreamDNS"`
		Image               string        `json:"image"`
		ReloadInterval      string        `json:"reloadInterval"`
		CacheTTL            string        `json:"cacheTTL"`
	} `json:"spec"`
}

// staticEntry is a name with its address.
type staticEntry struct {
	Hostname string `json:"hostname"`
	IP       string `json:"ip"`
}

// attachment is how its DHCPServers and DNSServers name a network.
type attachment struct {
	NetworkAttachmentName      string `json:"networkAttachmentName"`
	NetworkAttachmentNamespace string `json:"networkAttachmentNamespace"`
}

// What the operator's defaults were, where they mean nothing here.
const (
	oldCacheTTL       = "30s"
	oldReloadInterval = "5s"
	oldDNSPort        = 53
	oldAppsService    = "oooi-ingress"
)
