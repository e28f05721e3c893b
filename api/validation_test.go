package api_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// backend returns spec.backends with one backend, which has a name, a port, a target namespace and the given
// fields.
func backend(fields string) string {
	return fmt.Sprintf("backends: [{name: a, port: 443, targetNamespace: a, %s}]", fields)
}

// records returns spec.infraComponents with DNS records.
func records(list string) string { return "infraComponents: {dns: {records: [" + list + "]}}" }

// recordList returns n records, each with as many values as possible.
func recordList(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("{name: %s%d.example.com, type: A, values: [%s]}", strings.Repeat("long-label.", 20), i, addressList(8))
	}
	return strings.Join(list, ", ")
}

// addressList returns n different addresses, separated by commas.
func addressList(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("192.0.2.%d", i)
	}
	return strings.Join(list, ", ")
}

// TestRejectedValues checks which values an API server rejects, and with which message.
func TestRejectedValues(t *testing.T) {
	const (
		infra = "Infra"
		proxy = "ProxyServer"

		notADomain    = "must be a domain name such as example.com"
		notAnAddress  = "must be an IPv4 or IPv6 address without a prefix length"
		notANetwork   = "must be an IPv4 or IPv6 network in CIDR notation, such as 192.0.2.0/24"
		notAServerIP  = "must be an IPv4 or IPv6 address, with or without a prefix length"
		notADuration  = "should match '^([0-9]{1,5}(ms|s|m|h)){1,4}$'"
		notLong       = "must be longer than zero"
		oneTarget     = "set exactly one of targetService and targetSelector"
		notATarget    = "must be a port number from 1 to 65535, or the name of a port"
		notATargetRE  = "spec.backends[0].targetPort in body should match"
		needsBackends = "spec.backends: Required value: needs backends, or an infraRef to derive them from"
		notReachable  = "spec.appsIngress.addresses: Invalid value: "
		needsCluster  = "spec.appsIngress: Required value: appsIngress needs a hosted cluster: set spec.hostedClusterRef or spec.appsIngress.hostedClusterRef"
		target        = "hostname: a.example.com, targetService: a, targetPort: 443"
	)
	tests := []struct {
		name string
		kind string
		spec string
		want string
	}{
		// networkConfig
		{"no network", infra, `networkConfig: {}`, "spec.networkConfig.cidr: Required value"},
		{"no network attachment", infra, `networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1}`, "spec.networkConfig.networkAttachmentDefinition: Required value"},
		{"network attachment without a name", infra, `networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: ""}`, "spec.networkConfig.networkAttachmentDefinition in body should be at least 1 chars long"},
		{"subnet without a prefix length", infra, `networkConfig: {cidr: 192.0.2.0, gateway: 192.0.2.1, networkAttachmentDefinition: a}`, notANetwork},
		{"subnet that is not a network", infra, `networkConfig: {cidr: vlan seven, gateway: 192.0.2.1, networkAttachmentDefinition: a}`, notANetwork},
		{"subnet too long for IPv6", infra, `networkConfig: {cidr: "2001:db8::/129", gateway: 192.0.2.1, networkAttachmentDefinition: a}`, notANetwork},
		{"gateway with a prefix length", infra, `networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1/24, networkAttachmentDefinition: a}`, notAnAddress},
		{"further subnet without a prefix length", infra, `networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: a, additionalCIDRs: ["2001:db8::"]}`, notANetwork},
		{"further subnet too long", infra, `networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: a, additionalCIDRs: [198.51.100.0/33]}`, notANetwork},
		{"further subnet twice", infra, `networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: a, additionalCIDRs: ["2001:db8::/64", "2001:db8::/64"]}`, "Duplicate value"},

		{"too many further subnets", infra, `networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: a, additionalCIDRs: [` + strings.ReplaceAll(addressList(17), ",", "/32,") + `/32]}`, "must have at most 16 items"},

		// hostedClusterRef
		{"hosted cluster without a name", infra, `hostedClusterRef: {name: ""}`, "spec.hostedClusterRef.name: Required value: must name a HostedCluster"},
		{"hosted cluster with a namespace only", infra, `hostedClusterRef: {namespace: tenants}`, "spec.hostedClusterRef.name: Required value"},

		// infraComponents.dhcp
		{"DHCP with serverIP and instances", infra, `infraComponents: {dhcp: {serverIP: 192.0.2.2, instances: [{ip: 192.0.2.3}]}}`, "spec.infraComponents.dhcp.instances: Forbidden: set serverIP or instances, not both"},
		{"instance without an address", infra, `infraComponents: {dhcp: {instances: [{additionalIPs: ["2001:db8::2"]}]}}`, "spec.infraComponents.dhcp.instances[0].ip: Required value"},
		{"instance with a prefix length", infra, `infraComponents: {dhcp: {instances: [{ip: 192.0.2.2/24}]}}`, notAnAddress},
		{"instance with an octet too large", infra, `infraComponents: {dhcp: {instances: [{ip: 192.0.2.256}]}}`, notAnAddress},
		{"instance with a leading zero", infra, `infraComponents: {dhcp: {instances: [{ip: 192.0.2.02}]}}`, notAnAddress},
		{"instance with a zone", infra, `infraComponents: {dhcp: {instances: [{ip: "fe80::2%net1"}]}}`, notAnAddress},
		{"instance with a host name", infra, `infraComponents: {dhcp: {instances: [{ip: dhcp.example.com}]}}`, notAnAddress},
		{"instance's further address is not an address", infra, `infraComponents: {dhcp: {instances: [{ip: 192.0.2.2, additionalIPs: [two]}]}}`, notAnAddress},
		{"two instances with one address", infra, `infraComponents: {dhcp: {instances: [{ip: 192.0.2.2}, {ip: 192.0.2.2}]}}`, `Duplicate value: {"ip":"192.0.2.2"}`},
		{"range without an end", infra, `infraComponents: {dhcp: {ranges: [{start: 192.0.2.10}]}}`, "spec.infraComponents.dhcp.ranges[0].end: Required value"},
		{"range that starts with a network", infra, `infraComponents: {dhcp: {ranges: [{start: 192.0.2.0/28, end: 192.0.2.20}]}}`, notAnAddress},
		{"exclusion that is not an address", infra, `infraComponents: {dhcp: {exclude: [printers]}}`, "must be an address, a network in CIDR notation, or first-last"},
		{"empty exclusion", infra, `infraComponents: {dhcp: {exclude: [""]}}`, "should be at least 1 chars long"},
		{"host without a MAC address", infra, `infraComponents: {dhcp: {hosts: [{hostname: a}]}}`, "spec.infraComponents.dhcp.hosts[0].mac: Required value"},
		{"two hosts with one MAC address", infra, `infraComponents: {dhcp: {hosts: [{mac: "52:54:00:00:00:01"}, {mac: "52:54:00:00:00:01"}]}}`, "Duplicate value"},
		{"host with a MAC address in upper case", infra, `infraComponents: {dhcp: {hosts: [{mac: "52:54:00:00:00:AB"}]}}`, "spec.infraComponents.dhcp.hosts[0].mac in body should match"},
		{"host with a multicast address", infra, `infraComponents: {dhcp: {hosts: [{mac: "01:00:5e:00:00:01"}]}}`, "spec.infraComponents.dhcp.hosts[0].mac in body should match"},
		{"host with a hostname of two labels", infra, `infraComponents: {dhcp: {hosts: [{mac: "52:54:00:00:00:01", hostname: a.b}]}}`, "spec.infraComponents.dhcp.hosts[0].hostname in body should match"},
		{"host with an address that is not one", infra, `infraComponents: {dhcp: {hosts: [{mac: "52:54:00:00:00:01", address: 192.0.2.256}]}}`, "spec.infraComponents.dhcp.hosts[0].address in body should match"},
		{"host with an address of three numbers", infra, `infraComponents: {dhcp: {hosts: [{mac: "52:54:00:00:00:01", address: 192.0.2}]}}`, "spec.infraComponents.dhcp.hosts[0].address in body should match"},
		{"option with code and name", infra, `infraComponents: {dhcp: {options: [{code: 42, name: ntp-servers, value: 192.0.2.9}]}}`, "set exactly one of code and name"},
		{"option with neither code nor name", infra, `infraComponents: {dhcp: {options: [{value: 192.0.2.9}]}}`, "set exactly one of code and name"},
		{"option code of Pad (0)", infra, `infraComponents: {dhcp: {options: [{code: 0, value: a}]}}`, "should be greater than or equal to 1"},
		{"option code of End (255)", infra, `infraComponents: {dhcp: {options: [{code: 255, value: a}]}}`, "should be less than or equal to 254"},
		{"option without a value", infra, `infraComponents: {dhcp: {options: [{code: 42}]}}`, "spec.infraComponents.dhcp.options[0].value: Required value"},

		{"option with an empty name", infra, `infraComponents: {dhcp: {options: [{name: "", value: a}]}}`, "spec.infraComponents.dhcp.options[0].name in body should be at least 1 chars long"},
		{"option with an empty value", infra, `infraComponents: {dhcp: {options: [{code: 42, value: ""}]}}`, "spec.infraComponents.dhcp.options[0].value in body should be at least 1 chars long"},
		{"option with a value too long for a packet", infra, `infraComponents: {dhcp: {options: [{code: 42, value: ` + strings.Repeat("a", 1025) + `}]}}`, "may not be more than 1024"},
		{"exclusion twice", infra, `infraComponents: {dhcp: {exclude: [192.0.2.9, 192.0.2.9]}}`, "Duplicate value"},
		{"too many exclusions", infra, `infraComponents: {dhcp: {exclude: [` + addressList(65) + `]}}`, "must have at most 64 items"},
		{"too many instances", infra, `infraComponents: {dhcp: {instances: [{ip: ` + strings.ReplaceAll(addressList(9), ", ", "}, {ip: ") + `}]}}`, "must have at most 8 items"},
		{"an instance's further address twice", infra, `infraComponents: {dhcp: {instances: [{ip: 192.0.2.2, additionalIPs: ["2001:db8::2", "2001:db8::2"]}]}}`, "Duplicate value"},
		{"too many further addresses of an instance", infra, `infraComponents: {dhcp: {instances: [{ip: 192.0.2.200, additionalIPs: [` + addressList(5) + `]}]}}`, "must have at most 4 items"},

		// infraComponents.dns and infraComponents.proxy
		{"DNS with serverIP and instances", infra, `infraComponents: {dns: {serverIP: 192.0.2.2, instances: [{ip: 192.0.2.3}]}}`, "spec.infraComponents.dns.instances: Forbidden: set serverIP or instances, not both"},
		{"record without a domain", infra, records(`{name: registry, type: A, values: [192.0.2.9]}`), "spec.infraComponents.dns.records[0].name in body should match"},
		{"record in upper case", infra, records(`{name: Registry.example.com, type: A, values: [192.0.2.9]}`), "records[0].name in body should match"},
		{"record with a wildcard inside", infra, records(`{name: a.*.example.com, type: A, values: [192.0.2.9]}`), "records[0].name in body should match"},
		{"record of an unknown type", infra, records(`{name: a.example.com, type: MX, values: [10 b.example.com]}`), `records[0].type: Unsupported value: "MX"`},
		{"A record with an IPv6 address", infra, records(`{name: a.example.com, type: A, values: ["2001:db8::9"]}`), "records[0].values: Invalid value: must be IPv4 addresses"},
		{"AAAA record with an IPv4 address", infra, records(`{name: a.example.com, type: AAAA, values: [192.0.2.9]}`), "must be IPv6 addresses"},
		{"CNAME with two targets", infra, records(`{name: a.example.com, type: CNAME, values: [b.example.com, c.example.com]}`), "must be one name: CNAME has a single target"},
		{"CNAME of a URL", infra, records(`{name: a.example.com, type: CNAME, values: ["https://b.example.com"]}`), "must be domain names"},
		{"SRV record without a port", infra, records(`{name: _ldap._tcp.example.com, type: SRV, values: [10 20 b.example.com]}`), "must have the form 'priority weight port target'"},
		{"record without values", infra, records(`{name: a.example.com, type: A, values: []}`), "should have at least 1 items"},
		{"record with a negative TTL", infra, records(`{name: a.example.com, type: A, values: [192.0.2.9], ttl: -1}`), "should be greater than or equal to 0"},
		{"record in an unknown view", infra, records(`{name: a.example.com, type: A, values: [192.0.2.9], views: [all]}`), `views[0]: Unsupported value: "all"`},
		{"record twice", infra, records(`{name: a.example.com, type: A, values: [192.0.2.9]}, {name: a.example.com, type: A, values: [192.0.2.8]}`), "Duplicate value"},
		{"CNAME beside a TXT record", infra, records(`{name: a.example.com, type: CNAME, values: [b.example.com]}, {name: a.example.com, type: TXT, values: [a]}`), "a name with a CNAME must not have other records"},
		{"egress of all names without consent", infra, `egress: {hosts: ["*"]}`, "'*' allows every name: it also needs allowAll: true"},
		{"egress of a name in upper case", infra, `egress: {hosts: [Quay.io]}`, "must be a name such as quay.io or *.quay.io, in lower case"},
		{"egress of an address", infra, `egress: {hosts: [192.0.2.0/24]}`, "must be a name such as quay.io"},
		{"egress without hosts", infra, `egress: {hosts: []}`, "should have at least 1 items"},
		{"egress of nothing", infra, `egress: {}`, "needs hosts, ntp, or both"},
		{"egress of nothing but settings", proxy, `egress: {allowAddresses: [10.0.0.0/8]}`, "needs hosts, ntp, or both"},
		{"egress to no NTP server", infra, `egress: {hosts: [quay.io], ntp: []}`, "should have at least 1 items"},
		{"egress to five NTP servers", infra, `egress: {ntp: [` + addressList(5) + `]}`, "must have at most 4 items"},
		{"egress to an NTP server twice", infra, `egress: {ntp: [192.0.2.1, 192.0.2.1]}`, "Duplicate value"},
		{"egress to an NTP server with a port", infra, `egress: {ntp: ["192.0.2.1:123"]}`, "must be a name such as time.example.com"},
		{"egress to an NTP server in a short form of an address", infra, `egress: {ntp: ["127.1"]}`, "must be a name such as time.example.com"},
		{"egress to an NTP server with an octet too large", infra, `egress: {ntp: [192.0.2.256]}`, "must be a name such as time.example.com"},
		{"egress to an NTP network", infra, `egress: {ntp: [192.0.2.0/24]}`, "must be a name such as time.example.com"},
		{"egress to NTP servers below a domain", infra, `egress: {ntp: ["*.example.com"]}`, "must be a name such as time.example.com"},
		{"egress to an NTP server without a domain", infra, `egress: {ntp: [time]}`, "must be a name such as time.example.com"},
		{"egress to an NTP server with a zone", infra, `egress: {ntp: ["fe80::1%net1"]}`, "must be a name such as time.example.com"},
		{"egress of HTTP by a parent proxy", infra, `egress: {hosts: [quay.io], ports: [80], parentProxy: {url: "http://proxy:3128"}}`, "port 80 cannot be used with parentProxy"},
		{"egress by a proxy with TLS", infra, `egress: {hosts: [quay.io], parentProxy: {url: "https://proxy:3128"}}`, "spec.egress.parentProxy.url"},
		{"VM names in a domain that is an address", infra, `infraComponents: {dns: {vmNames: {enabled: true, domain: "192.0.2.0/24"}}}`, "spec.infraComponents.dns.vmNames.domain in body should match"},
		{"proxy limits of sources without instances", infra, `infraComponents: {proxy: {serverIP: 192.0.2.4, limits: {perSource: {maxConnections: 100}}}}`, "spec.infraComponents.proxy.limits.perSource: Forbidden: perSource needs instances; one suffices"},
		{"proxy limit of no connections", infra, `infraComponents: {proxy: {serverIP: 192.0.2.4, limits: {maxConnections: 0}}}`, "spec.infraComponents.proxy.limits.maxConnections: Invalid value: 0"},
		{"proxy limit of an empty heap", infra, `infraComponents: {proxy: {serverIP: 192.0.2.4, limits: {maxHeap: 1}}}`, "spec.infraComponents.proxy.limits.maxHeap: Invalid value: 1: must be at least 64Mi"},
		{"proxy limit of a small heap", infra, `infraComponents: {proxy: {serverIP: 192.0.2.4, limits: {maxHeap: 63Mi}}}`, "must be at least 64Mi"},
		{"proxy limits of a network by name", infra, `infraComponents: {proxy: {serverIP: 192.0.2.4, instances: [{ip: 192.0.2.5}], limits: {perSource: {networks: [{cidr: router}]}}}}`, "must be an IPv4 or IPv6 network in CIDR notation"},
		{"proxy instances without a serverIP", infra, `infraComponents: {proxy: {instances: [{ip: 192.0.2.5}]}}`, "spec.infraComponents.proxy.serverIP: Required value: instances need a serverIP, the address that moves between them"},
		{"proxy with a further address that is not an address", infra, `infraComponents: {proxy: {serverIP: 192.0.2.4, additionalServerIPs: [six]}}`, notAnAddress},
		{"proxy with a further address twice", infra, `infraComponents: {proxy: {serverIP: 192.0.2.4, additionalServerIPs: ["2001:db8::4", "2001:db8::4"]}}`, "Duplicate value"},
		{"proxy with too many further addresses", infra, `infraComponents: {proxy: {serverIP: 192.0.2.200, additionalServerIPs: [` + addressList(5) + `]}}`, "must have at most 4 items"},
		{"proxy with a connect timeout in fractions", infra, `infraComponents: {proxy: {connectTimeout: 1.5s}}`, notADuration},
		{"proxy with a connect timeout of zero", infra, `infraComponents: {proxy: {connectTimeout: 0s}}`, "spec.infraComponents.proxy.connectTimeout: Invalid value: " + `"0s": ` + notLong},
		{"proxy with a negative connect timeout", infra, `infraComponents: {proxy: {connectTimeout: -5s}}`, notADuration},
		{"proxy with a connect timeout without a unit", infra, `infraComponents: {proxy: {connectTimeout: "5"}}`, notADuration},
		{"proxy with an idle timeout in days", infra, `infraComponents: {proxy: {idleTimeout: 1d}}`, notADuration},
		{"proxy with maxConnections of zero", infra, `infraComponents: {proxy: {maxConnections: 0}}`, "should be greater than or equal to 1"},
		{"proxy with an unknown log level", infra, `infraComponents: {proxy: {logLevel: verbose}}`, `spec.infraComponents.proxy.logLevel: Unsupported value: "verbose"`},

		// appsIngress
		{"apps without a hosted cluster", infra, `appsIngress: {enabled: true}`, needsCluster},
		{"apps of a hosted cluster without a name", infra, `appsIngress: {enabled: true, hostedClusterRef: {name: ""}}`, needsCluster},
		{"apps domain with a space", infra, `appsIngress: {baseDomain: "my domain"}`, notADomain},
		{"apps domain with a wildcard", infra, `appsIngress: {baseDomain: "*.example.com"}`, notADomain},
		{"apps domain with a scheme", infra, `appsIngress: {baseDomain: "https://example.com"}`, notADomain},
		{"apps domain with an empty label", infra, `appsIngress: {baseDomain: "apps..example.com"}`, notADomain},
		{"apps domain with a label too long", infra, `appsIngress: {baseDomain: "` + strings.Repeat("a", 64) + `.example.com"}`, notADomain},
		{"apps domain too long", infra, `appsIngress: {baseDomain: "` + strings.Repeat("a.", 127) + `"}`, "may not be more than 253 bytes"},
		{"unknown source", infra, `appsIngress: {source: Guess}`, `spec.appsIngress.source: Unsupported value: "Guess"`},
		{"static source without addresses", infra, `appsIngress: {source: Static}`, "spec.appsIngress.addresses: Required value: source Static needs addresses"},
		{"static source with an empty list of addresses", infra, `appsIngress: {source: Static, addresses: []}`, "spec.appsIngress.addresses: Required value: source Static needs addresses"},
		{"static source with a host name", infra, `appsIngress: {source: Static, addresses: [lb.example.com]}`, notAnAddress},
		{"static source with a loopback address", infra, `appsIngress: {source: Static, addresses: [127.0.0.1]}`, notReachable},
		{"static source with the IPv6 loopback address", infra, `appsIngress: {source: Static, addresses: ["::1"]}`, notReachable},
		{"static source with a link-local address", infra, `appsIngress: {source: Static, addresses: [192.0.2.220, 169.254.1.1]}`, notReachable},
		{"static source with an IPv6 link-local address", infra, `appsIngress: {source: Static, addresses: ["FE80::1"]}`, notReachable},
		{"static source with a reserved address", infra, `appsIngress: {source: Static, addresses: [240.0.0.1]}`, notReachable},
		{"static source with the limited broadcast address", infra, `appsIngress: {source: Static, addresses: [255.255.255.255]}`, notReachable},
		{"static source with a multicast address", infra, `appsIngress: {source: Static, addresses: [224.0.0.1]}`, notReachable},
		{"static source with an IPv6 multicast address", infra, `appsIngress: {source: Static, addresses: ["ff02::1"]}`, notReachable},
		{"static source with an unspecified address", infra, `appsIngress: {source: Static, addresses: ["::"]}`, notReachable},
		{"static source with an address twice", infra, `appsIngress: {source: Static, addresses: [192.0.2.220, 192.0.2.220]}`, "Duplicate value"},
		{"static source with too many addresses", infra, `appsIngress: {source: Static, addresses: [` + addressList(17) + `]}`, "must have at most 16 items"},
		{"unknown dial", infra, `appsIngress: {dial: Tunnel}`, `spec.appsIngress.dial: Unsupported value: "Tunnel"`},
		{"kubeconfig Secret without a name", infra, `appsIngress: {kubeconfigSecretRef: {key: config}}`, "spec.appsIngress.kubeconfigSecretRef.name: Required value"},
		{"kubeconfig Secret with an empty name", infra, `appsIngress: {kubeconfigSecretRef: {name: ""}}`, "spec.appsIngress.kubeconfigSecretRef.name in body should be at least 1 chars long"},
		{"kubeconfig Secret with an empty key", infra, `appsIngress: {kubeconfigSecretRef: {name: a, key: ""}}`, "spec.appsIngress.kubeconfigSecretRef.key in body should be at least 1 chars long"},
		{"address deadline of zero", infra, `appsIngress: {addressDeadline: 0m}`, notLong},
		{"address deadline that is not a duration", infra, `appsIngress: {addressDeadline: soon}`, notADuration},
		{"empty load balancer class", infra, `appsIngress: {metallb: {loadBalancerClass: ""}}`, "spec.appsIngress.metallb.loadBalancerClass in body should be at least 1 chars long"},
		{"unknown IP family policy", infra, `appsIngress: {service: {ipFamilyPolicy: Both}}`, `Unsupported value: "Both"`},
		{"unknown traffic policy", infra, `appsIngress: {service: {externalTrafficPolicy: Near}}`, `Unsupported value: "Near"`},
		{"HTTP port of zero", infra, `appsIngress: {ports: {http: 0}}`, "should be greater than or equal to 1"},
		{"HTTP port too large", infra, `appsIngress: {ports: {http: 65536}}`, "should be less than or equal to 65535"},
		{"HTTPS port of zero", infra, `appsIngress: {ports: {https: 0}}`, "should be greater than or equal to 1"},
		{"HTTPS port too large", infra, `appsIngress: {ports: {https: 65536}}`, "should be less than or equal to 65535"},

		// ProxyServer
		{"neither backends nor Infra", proxy, `backends: []`, needsBackends},
		{"Infra without a name", proxy, `infraRef: {name: ""}`, "spec.infraRef.name in body should be at least 1 chars long"},
		{"no server address", proxy, `networkConfig: {}`, "spec.networkConfig.serverIP: Required value"},
		{"server address that is a hostname", proxy, `networkConfig: {serverIP: proxy.example.com}`, notAServerIP},
		{"server address with an empty prefix length", proxy, `networkConfig: {serverIP: 192.0.2.4/}`, notAServerIP},
		{"port of zero", proxy, `port: 0`, "should be greater than or equal to 1"},
		{"port too large", proxy, `port: 65536`, "should be less than or equal to 65535"},
		{"xDS port of zero", proxy, `xdsPort: 0`, "should be greater than or equal to 1"},
		{"xDS port too large", proxy, `xdsPort: 70000`, "should be less than or equal to 65535"},
		{"unknown log level", proxy, `logLevel: loud`, `spec.logLevel: Unsupported value: "loud"`},
		{"one hostname on one port twice", proxy, `backends:
- {name: a, hostname: a.example.com, port: 443, targetService: a, targetPort: 443, targetNamespace: a}
- {name: b, hostname: a.example.com, port: 443, targetService: b, targetPort: 443, targetNamespace: b}`, `spec.backends[1]: Duplicate value: {"hostname":"a.example.com","port":443}`},
		{"backend without a name", proxy, `backends: [{hostname: a, port: 443, targetService: a, targetPort: 443, targetNamespace: a}]`, "spec.backends[0].name: Required value"},
		{"backend name with a space", proxy, `backends: [{name: a b, hostname: a, port: 443, targetService: a, targetPort: 443, targetNamespace: a}]`, "spec.backends[0].name in body should match"},
		{"backend with an empty name", proxy, `backends: [{name: "", hostname: a, port: 443, targetService: a, targetPort: 443, targetNamespace: a}]`, "spec.backends[0].name in body should be at least 1 chars long"},
		{"backend with a long name", proxy, `backends: [{name: ` + strings.Repeat("a", 64) + `, hostname: a, port: 443, targetService: a, targetPort: 443, targetNamespace: a}]`, "may not be more than 63"},
		{"backend without a port", proxy, `backends: [{name: a, hostname: a, targetService: a, targetPort: 443, targetNamespace: a}]`, "spec.backends[0].port: Required value"},
		{"backend on a port too large", proxy, `backends: [{name: a, hostname: a, port: 65536, targetService: a, targetPort: 443, targetNamespace: a}]`, "should be less than or equal to 65535"},
		{"backend with an empty target namespace", proxy, `backends: [{name: a, hostname: a, port: 443, targetService: a, targetPort: 443, targetNamespace: ""}]`, "spec.backends[0].targetNamespace in body should be at least 1 chars long"},
		{"backend without a hostname", proxy, backend("targetService: a, targetPort: 443"), "spec.backends[0].hostname: Required value"},
		{"backend with an empty hostname", proxy, backend(`hostname: "", targetService: a, targetPort: 443`), "spec.backends[0].hostname in body should be at least 1 chars long"},
		{"wildcard inside a hostname", proxy, backend(`hostname: a.*.example.com, targetService: a, targetPort: 443`), "spec.backends[0].hostname in body should match"},
		{"wildcard as part of the first label", proxy, backend(`hostname: "*-a.example.com", targetService: a, targetPort: 443`), "spec.backends[0].hostname in body should match"},
		{"two wildcards", proxy, backend(`hostname: "*.*.example.com", targetService: a, targetPort: 443`), "spec.backends[0].hostname in body should match"},
		{"wildcard inside an alternate hostname", proxy, backend(target + `, alternateHostnames: [b.*.example.com]`), "spec.backends[0].alternateHostnames[0] in body should match"},
		{"backend on port zero", proxy, `backends: [{name: a, hostname: a, port: 0, targetService: a, targetPort: 443, targetNamespace: a}]`, "should be greater than or equal to 1"},
		{"backend without a target", proxy, backend("hostname: a, targetPort: 443"), oneTarget},
		{"backend with two targets", proxy, backend("hostname: a, targetPort: 443, targetService: a, targetSelector: {matchLabels: {app: a}}"), oneTarget},
		{"backend with an empty target Service", proxy, backend(`hostname: a, targetPort: 443, targetService: ""`), "spec.backends[0].targetService in body should be at least 1 chars long"},
		{"selector without labels", proxy, backend("hostname: a, targetPort: 443, targetSelector: {matchLabels: {}}"), "should have at least 1 properties"},
		{"unknown onMultiple", proxy, backend("hostname: a, targetPort: 443, targetSelector: {matchLabels: {app: a}, onMultiple: Any}"), `Unsupported value: "Any"`},
		{"backend without a target port", proxy, backend("hostname: a, targetService: a"), "spec.backends[0].targetPort: Required value"},
		{"target port of zero", proxy, backend("hostname: a, targetService: a, targetPort: 0"), notATarget},
		{"negative target port", proxy, backend("hostname: a, targetService: a, targetPort: -1"), notATarget},
		{"target port too large", proxy, backend("hostname: a, targetService: a, targetPort: 65536"), notATarget},
		{"target port number in quotes", proxy, backend(`hostname: a, targetService: a, targetPort: "443"`), notATargetRE},
		{"target port name in upper case", proxy, backend("hostname: a, targetService: a, targetPort: HTTPS"), notATargetRE},
		{"target port name too long", proxy, backend("hostname: a, targetService: a, targetPort: a-very-long-name"), "may not be more than 15"},
		{"backend without a target namespace", proxy, `backends: [{name: a, hostname: a, port: 443, targetService: a, targetPort: 443}]`, "spec.backends[0].targetNamespace: Required value"},
		{"unknown protocol", proxy, backend(target + ", protocol: SCTP"), `spec.backends[0].protocol: Unsupported value: "SCTP"`},
		{"connect timeout of zero seconds", proxy, backend(target + ", timeoutSeconds: 0"), "should be greater than or equal to 1"},
		{"backend with maxConnections of zero", proxy, backend(target + ", maxConnections: 0"), "should be greater than or equal to 1"},
		{"negative idle timeout", proxy, backend(target + ", idleTimeout: -1h"), notADuration},
		{"backend with another version of the PROXY protocol", proxy, backend(target + ", proxyProtocol: V3"), "Unsupported value"},
		{"backend with maxPendingConnections of zero", proxy, backend(target + ", maxPendingConnections: 0"), "spec.backends[0].maxPendingConnections in body should be greater than or equal to 1"},
		{"UDP backend with maxPendingConnections", proxy, backend(target + ", protocol: UDP, maxPendingConnections: 1"), "spec.backends[0].maxPendingConnections: Forbidden: needs protocol TCP, TLS or HTTPS"},
		{"HTTP backend with maxPendingConnections", proxy, backend(target + ", protocol: HTTP, maxPendingConnections: 1"), "spec.backends[0].maxPendingConnections: Forbidden: needs protocol TCP, TLS or HTTPS"},
		{"negative number of connect attempts", proxy, backend(target + ", retry: {attempts: -1}"), "spec.backends[0].retry.attempts in body should be greater than or equal to 0"},
		{"too many connect attempts", proxy, backend(target + ", retry: {attempts: 11}"), "spec.backends[0].retry.attempts in body should be less than or equal to 10"},
		{"connect backoff of zero", proxy, backend(target + ", retry: {backoff: 0s}"), "must be from 1ms to 1m"},
		{"connect backoff too long", proxy, backend(target + ", retry: {backoff: 1m1ms}"), "must be from 1ms to 1m"},
		{"HTTP backend with retry of connections", proxy, backend(target + ", protocol: HTTP, retry: {}"), "spec.backends[0].retry: Forbidden: needs protocol TCP, TLS or HTTPS; with HTTP, set retry of http.rules"},
		{"UDP backend with retry", proxy, backend(target + ", protocol: UDP, retry: {}"), "spec.backends[0].retry: Forbidden: needs protocol TCP, TLS or HTTPS"},
		{"UDP backend with outlierDetection", proxy, backend(target + ", protocol: UDP, outlierDetection: {}"), "spec.backends[0].outlierDetection: Forbidden: needs a protocol other than UDP"},
		{"negative number of consecutive failures", proxy, backend(target + ", outlierDetection: {consecutiveFailures: -1}"), "should be greater than or equal to 0"},
		{"ejection time too short", proxy, backend(target + ", outlierDetection: {ejectionTime: 999ms}"), "must be from 1s to 1h"},
		{"ejection time too long", proxy, backend(target + ", outlierDetection: {ejectionTime: 61m}"), "must be from 1s to 1h"},
		{"ejection of no endpoint", proxy, backend(target + ", outlierDetection: {maxEjectionPercent: 0}"), "should be greater than or equal to 1"},
		{"ejection of all endpoints", proxy, backend(target + ", outlierDetection: {maxEjectionPercent: 100}"), "should be less than or equal to 99"},
		{"health check interval of zero", proxy, backend(target + ", healthCheck: {interval: 0s}"), notLong},
		{"health check timeout of zero", proxy, backend(target + ", healthCheck: {timeout: 0ms}"), notLong},
		{"health check with unhealthyAfter of zero", proxy, backend(target + ", healthCheck: {unhealthyAfter: 0}"), "should be greater than or equal to 1"},
		{"health check with healthyAfter of zero", proxy, backend(target + ", healthCheck: {healthyAfter: 0}"), "should be greater than or equal to 1"},
	}
	for _, test := range tests {
		t.Run(test.kind+" "+test.name, func(t *testing.T) {
			err := dryRunCreate(t, test.kind, test.spec)
			switch {
			case err == nil:
				t.Fatal("accepted")
			case !apierrors.IsInvalid(err):
				t.Fatalf("not a validation error: %v", err)
			case !strings.Contains(err.Error(), test.want):
				t.Errorf("got %v\nwant %s", err, test.want)
			}
		})
	}
}

// TestAcceptedValues checks values at the limits of what an API server accepts.
func TestAcceptedValues(t *testing.T) {
	const (
		infra = "Infra"
		proxy = "ProxyServer"
	)
	tests := []struct{ name, kind, spec string }{
		{"no gateway", infra, `networkConfig: {cidr: 192.0.2.0/24, networkAttachmentDefinition: a}`},
		{"IPv6 network", infra, `networkConfig: {cidr: "fd00:7::/64", gateway: "fd00:7::1", networkAttachmentDefinition: a}`},
		{"IPv6 written out", infra, `networkConfig: {cidr: "2001:0db8:0000:0000:0000:0000:0000:0000/32", gateway: "2001:0db8:0000:0000:0000:0000:0000:0001", networkAttachmentDefinition: a}`},
		{"hosts", infra, `infraComponents: {dhcp: {hosts: [{mac: "52:54:00:00:00:01", hostname: host-1, address: 192.0.2.10}, {mac: "52:54:00:00:00:02"}]}}`},
		{"shortest and longest prefix lengths", infra, `networkConfig: {cidr: 0.0.0.0/0, gateway: 192.0.2.1, networkAttachmentDefinition: a, additionalCIDRs: ["::/0", "2001:db8::1/128", 192.0.2.1/32]}`},
		{"addresses of all shapes", infra, `infraComponents: {dhcp: {instances: [{ip: 0.0.0.0}, {ip: 255.255.255.255}, {ip: "::"}, {ip: "::1"}, {ip: "2001:DB8::2"}, {ip: "64:ff9b::192.0.2.1"}, {ip: "1:2:3:4:5:6:7:8"}]}}`},
		{"exclusions of all shapes", infra, `infraComponents: {dhcp: {exclude: [192.0.2.9, 192.0.2.16/28, 192.0.2.40-192.0.2.49, "2001:db8::1-2001:db8::f"]}}`},
		{"empty serverIP beside instances", infra, `infraComponents: {dhcp: {serverIP: "", instances: [{ip: 192.0.2.2}]}}`},
		{"empty instances beside serverIP", infra, `infraComponents: {dns: {serverIP: 192.0.2.3, instances: []}}`},
		{"option codes at both ends", infra, `infraComponents: {dhcp: {options: [{code: 1, value: a}, {code: 254, value: a}]}}`},
		{"records of all types", infra, records(`{name: a.example.com, type: A, values: [192.0.2.9, 192.0.2.10], ttl: 0},
  {name: a.example.com, type: AAAA, values: ["2001:db8::9", "::ffff:192.0.2.9"], ttl: 86400, views: [vlan, pod]}, {name: "*.dev.example.com", type: CNAME, values: [A.example.com.]},
  {name: _ldap._tcp.example.com, type: SRV, values: [10 20 389 a.example.com]}, {name: a.example.com, type: TXT, values: ["` + strings.Repeat("ä", 1024) + `"]},
  {name: 9.2.0.192.in-addr.arpa, type: PTR, values: [a.example.com]}`)},
		{"as many records as possible", infra, records(recordList(256))},
		{"egress", infra, `egress: {hosts: [quay.io, "*.quay.io", "*"], allowAll: true, ports: [80, 443], allowAddresses: [10.0.0.0/8], denyAddresses: ["fd00::/8"]}`},
		{"egress to NTP servers", infra, `egress: {ntp: [time.example.com, 0.pool.ntp.org, 192.0.2.1, "2001:db8::1"]}`},
		{"egress of a ProxyServer to an NTP server", proxy, `egress: {hosts: [quay.io], ntp: [time.example.com]}`},
		{"egress by a parent proxy", infra, `egress: {hosts: [quay.io], parentProxy: {url: "http://[2001:db8::1]:3128/", secretRef: {name: parent}}}`},
		{"VM names", infra, `infraComponents: {dns: {vmNames: {enabled: true, domain: "", views: [vlan, pod]}}}`},
		{"any VM", infra, `infraComponents: {dhcp: {vmSelector: {}}}`},
		{"durations of all shapes", infra, `infraComponents: {proxy: {connectTimeout: 1h2m3s4ms, idleTimeout: 0s}}`},
		{"proxy limits", infra, `infraComponents: {proxy: {serverIP: 192.0.2.4, instances: [{ip: 192.0.2.5}], workerThreads: 2, xdsdResources: {limits: {cpu: 100m}}, limits: {maxConnections: 1000, connectionsPerSecond: 0, maxHeap: 1Gi, ports: [{port: 443, maxConnections: 10}], perSource: {prefixLength: 24, ipv6PrefixLength: 64, networks: [{cidr: 192.0.2.1/32, maxConnections: 0}]}}}}`},
		{"apps with spec.hostedClusterRef", infra, `{hostedClusterRef: {name: blue}, appsIngress: {enabled: true}}`},
		{"static apps addresses", infra, `{hostedClusterRef: {name: blue}, appsIngress: {enabled: true, source: Static, addresses: [192.0.2.220, 100.64.0.1, 169.1.1.1, 223.255.255.1, "2001:db8::1", "fd00::1", "::ffff:192.0.2.1", "fe00::1"]}}`},
		{"apps with their own hostedClusterRef", infra, `appsIngress: {enabled: true, hostedClusterRef: {name: blue}}`},
		{"disabled apps without a hosted cluster", infra, `appsIngress: {enabled: false}`},
		{"apps domains of all shapes", infra, `appsIngress: {baseDomain: Apps.my_lab.Example.com.}`},
		{"empty apps domain", infra, `appsIngress: {baseDomain: ""}`},
		{"addresses with another source", infra, `appsIngress: {source: MirroredService, addresses: [192.0.2.220]}`},
		{"address range as text", infra, `appsIngress: {metallb: {ipAddressPoolRange: "192.0.2.220-192.0.2.229, 192.0.2.240/28"}}`},
		{"address range as an array", infra, `appsIngress: {metallb: {ipAddressPoolRange: [192.0.2.220-192.0.2.229, 192.0.2.240/28]}}`},
		{"address range of a wrong type, which a condition reports", infra, `appsIngress: {metallb: {ipAddressPoolRange: {first: 192.0.2.220}}}`},
		{"only an Infra", proxy, `{infraRef: {name: blue}, backends: []}`},
		{"server address with a prefix length", proxy, `networkConfig: {serverIP: 192.0.2.4/24}`},
		{"IPv6 server address with a prefix length", proxy, `networkConfig: {serverIP: "fd00:7::4/64"}`},
		{"one hostname on two ports", proxy, `backends:
- {name: a, hostname: a.example.com, port: 443, targetService: a, targetPort: 443, targetNamespace: a}
- {name: a2, hostname: a.example.com, port: 6443, targetService: a, targetPort: 6443, targetNamespace: a}`},
		{"wildcards", proxy, backend(`hostname: "*.example.com", alternateHostnames: ["*", "*.example.net"], targetService: a, targetPort: 443`)},
		{"target ports at both ends", proxy, `backends:
- {name: a, hostname: a.example.com, port: 1, targetService: a, targetPort: 1, targetNamespace: a}
- {name: b, hostname: a.example.com, port: 65535, targetService: a, targetPort: 65535, targetNamespace: a}`},
		{"target port names", proxy, `backends:
- {name: a, hostname: a.example.com, port: 1, targetService: a, targetPort: a, targetNamespace: a}
- {name: b, hostname: a.example.com, port: 2, targetService: a, targetPort: 8080-tcp, targetNamespace: a}
- {name: c, hostname: a.example.com, port: 3, targetService: a, targetPort: client-protocol, targetNamespace: a}`},
		{"TLS backend without retries and ejection", proxy, backend(`hostname: a, targetService: a, targetPort: 443, protocol: TLS, maxPendingConnections: 1, retry: {attempts: 0}, outlierDetection: {consecutiveFailures: 0}`)},
		{"HTTP backend with outlierDetection", proxy, backend(`hostname: a, targetService: a, targetPort: 80, protocol: HTTP, outlierDetection: {ejectionTime: 1h, maxEjectionPercent: 99}`)},
		{"target that is an address, as the earlier operator wrote", proxy, backend(`hostname: a, targetService: 192.0.2.220, targetPort: 443`)},
	}
	for _, test := range tests {
		t.Run(test.kind+" "+test.name, func(t *testing.T) {
			if err := dryRunCreate(t, test.kind, test.spec); err != nil {
				t.Error(err)
			}
		})
	}
}

// dryRunCreate returns the error with which the API server would reject the creation of an object, nil if it
// would accept it.
func dryRunCreate(t *testing.T, kind, spec string) error {
	t.Helper()
	_, err := client(t, kind).Create(t.Context(), minimalObject(t, kind, "admitted", spec), metav1.CreateOptions{
		FieldValidation: metav1.FieldValidationStrict,
		DryRun:          []string{metav1.DryRunAll},
	})
	return err
}
