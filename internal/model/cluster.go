package model

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/internal/objects"
)

// Cluster is one hosted cluster: a HostedCluster, or an Infra whose HostedCluster
// does not exist yet and whose typed names are served meanwhile.
type Cluster struct {
	Ref
	// UID tells the cluster from one of the same name before it or after it.
	UID string `json:"uid,omitempty"`
	// Created decides who keeps a name that two clusters claim.
	Created time.Time `json:"created"`
	// ControlPlaneNamespace is where HyperShift runs the control plane.
	ControlPlaneNamespace string `json:"controlPlaneNamespace,omitempty"`
	// InfraID joins virtual machines and mirrored Services to the cluster.
	InfraID string `json:"infraID,omitempty"`
	// Platform is HyperShift's name of where the virtual machines run, such as KubeVirt.
	Platform string `json:"platform,omitempty"`
	// Kubeconfig is the Secret with the administrator's kubeconfig, "namespace/name"; empty
	// until HyperShift has made it.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// APIServer is where the API server is reached in the management cluster, "host:port", for
	// who asked as admin; empty while its Service does not exist.
	APIServer string `json:"apiServer,omitempty"`
	// Domains are the cluster domains: HyperShift's first, then typed ones that differ.
	Domains []string `json:"domains"`
	// AppsDomains are the parents of the application wildcards.
	AppsDomains []string `json:"appsDomains"`
	// AppsNames are names outside the wildcards that lead to the apps ingress.
	AppsNames []string `json:"appsNames,omitempty"`
	// Hostnames are the control plane's names, sorted.
	Hostnames []Hostname `json:"hostnames"`
	// Apps is where the applications are reached; nil when nobody asked for them.
	Apps *Apps `json:"apps,omitempty"`
}

// draft is a Cluster while it is being put together.
type draft struct {
	*Cluster

	infras  []*Infra  // bound to the cluster, sorted by reference
	names   hostnames // what Hostnames are to be; nil while those are whole
	guests  string    // the namespace of the virtual machines, where that is another one
	apiPort int32     // the port on which clients dial the API server
	oauth   bool      // HyperShift runs an OAuth server for the cluster

	nodePorts nodePorts              // of the control plane's Services
	object    *objects.HostedCluster // nil for what stands in for one
}

// finish makes Hostnames whole.
func (d *draft) finish() {
	if d.names != nil {
		d.Hostnames, d.names = d.names.sorted(), nil
	}
}

// copy returns a draft that can be added to without a change to this one, which is finished.
func (d *draft) copy() *draft {
	own, c := *d, *d.Cluster
	c.Domains, c.AppsDomains, c.AppsNames = slices.Clip(c.Domains), slices.Clip(c.AppsDomains), slices.Clip(c.AppsNames)
	own.Cluster = &c
	return &own
}

// equal reports whether two clusters are the same in everything.
func (c *Cluster) equal(o *Cluster) bool {
	return c.Ref == o.Ref && c.UID == o.UID && c.Created.Equal(o.Created) &&
		c.ControlPlaneNamespace == o.ControlPlaneNamespace && c.InfraID == o.InfraID && c.Platform == o.Platform && c.Kubeconfig == o.Kubeconfig && c.APIServer == o.APIServer &&
		slices.Equal(c.Domains, o.Domains) && slices.Equal(c.AppsDomains, o.AppsDomains) && slices.Equal(c.AppsNames, o.AppsNames) &&
		equalHostnames(c.Hostnames, o.Hostnames) && c.Apps.equal(o.Apps)
}

// compareAge orders clusters by who came first.
func compareAge(a, b *Cluster) int {
	return cmp.Or(a.Created.Compare(b.Created), compareRefs(a.Ref, b.Ref))
}

// ControlPlaneNamespace returns the namespace in which HyperShift runs the control
// plane of the HostedCluster namespace/name.
func ControlPlaneNamespace(namespace, name string) string {
	return namespace + "-" + strings.ReplaceAll(name, ".", "-")
}

// clusterOf reads a HostedCluster. Without a usable base domain the cluster has no
// domains and no names but those that its objects spell out: until HyperShift has found
// one, its cluster domain would be the bare "<name>.".
func clusterOf(hc *objects.HostedCluster, routes []*objects.Route, allocated nodePorts, found *problems) *draft {
	c := &draft{Cluster: &Cluster{
		Ref:                   Ref{Kind: "HostedCluster", Namespace: hc.Namespace, Name: hc.Name},
		UID:                   string(hc.UID),
		Created:               hc.CreationTimestamp.Time,
		ControlPlaneNamespace: ControlPlaneNamespace(hc.Namespace, hc.Name),
		InfraID:               hc.Spec.InfraID,
	}, apiPort: apiPort(hc, allocated), oauth: hasOAuth(hc), nodePorts: allocated, object: hc}
	c.Platform = hc.Spec.Platform.Type
	if ref := hc.Status.KubeConfig; ref != nil && ref.Name != "" {
		c.Kubeconfig = hc.Namespace + "/" + ref.Name
	}
	if p := hc.Spec.Platform.KubeVirt; p != nil && p.Credentials != nil {
		c.guests = p.Credentials.InfraNamespace
	}
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
	c.addPublished(hc, routes, found)
	if domain != "" {
		c.addDomain(domain)
	}
	for _, apps := range appsDomains(hc, c.Ref, domain, found) {
		c.addAppsDomain(apps)
	}
	c.finish()
	return c
}

// addDomain gives the cluster a cluster domain with the names that are expected in one.
func (d *draft) addDomain(domain string) {
	d.Domains = append(d.Domains, domain)
	d.AppsNames = append(d.AppsNames, consoleHost+"."+domain)
	d.addConventional(domain)
}

// addAppsDomain gives the cluster an apps domain with the OAuth server's name in it.
func (d *draft) addAppsDomain(domain string) {
	d.AppsDomains = append(d.AppsDomains, domain)
	if d.oauth {
		d.addName(oauthHost+"."+domain, RoleOAuth, portHTTPS, conventional)
	}
}

// addName gives the cluster a hostname, or one that it has another meaning.
func (d *draft) addName(name string, role Role, port int32, source string) {
	if d.names == nil {
		d.names = hostnames{}
		for _, h := range d.Hostnames {
			d.names[h.Name] = slices.Clone(h.Endpoints)
		}
	}
	d.names.add(name, role, port, source)
}

// clusterDomain is support/globalconfig.BaseDomain of HyperShift.
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

// consoleHost is the console's first label. KAS announces it under the cluster
// domain, OpenShift's Route has it under the apps domain.
const consoleHost = "console-openshift-console"

// oauthHost is the OAuth server's first label under an apps domain.
const oauthHost = "oauth-openshift"

// appsDomains follows support/globalconfig.IngressDomain of HyperShift, save that
// it returns both domains where both are configured: the guest's default Routes
// use one and its ingress configuration keeps the other. Without a cluster domain
// only those are left.
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

// publishable cleans a name and refuses, with a problem, what must never be
// served: malformed names, single labels, and the management cluster's own
// service names. Addresses and HyperShift's private names are left out silently,
// for they are no fault of anybody's.
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
		found.add(ref, ReasonInvalidName, "%s: %q belongs to the management cluster's own services", source, s)
	default:
		return name, true
	}
	return "", false
}
