package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
)

// made is the Infra of a site that has none in the files, as far as what the operator made of it
// says; nil where that does not suffice.
func (c *converter) made(s *site, old decoded) *unstructured.Unstructured {
	if old.dhcp == nil {
		c.fail(s.dns, "there is no Infra %s in the files, and no DHCPServer %s-dhcp to make one of: spec.networkConfig.cidr and spec.networkConfig.gateway are missing", s.name, s.name)
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
			c.fail(s.dhcp, "%s is missing, and with it %s of the Infra %s, which is not in the files", required.from, required.path, s.name)
		}
		set(required.value, required.path)
	}
	set(nad.NetworkAttachmentNamespace, "spec.networkConfig.networkAttachmentNamespace")
	set(lease.LeaseTime, "spec.infraComponents.dhcp.leaseTime")
	c.warn(s.dhcp, "", "there is no Infra %s in the files: one is made of this", s.name)
	if old.dns != nil {
		c.dnsOfMade(s, f, old.dns)
	} else {
		c.servers(f, network.DNSServers)
		c.warn(s.dhcp, "", "there is no DNSServer %s-dns in the files: the Infra has no DNS", s.name)
	}
	switch {
	case old.proxy != nil:
		c.proxyOfMade(s, f, old)
	case old.dns != nil:
		c.warn(s.dns, "spec.networkConfig.proxyIP", "there is no ProxyServer %s-proxy in the files: the Infra has a proxy with this address", s.name)
	default:
		c.warn(s.dhcp, "", "there is no ProxyServer %s-proxy in the files: the Infra has no proxy", s.name)
	}
	return infra
}

func (c *converter) servers(f fields, list []string) {
	if len(list) == 0 {
		return
	}
	var values []any
	for _, one := range list {
		values = append(values, one)
	}
	f.set(values, "spec", "networkConfig", "dnsServers")
}

// dnsOfMade adds what a DNSServer says to an Infra that is made.
func (c *converter) dnsOfMade(s *site, f fields, dns *dnsServer) {
	network := &dns.Spec.NetworkConfig
	for _, address := range []struct{ component, field, value string }{{"dns", "serverIP", network.ServerIP}, {"proxy", "proxyIP", network.ProxyIP}} {
		if address.value == "" {
			c.fail(s.dns, "spec.networkConfig.%s is missing, and with it spec.infraComponents.%s.serverIP of the Infra %s, which is not in the files", address.field, address.component, s.name)
			continue
		}
		f.set(address.value, "spec", "infraComponents", address.component, "serverIP")
	}
	if name, base, ok := strings.Cut(dns.Spec.HostedClusterDomain, "."); ok && name != "" && base != "" {
		f.set(name, "spec", "infraComponents", "dns", "clusterName")
		f.set(base, "spec", "infraComponents", "dns", "baseDomain")
	} else {
		c.warn(s.dns, "spec.hostedClusterDomain", "%q is left out: it is no domain of a cluster", dns.Spec.HostedClusterDomain)
	}
	c.servers(f, dns.Spec.UpstreamDNS)
}

// proxyOfMade adds what a ProxyServer says to an Infra that is made: where the control plane is,
// if its backends agree, and the image.
func (c *converter) proxyOfMade(s *site, f fields, old decoded) {
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
		c.warn(s.proxy, "spec.backends", "they do not tell where the control plane is: name the hosted cluster in spec.hostedClusterRef of the Infra")
	}
	if spec.ProxyImage != "" {
		f.set(spec.ProxyImage, "spec", "infraComponents", "proxy", "proxyImage")
	}
}

// differs says that what the operator made of an Infra is not what the Infra says, which counts.
func (c *converter) differs(o *object, field, value, infraField, infraValue string) {
	if value != "" && value != infraValue {
		c.warn(o, field, "%s is left out: %s of the Infra is %s, which counts", value, infraField, quoted(infraValue))
	}
}

func quoted(text string) string {
	if text == "" {
		return "not set"
	}
	return text
}

// dhcp takes over of a DHCPServer what its Infra does not say.
func (c *converter) dhcp(s *site, infra *unstructured.Unstructured, typed *v1alpha1.Infra, dhcp *dhcpServer) {
	network, lease := &dhcp.Spec.NetworkConfig, &dhcp.Spec.LeaseConfig
	config, ours := &typed.Spec.NetworkConfig, typed.Spec.InfraComponents.DHCP
	if !ours.IsEnabled() {
		c.warn(s.dhcp, "", "left out: the Infra %s has no DHCP", s.name)
		return
	}
	address := func(text string) string {
		bare, _ := bareAddress(text, "")
		return bare
	}
	c.differs(s.dhcp, "spec.networkConfig.cidr", network.CIDR, "spec.networkConfig.cidr", config.CIDR)
	c.differs(s.dhcp, "spec.networkConfig.gateway", network.Gateway, "spec.networkConfig.gateway", config.Gateway)
	c.differs(s.dhcp, "spec.networkConfig.serverIP", address(network.ServerIP), "spec.infraComponents.dhcp.serverIP", ours.ServerIP)
	c.differs(s.dhcp, "spec.leaseConfig.rangeStart", lease.RangeStart, "spec.infraComponents.dhcp.rangeStart", ours.RangeStart)
	c.differs(s.dhcp, "spec.leaseConfig.rangeEnd", lease.RangeEnd, "spec.infraComponents.dhcp.rangeEnd", ours.RangeEnd)
	c.differs(s.dhcp, "spec.leaseConfig.leaseTime", lease.LeaseTime, "spec.infraComponents.dhcp.leaseTime", ours.LeaseTime)
	c.attached(s, s.dhcp, typed, network.attachment)
	if handed := handedOut(typed); strings.Join(network.DNSServers, ",") != strings.Join(handed, ",") && len(network.DNSServers) > 0 {
		c.warn(s.dhcp, "spec.networkConfig.dnsServers", "%s is left out: machines get %s", strings.Join(network.DNSServers, ", "), quoted(strings.Join(handed, ", ")))
	}
	c.options(s, infra, typed, dhcp.Spec.Options)
}

// handedOut are the DNS servers that machines are told of.
func handedOut(infra *v1alpha1.Infra) []string {
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

// attached compares the network of an object with its Infra's.
func (c *converter) attached(s *site, o *object, infra *v1alpha1.Infra, a attachment) {
	if a.NetworkAttachmentName == "" {
		return
	}
	theirs := (&v1alpha1.ProxyNetworkConfig{NetworkAttachmentName: a.NetworkAttachmentName, NetworkAttachmentNamespace: a.NetworkAttachmentNamespace}).NetworkAttachment(s.namespace)
	c.differs(o, "spec.networkConfig.networkAttachmentName", theirs.String(), "the network", infra.Spec.NetworkConfig.NetworkAttachment(s.namespace).String())
}

// dns compares a DNSServer with its Infra.
func (c *converter) dns(s *site, infra *v1alpha1.Infra, dns *dnsServer) {
	network := &dns.Spec.NetworkConfig
	components := &infra.Spec.InfraComponents
	if !components.DNS.IsEnabled() {
		c.warn(s.dns, "", "left out: the Infra %s has no DNS", s.name)
		return
	}
	server, _ := bareAddress(network.ServerIP, "")
	c.differs(s.dns, "spec.networkConfig.serverIP", server, "spec.infraComponents.dns.serverIP", components.DNS.ServerIP)
	if components.Proxy != nil {
		proxy, _ := bareAddress(network.ProxyIP, "")
		c.differs(s.dns, "spec.networkConfig.proxyIP", proxy, "spec.infraComponents.proxy.serverIP", components.Proxy.ServerIP)
	}
	c.differs(s.dns, "spec.networkConfig.secondaryNetworkCIDR", network.SecondaryNetworkCIDR, "spec.networkConfig.cidr", infra.Spec.NetworkConfig.CIDR)
	if domain := components.DNS.ClusterDomain(); dns.Spec.HostedClusterDomain != "." && s.infra != nil {
		c.differs(s.dns, "spec.hostedClusterDomain", dns.Spec.HostedClusterDomain, "the domain in spec.infraComponents.dns", domain)
	}
	if upstream := strings.Join(dns.Spec.UpstreamDNS, ", "); upstream != "" {
		c.differs(s.dns, "spec.upstreamDNS", upstream, "spec.networkConfig.dnsServers", strings.Join(infra.Spec.NetworkConfig.DNSServers, ", "))
	}
	c.attached(s, s.dns, infra, network.attachment)
	if network.InternalProxyIP != "" && s.infra == nil {
		c.warn(s.dns, "spec.networkConfig.internalProxyIP", "%s is left out: setup makes a Service of the proxy, which DNS follows", network.InternalProxyIP)
	}
	for _, fixed := range []struct{ field, value, old, why string }{
		{"spec.cacheTTL", dns.Spec.CacheTTL, oldCacheTTL, "our answers say 30 s, and those of others are cached for as long as they say"},
		{"spec.reloadInterval", dns.Spec.ReloadInterval, oldReloadInterval, "what changes is followed as it does"},
		{"spec.networkConfig.dnsPort", portText(network.DNSPort), portText(oldDNSPort), "DNS is on port 53"},
	} {
		if fixed.value != "" && fixed.value != fixed.old {
			c.warn(s.dns, fixed.field, "%s is left out: %s", fixed.value, fixed.why)
		}
	}
	c.staticEntries(s, infra, dns.Spec.StaticEntries)
}

func portText(port int32) string {
	if port == 0 {
		return ""
	}
	return fmt.Sprint(port)
}

// isIP reports whether a text is an address.
func isIP(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}
