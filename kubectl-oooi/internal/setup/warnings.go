package setup

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// warnings returns warnings about input that is valid, but may not have the expected effect.
func (c *change) warnings() {
	for _, text := range c.ignored {
		c.warn("%s", text)
	}
	for _, kind := range []site.Kind{site.Infras, site.ProxyServers} {
		if why := c.live.Unread(kind, ""); why != "" {
			c.warn("%s; addresses and names in other namespaces are not compared", why)
		}
	}
	if c.discovered && c.hosted.Name != "" && c.live.HostedCluster(c.hosted) == nil && c.is.Facts.HostedCluster(c.hosted) != nil {
		c.warn("HostedCluster %s is in the files and not in the cluster; create it; until then, the Infra is not Ready", c.hosted)
	}
	if !c.standalone() && c.controlPlaneNamespace() == "" && !c.Infra.Spec.OnlyDHCP() {
		c.warn("the hosted control plane does not exist yet; its names are served as soon as it exists. Until setup runs again, DNS and proxy can read Services " +
			"and Routes in all namespaces, and no NetworkPolicy allows traffic from the proxy to the control plane")
	}
	if c.standalone() {
		if c.is.AssumedSubnet {
			_, bits, _ := strings.Cut(c.Infra.Spec.NetworkConfig.CIDR, "/")
			c.warn("spec.networkConfig.serverIP: %s lacks a prefix length; /%s is assumed. If the VLAN has another subnet, add its prefix length",
				c.ProxyServer.Spec.NetworkConfig.ServerIP, bits)
		}
	} else if hc := c.is.Facts.HostedCluster(c.hosted); hc != nil {
		for _, why := range hc.UnreachableServices() {
			c.warn("HostedCluster %s, %s", c.hosted, why)
		}
	}
}

// ignoredFields adds a warning for each field of the earlier operator that has no effect and is set to another value than its default. It
// clears images of that operator in the Infra.
func (c *change) ignoredFields() {
	components, server := &c.Infra.Spec.InfraComponents, cmp.Or(c.ProxyServer, &v1alpha1.ProxyServer{}).Spec
	dhcp, dns, proxy := cmp.Or(components.DHCP, &v1alpha1.InfraDHCP{}), cmp.Or(components.DNS, &v1alpha1.InfraDNS{}),
		cmp.Or(components.Proxy, &v1alpha1.InfraProxy{})
	clearImage := func(image *string) (found bool) {
		if found = strings.Contains(*image, "cldmnky/oooi"); found {
			*image = ""
		}
		return found
	}
	const image, manager = "the image belongs to the earlier operator and lacks the required programs", "the field configures the earlier operator"
	for _, f := range []struct {
		ignored    bool
		object     model.Ref
		field, why string
	}{
		{clearImage(&dhcp.Image), c.ref(), "infraComponents.dhcp.image", image},
		{clearImage(&dns.Image), c.ref(), "infraComponents.dns.image", image},
		{proxy.ManagerImage != "", c.ref(), "infraComponents.proxy.managerImage", manager},
		{server.ManagerImage != "", c.serverRef(), "managerImage", manager},
		{server.Port != 0 && server.Port != v1alpha1.DefaultProxyPort, c.serverRef(), "port", "the proxy listens on the ports of its routes"},
		{server.XDSPort != 0 && server.XDSPort != v1alpha1.DefaultXDSPort, c.serverRef(), "xdsPort", "xdsd and Envoy use a Unix socket"},
	} {
		if f.ignored {
			c.warn("%s: spec.%s is ignored: %s", f.object, f.field, f.why)
		}
	}
}

// movedDNS adds a warning if DNS keeps none of its addresses while clients have leases with these addresses.
func (c *change) movedDNS() {
	if c.before == nil || len(c.leased) == 0 {
		return
	}
	was, is := c.was.Model, c.is.Model
	if was == nil || is == nil || len(was.DNS) == 0 || len(is.DNS) == 0 ||
		slices.ContainsFunc(was.DNS, func(a netip.Addr) bool { return slices.Contains(is.DNS, a) }) {
		return
	}
	list := func(all []netip.Addr) string { return strings.Trim(fmt.Sprint(all), "[]") }
	c.warn("DNS moves from %s to %s: VMs query the previous address until they renew their leases; to serve both addresses meanwhile, list both in "+
		"spec.infraComponents.dns.instances first",
		list(was.DNS), list(is.DNS))
}

// domainsOfOthers adds a warning for each domain that the cluster DNS must not forward, because it belongs to an older cluster.
func (c *change) domainsOfOthers() {
	cluster := c.is.Cluster
	if cluster == nil || !c.Infra.Spec.InfraComponents.DNS.IsEnabled() {
		return
	}
	for _, domain := range cluster.Domains {
		if older := c.is.Snapshot.KeeperOf(cluster, domain); older != nil {
			c.warn("the cluster's DNS must not forward %s to this Infra: the domain is part of an apps domain of %s, which is older and keeps its names; pods of "+
				"the management cluster cannot resolve the names of %s. Choose a HostedCluster name or base domain outside of the apps domains of "+
				"others", domain, older.Ref, cluster.Ref)
		}
	}
}
