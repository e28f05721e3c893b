package convert

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A dhcpServer is a DHCPServer of the earlier operator.
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

// A dhcpOption is an option of a DHCPServer. The operator's options have no type.
type dhcpOption struct {
	Code  int    `json:"code"`
	Value string `json:"value"`
}

// A dnsServer is a DNSServer of the earlier operator.
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

// A staticEntry is a record of a DNSServer.
type staticEntry struct {
	Hostname string `json:"hostname"`
	IP       string `json:"ip"`
}

// An attachment refers to a network in a DHCPServer or DNSServer.
type attachment struct {
	NetworkAttachmentName      string `json:"networkAttachmentName"`
	NetworkAttachmentNamespace string `json:"networkAttachmentNamespace"`
}

// Defaults of the earlier operator.
const (
	oldCacheTTL       = "30s"
	oldReloadInterval = "5s"
	oldDNSPort        = 53
	oldAppsService    = "oooi-ingress"
)
