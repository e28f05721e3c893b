package model

import (
	"slices"

	"github.com/densityops/oooi/internal/objects"
)

// clusterOf parses a HostedCluster. Until HyperShift has set a valid base domain, the cluster has only the names in
// the object. Its cluster domain would be "<name>.".
func clusterOf(hc *objects.HostedCluster, routes []*objects.Route, allocated nodePorts, found *problems) *draft {
	c := &draft{Cluster: &Cluster{
		Ref:                   Ref{Kind: "HostedCluster", Namespace: hc.Namespace, Name: hc.Name},
		UID:                   string(hc.UID),
		Created:               hc.CreationTimestamp.Time,
		ControlPlaneNamespace: ControlPlaneNamespace(hc.Namespace, hc.Name),
		InfraID:               hc.Spec.InfraID,
	}, apiPort: apiPort(hc, allocated), oauth: hc.HasOAuth(), object: hc}
	c.Platform, c.ExternalVMs = hc.Spec.Platform.Type, hc.Spec.Platform.HasExternalVMs()
	if ref := hc.Status.KubeConfig; ref != nil && ref.Name != "" {
		c.Kubeconfig = hc.Namespace + "/" + ref.Name
	}
	c.vmNamespace = hc.Spec.Platform.VMNamespace()
	domain := ""
	if hc.Spec.DNS.BaseDomain != "" {
		domain, _ = publishable(c.Ref, clusterDomain(hc), "spec.dns", found)
	} else {
		remedy := "set spec.dns.baseDomain"
		if p := hc.Spec.Platform.KubeVirt; p != nil && p.BaseDomainPassthrough {
			remedy = "HyperShift fills it in from the management cluster's apps domain (baseDomainPassthrough)"
		}
		found.add(c.Ref, ReasonNoBaseDomain, "no base domain, so only explicit hostnames and apps domains are published: %s", remedy)
	}
	c.addPublished(hc, routes, allocated, found)
	if domain != "" {
		c.addDomain(domain)
	}
	for _, apps := range appsDomains(hc, c.Ref, domain, found) {
		c.addAppsDomain(apps)
	}
	c.addComponentRoutes(hc, found)
	c.finish()
	return c
}

// addDomain adds a cluster domain with its conventional names.
func (d *draft) addDomain(domain string) {
	d.Domains = append(d.Domains, domain)
	d.AppsNames = append(d.AppsNames, consoleHost+"."+domain)
	d.addConventional(domain)
}

// addAppsDomain adds an apps domain with the OAuth server's name in it.
func (d *draft) addAppsDomain(domain string) {
	d.AppsDomains = append(d.AppsDomains, domain)
	if d.oauth {
		d.addName(oauthHost+"."+domain, RoleOAuth, portHTTPS, conventional)
	}
}

// addComponentRoutes adds the custom hostnames of OpenShift's components. The OAuth server runs in the control plane; the
// others, such as the console, are apps.
func (d *draft) addComponentRoutes(hc *objects.HostedCluster, found *problems) {
	if hc.Spec.Configuration == nil || hc.Spec.Configuration.Ingress == nil {
		return
	}
	for _, r := range hc.Spec.Configuration.Ingress.ComponentRoutes {
		source := r.Field()
		name, ok := publishable(d.Ref, r.Hostname, source, found)
		switch {
		case !ok:
		case r.Namespace == "openshift-authentication" && r.Name == oauthHost:
			if d.oauth {
				d.addName(name, RoleOAuth, portHTTPS, source)
			}
		case !slices.Contains(d.AppsNames, name) && !slices.ContainsFunc(d.AppsDomains, func(apps string) bool { return within(name, apps) }):
			d.AppsNames = append(d.AppsNames, name)
		}
	}
}

// clusterDomain returns the cluster domain, as HyperShift's support/globalconfig.BaseDomain does.
func clusterDomain(hc *objects.HostedCluster) string {
	prefix := hc.Name
	if p := hc.Spec.DNS.BaseDomainPrefix; p != nil {
		prefix = *p
	}
	if prefix == "" {
		return hc.Spec.DNS.BaseDomain
	}
	return prefix + "." + hc.Spec.DNS.BaseDomain
}

// consoleHost is the first label of the console's name: under the cluster domain in the kube-apiserver's
// configuration, under the apps domain in OpenShift's Route.
const consoleHost = "console-openshift-console"

// oauthHost is the first label of the OAuth server's name under an apps domain.
const oauthHost = "oauth-openshift"

// appsDomains returns the apps domains as HyperShift's support/globalconfig.IngressDomain does, except that
// it returns both domains if both are configured: the hosted cluster's default Routes use one, and its
// ingress configuration has the other. Without a cluster domain, only configured ones are returned.
func appsDomains(hc *objects.HostedCluster, ref Ref, domain string, found *problems) []string {
	var domains []string
	if cfg := hc.Spec.Configuration; cfg != nil && cfg.Ingress != nil {
		for _, d := range []struct{ name, source string }{
			{cfg.Ingress.AppsDomain, "spec.configuration.ingress.appsDomain"},
			{cfg.Ingress.Domain, "spec.configuration.ingress.domain"},
		} {
			if d.name == "" {
				continue
			}
			if name, ok := publishable(ref, d.name, d.source, found); ok && !slices.Contains(domains, name) {
				domains = append(domains, name)
			}
		}
	}
	if len(domains) == 0 && domain != "" {
		domains = []string{"apps." + domain}
	}
	return domains
}
