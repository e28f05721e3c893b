package model

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/internal/objects"
)

// Cluster is a hosted cluster. It is derived from a HostedCluster or, as a placeholder until that exists,
// from an Infra.
type Cluster struct {
	Ref
	// UID distinguishes the cluster from earlier ones of the same name; empty for a placeholder.
	UID string `json:"uid,omitempty"`
	// Created is the creation time of the object. Of two clusters that claim a name, the older one gets it.
	Created time.Time `json:"created"`
	// ControlPlaneNamespace is the namespace of the control plane; empty for a placeholder if the Infra sets none.
	ControlPlaneNamespace string `json:"controlPlaneNamespace,omitempty"`
	// InfraID identifies VMs and mirrored Services of the cluster; empty if it is not known yet.
	InfraID string `json:"infraID,omitempty"`
	// Platform is the platform type of the HostedCluster, such as KubeVirt.
	Platform string `json:"platform,omitempty"`
	// ExternalVMs is set if the VMs run in another cluster than the control plane.
	ExternalVMs bool `json:"externalVMs,omitempty"`
	// Kubeconfig is the Secret with the admin kubeconfig, "namespace/name"; empty until HyperShift publishes
	// it.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// APIServer is the "host:port" of the API server in the management cluster; empty without AppsOptions.Admin,
	// or if its Service does not exist.
	APIServer string `json:"apiServer,omitempty"`
	// Domains are the cluster domains: the HostedCluster's, then those of Infras that differ.
	Domains []string `json:"domains"`
	// AppsDomains are the apps domains, without "*.".
	AppsDomains []string `json:"appsDomains"`
	// AppsNames are names outside of the apps domains that resolve to the apps address.
	AppsNames []string `json:"appsNames,omitempty"`
	// Hostnames are the control-plane names, sorted.
	Hostnames []Hostname `json:"hostnames"`
	// Apps are the apps addresses; nil if apps are not enabled.
	Apps *Apps `json:"apps,omitempty"`
}

// draft is a Cluster that is being built.
type draft struct {
	*Cluster

	infras      []*Infra               // that serve the cluster, sorted by reference
	names       hostnames              // the names, if they differ from Hostnames; nil if Hostnames is complete
	vmNamespace string                 // the namespace of the VMs, if it is not the control plane's
	apiPort     int32                  // the port that clients of the API server connect to
	oauth       bool                   // whether HyperShift runs an OAuth server for the cluster
	object      *objects.HostedCluster // nil for a placeholder
}

// finish completes Hostnames.
func (d *draft) finish() {
	if d.names != nil {
		d.Hostnames, d.names = d.names.sorted(), nil
	}
}

// copy returns a copy of d, which must be finished. Additions to the copy do not change d.
func (d *draft) copy() *draft {
	own, c := *d, *d.Cluster
	c.Domains, c.AppsDomains, c.AppsNames = slices.Clip(c.Domains), slices.Clip(c.AppsDomains), slices.Clip(c.AppsNames)
	own.Cluster = &c
	return &own
}

// compareAge orders clusters by creation time, then by reference.
func compareAge(a, b *Cluster) int {
	return cmp.Or(a.Created.Compare(b.Created), compareRefs(a.Ref, b.Ref))
}

// KeeperOf returns the cluster that keeps the names in a domain of c: one that is older and has an apps domain that the
// domain equals or lies in. It returns nil if there is none.
func (s *Snapshot) KeeperOf(c *Cluster, domain string) *Cluster {
	for _, other := range s.Clusters {
		if compareAge(other, c) < 0 && slices.ContainsFunc(other.AppsDomains, func(apps string) bool { return within(domain, apps) }) {
			return other
		}
	}
	return nil
}

// ForwardedDomains returns the domains of a cluster that the management cluster's DNS must forward to the DNS of its Infra,
// without subdomains of earlier ones. It omits domains whose names an older cluster keeps: a longer zone would take them from
// that cluster.
func (s *Snapshot) ForwardedDomains(c *Cluster) []string {
	var domains []string
	for _, domain := range slices.Concat(c.Domains, c.AppsDomains, c.AppsNames) {
		covered := slices.ContainsFunc(domains, func(earlier string) bool { return within(domain, earlier) })
		if !covered && s.KeeperOf(c, domain) == nil {
			domains = append(domains, domain)
		}
	}
	return domains
}

// ControlPlaneNamespace returns the namespace in which HyperShift runs the control plane of the HostedCluster
// namespace/name.
func ControlPlaneNamespace(namespace, name string) string {
	return namespace + "-" + strings.ReplaceAll(name, ".", "-")
}

// clusterOf parses a HostedCluster. Until HyperShift has set a valid base domain, the cluster has no domains,
// and only the names in the object: its cluster domain would be "<name>.".
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

// addName adds a hostname, or an endpoint to an existing hostname.
func (d *draft) addName(name string, role Role, port int32, source string) {
	if d.names == nil {
		d.names = hostnames{}
		for _, h := range d.Hostnames {
			d.names[h.Name] = slices.Clone(h.Endpoints)
		}
	}
	d.names.add(name, role, port, source)
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

// publishable returns the normalized form of a name and whether it may be served. It reports malformed names,
// single labels and names of the management cluster's Services. Addresses and HyperShift's private names
// (hypershift.local) are not served either, but they are not errors, and not reported.
func publishable(ref Ref, s, source string, found *problems) (string, bool) {
	if isAddress(s) {
		return "", false
	}
	name, err := cleanName(s)
	switch {
	case err != nil:
		found.add(ref, ReasonInvalidName, "%s: %v", source, err)
	case within(name, "hypershift.local"):
	case !strings.Contains(name, "."):
		found.add(ref, ReasonInvalidName, "%s: %q is a single label; want a name with a domain", source, s)
	case within(name, "cluster.local"):
		found.add(ref, ReasonInvalidName, "%s: %q is in cluster.local, the domain of the management cluster's Services", source, s)
	default:
		return name, true
	}
	return "", false
}
