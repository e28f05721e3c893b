package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
)

// deriveInfra derives the Infra of a group from its DHCPServer, DNSServer and ProxyServer. It returns nil without a
// DHCPServer, which alone has the gateway. It reports all missing fields as errors.
func (c *converter) deriveInfra(s *infraGroup, old decoded) *unstructured.Unstructured {
	if old.dhcp == nil {
		c.fail(s.dns, "cannot derive Infra %s, which is not in the files: spec.networkConfig.cidr and spec.networkConfig.gateway are unknown without DHCPServer %s-dhcp; add the Infra or the DHCPServer to the files", s.name, s.name)
		return nil
	}
	infra := &unstructured.Unstructured{Object: map[string]any{}}
	infra.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("Infra"))
	infra.SetName(s.name)
	if s.dhcp.GetNamespace() != "" {
		infra.SetNamespace(s.dhcp.GetNamespace())
	}
	f := fields{infra.Object}
	set := func(value string, path string) {
		if value != "" {
			f.set(value, strings.Split(path, ".")...)
		}
	}
	network, lease := &old.dhcp.Spec.NetworkConfig, &old.dhcp.Spec.LeaseConfig
	nad := network.attachment
	if nad.NetworkAttachmentName == "" && old.dns != nil {
		nad = old.dns.Spec.NetworkConfig.attachment
	}
	for _, required := range []struct{ value, path, from string }{
		{network.CIDR, "spec.networkConfig.cidr", "spec.networkConfig.cidr"},
		{network.Gateway, "spec.networkConfig.gateway", "spec.networkConfig.gateway"},
		{nad.NetworkAttachmentName, "spec.networkConfig.networkAttachmentDefinition", "spec.networkConfig.networkAttachmentName"},
		{network.ServerIP, "spec.infraComponents.dhcp.serverIP", "spec.networkConfig.serverIP"},
		{lease.RangeStart, "spec.infraComponents.dhcp.rangeStart", "spec.leaseConfig.rangeStart"},
		{lease.RangeEnd, "spec.infraComponents.dhcp.rangeEnd", "spec.leaseConfig.rangeEnd"},
	} {
		if required.value == "" {
			c.fail(s.dhcp, "%s is missing: cannot derive %s of Infra %s, which is not in the files", required.from, required.path, s.name)
		}
		set(required.value, required.path)
	}
	set(nad.NetworkAttachmentNamespace, "spec.networkConfig.networkAttachmentNamespace")
	set(lease.LeaseTime, "spec.infraComponents.dhcp.leaseTime")
	c.warn(s.dhcp, "", "the files do not contain Infra %s: the Infra is derived from this object", s.name)
	if old.dns != nil {
		c.deriveDNS(s, f, old.dns)
	} else {
		c.setDNSServers(f, network.DNSServers)
		c.warn(s.dhcp, "", "the files do not contain DNSServer %s-dns: the Infra gets no DNS", s.name)
	}
	switch {
	case old.proxy != nil:
		c.deriveProxy(s, f, old)
	case old.dns != nil:
		c.warn(s.dns, "spec.networkConfig.proxyIP", "the files do not contain ProxyServer %s-proxy: the Infra gets a proxy with this address", s.name)
	default:
		c.warn(s.dhcp, "", "the files do not contain ProxyServer %s-proxy: the Infra gets no proxy", s.name)
	}
	return infra
}

// setDNSServers sets spec.networkConfig.dnsServers, unless the list is empty.
func (c *converter) setDNSServers(f fields, list []string) {
	if len(list) == 0 {
		return
	}
	var values []any
	for _, one := range list {
		values = append(values, one)
	}
	f.set(values, "spec", "networkConfig", "dnsServers")
}

// deriveDNS sets the fields of a derived Infra that the DNSServer has.
func (c *converter) deriveDNS(s *infraGroup, f fields, dns *dnsServer) {
	network := &dns.Spec.NetworkConfig
	for _, address := range []struct{ component, field, value string }{{"dns", "serverIP", network.ServerIP}, {"proxy", "proxyIP", network.ProxyIP}} {
		if address.value == "" {
			c.fail(s.dns, "spec.networkConfig.%s is missing: cannot derive spec.infraComponents.%s.serverIP of Infra %s, which is not in the files", address.field, address.component, s.name)
			continue
		}
		f.set(address.value, "spec", "infraComponents", address.component, "serverIP")
	}
	if name, base, ok := strings.Cut(dns.Spec.HostedClusterDomain, "."); ok && name != "" && base != "" {
		f.set(name, "spec", "infraComponents", "dns", "clusterName")
		f.set(base, "spec", "infraComponents", "dns", "baseDomain")
	} else {
		c.warn(s.dns, "spec.hostedClusterDomain", "%q is dropped: want CLUSTER.BASEDOMAIN", dns.Spec.HostedClusterDomain)
	}
	c.setDNSServers(f, dns.Spec.UpstreamDNS)
}

// deriveProxy sets the fields of a derived Infra that the ProxyServer has: the image, and the namespace of the
// control plane if all control-plane backends have the same.
func (c *converter) deriveProxy(s *infraGroup, f fields, old decoded) {
	spec := &old.proxy.Spec
	if old.dns == nil {
		f.set(spec.NetworkConfig.ServerIP, "spec", "infraComponents", "proxy", "serverIP")
	}
	var namespaces []string
	for _, b := range spec.Backends {
		if isControlPlane(b.TargetService) && !slices.Contains(namespaces, b.TargetNamespace) {
			namespaces = append(namespaces, b.TargetNamespace)
		}
	}
	if len(namespaces) == 1 {
		f.set(namespaces[0], "spec", "infraComponents", "proxy", "controlPlaneNamespace")
	} else {
		c.warn(s.proxy, "spec.backends", "cannot determine the namespace of the control plane: set spec.hostedClusterRef of the Infra")
	}
	if spec.ProxyImage != "" {
		f.set(spec.ProxyImage, "spec", "infraComponents", "proxy", "proxyImage")
	}
}

// warnDiffers warns if a value that the operator derived from an Infra is not the value in the Infra, which is used.
func (c *converter) warnDiffers(o *object, field, value, infraField, infraValue string) {
	if value != "" && value != infraValue {
		c.warn(o, field, "%s is dropped: %s of the Infra is %s", value, infraField, orNotSet(infraValue))
	}
}

// orNotSet returns a text for messages: "not set" if it is empty.
func orNotSet(text string) string {
	if text == "" {
		return "not set"
	}
	return text
}

// convertDHCP adds the options of a DHCPServer to its Infra, and warns about other fields that differ.
func (c *converter) convertDHCP(s *infraGroup, infra *unstructured.Unstructured, typed *v1alpha1.Infra, dhcp *dhcpServer) {
	network, lease := &dhcp.Spec.NetworkConfig, &dhcp.Spec.LeaseConfig
	config, component := &typed.Spec.NetworkConfig, typed.Spec.InfraComponents.DHCP
	if !component.IsEnabled() {
		c.warn(s.dhcp, "", "dropped: Infra %s has no DHCP", s.name)
		return
	}
	address := func(text string) string {
		trimmed, _ := trimPrefixLength(text, "")
		return trimmed
	}
	c.warnDiffers(s.dhcp, "spec.networkConfig.cidr", network.CIDR, "spec.networkConfig.cidr", config.CIDR)
	c.warnDiffers(s.dhcp, "spec.networkConfig.gateway", network.Gateway, "spec.networkConfig.gateway", config.Gateway)
	c.warnDiffers(s.dhcp, "spec.networkConfig.serverIP", address(network.ServerIP), "spec.infraComponents.dhcp.serverIP", component.ServerIP)
	c.warnDiffers(s.dhcp, "spec.leaseConfig.rangeStart", lease.RangeStart, "spec.infraComponents.dhcp.rangeStart", component.RangeStart)
	c.warnDiffers(s.dhcp, "spec.leaseConfig.rangeEnd", lease.RangeEnd, "spec.infraComponents.dhcp.rangeEnd", component.RangeEnd)
	c.warnDiffers(s.dhcp, "spec.leaseConfig.leaseTime", lease.LeaseTime, "spec.infraComponents.dhcp.leaseTime", component.LeaseTime)
	c.compareNetwork(s, s.dhcp, typed, network.attachment)
	if servers := dnsServersOfVMs(typed); strings.Join(network.DNSServers, ",") != strings.Join(servers, ",") && len(network.DNSServers) > 0 {
		c.warn(s.dhcp, "spec.networkConfig.dnsServers", "%s is dropped: the DNS server of VMs is %s", strings.Join(network.DNSServers, ", "), orNotSet(strings.Join(servers, ", ")))
	}
	c.options(s, infra, typed, dhcp.Spec.Options)
}

// dnsServersOfVMs returns the DNS servers that DHCP gives to VMs.
func dnsServersOfVMs(infra *v1alpha1.Infra) []string {
	dns := infra.Spec.InfraComponents.DNS
	if !dns.IsEnabled() {
		return infra.Spec.NetworkConfig.DNSServers
	}
	var list []string
	for _, i := range dns.EffectiveInstances() {
		list = append(list, string(i.IP))
	}
	return list
}

// compareNetwork warns if the network of an object is not the network of its Infra.
func (c *converter) compareNetwork(s *infraGroup, o *object, infra *v1alpha1.Infra, a attachment) {
	if a.NetworkAttachmentName == "" {
		return
	}
	network := (&v1alpha1.ProxyNetworkConfig{NetworkAttachmentName: a.NetworkAttachmentName, NetworkAttachmentNamespace: a.NetworkAttachmentNamespace}).NetworkAttachment(s.namespace)
	c.warnDiffers(o, "spec.networkConfig.networkAttachmentName", network.String(), "the network", infra.Spec.NetworkConfig.NetworkAttachment(s.namespace).String())
}

// compareDNS warns if fields of a DNSServer differ from its Infra.
func (c *converter) compareDNS(s *infraGroup, infra *v1alpha1.Infra, dns *dnsServer) {
	network := &dns.Spec.NetworkConfig
	components := &infra.Spec.InfraComponents
	if !components.DNS.IsEnabled() {
		c.warn(s.dns, "", "dropped: Infra %s has no DNS", s.name)
		return
	}
	server, _ := trimPrefixLength(network.ServerIP, "")
	c.warnDiffers(s.dns, "spec.networkConfig.serverIP", server, "spec.infraComponents.dns.serverIP", components.DNS.ServerIP)
	if components.Proxy != nil {
		proxy, _ := trimPrefixLength(network.ProxyIP, "")
		c.warnDiffers(s.dns, "spec.networkConfig.proxyIP", proxy, "spec.infraComponents.proxy.serverIP", components.Proxy.ServerIP)
	}
	c.warnDiffers(s.dns, "spec.networkConfig.secondaryNetworkCIDR", network.SecondaryNetworkCIDR, "spec.networkConfig.cidr", infra.Spec.NetworkConfig.CIDR)
	if domain := components.DNS.ClusterDomain(); dns.Spec.HostedClusterDomain != "." && s.infra != nil {
		c.warnDiffers(s.dns, "spec.hostedClusterDomain", dns.Spec.HostedClusterDomain, "the domain in spec.infraComponents.dns", domain)
	}
	if upstream := strings.Join(dns.Spec.UpstreamDNS, ", "); upstream != "" {
		c.warnDiffers(s.dns, "spec.upstreamDNS", upstream, "spec.networkConfig.dnsServers", strings.Join(infra.Spec.NetworkConfig.DNSServers, ", "))
	}
	c.compareNetwork(s, s.dns, infra, network.attachment)
	if network.InternalProxyIP != "" && s.infra == nil {
		c.warn(s.dns, "spec.networkConfig.internalProxyIP", "%s is dropped: setup creates a Service for the proxy, which DNS uses", network.InternalProxyIP)
	}
	for _, fixed := range []struct{ field, value, old, why string }{
		{"spec.cacheTTL", dns.Spec.CacheTTL, oldCacheTTL, "our answers have a TTL of 30 s, and forwarded answers are cached for their TTL"},
		{"spec.reloadInterval", dns.Spec.ReloadInterval, oldReloadInterval, "DNS watches the objects and reloads nothing"},
		{"spec.networkConfig.dnsPort", portText(network.DNSPort), portText(oldDNSPort), "DNS listens on port 53"},
	} {
		if fixed.value != "" && fixed.value != fixed.old {
			c.warn(s.dns, fixed.field, "%s is dropped: %s", fixed.value, fixed.why)
		}
	}
	c.staticEntries(s, infra, dns.Spec.StaticEntries)
}

// portText returns a port as text; empty for 0.
func portText(port int32) string {
	if port == 0 {
		return ""
	}
	return fmt.Sprint(port)
}

// isIP reports whether a text is an IP address.
func isIP(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}
