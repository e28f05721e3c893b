package model

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// Objects is the input of Build. The snapshot file contains it as JSON, so every field must survive encoding and
// decoding.
type Objects struct {
	HostedClusters []*objects.HostedCluster `json:"hostedClusters,omitempty"`
	Infras         []*v1alpha1.Infra        `json:"infras,omitempty"`
	Services       []*objects.Service       `json:"services,omitempty"`
	Routes         []*objects.Route         `json:"routes,omitempty"`
	ProxyServers   []*v1alpha1.ProxyServer  `json:"proxyServers,omitempty"`
	// NetworkAttachments identify the networks of Infras and ProxyServers. NetworkAttachments that are not in the
	// list are separate networks.
	NetworkAttachments []*objects.NetworkAttachment `json:"networkAttachments,omitempty"`
	// EndpointSlices are only kept for the snapshot file. Build ignores them, because they change often and a
	// Snapshot does not depend on them.
	EndpointSlices []*objects.EndpointSlice `json:"endpointSlices,omitempty"`
	Broken         []*objects.Broken        `json:"broken,omitempty"`
	// AppsServices are the apps Services in hosted clusters.
	AppsServices []*objects.AppsService `json:"appsServices,omitempty"`
	// DHCPLeases are the Leases of DHCP, which have the VMs' addresses.
	DHCPLeases []*objects.DHCPLease `json:"dhcpLeases,omitempty"`
	// LastGood is the result of Snapshot.LastGood of the previous snapshot; nil for none.
	LastGood map[string][]netip.Addr `json:"lastGood,omitempty"`
	// LastServices is the result of Snapshot.LastServices of the previous snapshot; nil for none.
	LastServices map[string]string `json:"lastServices,omitempty"`
}

// Add appends each object to the list of its type. It ignores other types.
func (o *Objects) Add(list ...objects.Object) {
	for _, object := range list {
		switch object := object.(type) {
		case *objects.HostedCluster:
			o.HostedClusters = append(o.HostedClusters, object)
		case *v1alpha1.Infra:
			o.Infras = append(o.Infras, object)
		case *objects.Route:
			o.Routes = append(o.Routes, object)
		case *objects.Service:
			o.Services = append(o.Services, object)
		case *v1alpha1.ProxyServer:
			o.ProxyServers = append(o.ProxyServers, object)
		case *objects.NetworkAttachment:
			o.NetworkAttachments = append(o.NetworkAttachments, object)
		case *objects.EndpointSlice:
			o.EndpointSlices = append(o.EndpointSlices, object)
		case *objects.AppsService:
			o.AppsServices = append(o.AppsServices, object)
		case *objects.DHCPLease:
			o.DHCPLeases = append(o.DHCPLeases, object)
		case *objects.Broken:
			o.Broken = append(o.Broken, object)
		}
	}
}

// Options configure what a Snapshot contains.
type Options struct {
	Scope Scope
	// Apps configures the sources of apps addresses; nil for a Snapshot without apps addresses.
	Apps *AppsOptions
	// Proxies reports whether the Snapshot includes ProxyServers.
	Proxies bool
	// Backends reports whether the names of the ProxyServers' backends are published on the VLANs of their Infras.
	Backends bool
	// Names limits the names that are published.
	Names NameRules
	// Leases are the Infras, "namespace/name", whose DHCP leases are among the objects, or AllLeases. Names of VMs of other
	// Infras are not published.
	Leases []string
}

// AllLeases stands for all Infras in Options.Leases.
const AllLeases = "*"

// NameRules limit which names are published for hosted clusters. Authors of HostedClusters can set any
// hostname.
type NameRules struct {
	// Management are domains of the management cluster, such as "apps.mgmt.example.com" and
	// "mgmt.example.com", in addition to the apps domain of OpenShift's canary Route.
	Management []string
	// Allowed are the domains that published names must be in; empty for all.
	Allowed []string
}

// Scope limits a Snapshot to the listed objects, each "namespace/name". The zero value includes all objects. With
// Infras only, the hosted clusters are those that these Infras serve. With HostedClusters or Namespaces but without
// Infras, no Infra is in scope.
type Scope struct {
	Infras         []string
	HostedClusters []string
	// ProxyServers are the ProxyServers in scope; empty for all.
	ProxyServers []string
	// Namespaces are the namespaces of ProxyServers' backends, in addition to control-plane namespaces.
	Namespaces []string
	// ServiceNamespaces are the namespaces of further Services whose addresses are used. They do not close the scope.
	ServiceNamespaces []string
}

// Closed reports whether the namespaces to read are known in advance: the namespaces of the listed hosted clusters
// or, for a proxy with only its own backends, the listed namespaces. Otherwise an Infra may refer to any namespace.
func (s Scope) Closed() bool {
	return len(s.HostedClusters) > 0 || len(s.Infras) == 0 && len(s.Namespaces) > 0
}

// includesBackends reports whether Services of a namespace can be targets of backends.
func (s Scope) includesBackends(namespace string) bool {
	return !s.Closed() || slices.Contains(s.Namespaces, namespace) || slices.ContainsFunc(s.HostedClusters, func(key string) bool {
		of, name, _ := strings.Cut(key, "/")
		return ControlPlaneNamespace(of, name) == namespace
	})
}

// IncludesServices reports whether all Services of a namespace are in scope.
func (s Scope) IncludesServices(namespace string) bool {
	return s.includesBackends(namespace) || slices.Contains(s.ServiceNamespaces, namespace) || slices.ContainsFunc(s.Infras, func(key string) bool {
		of, _, _ := strings.Cut(key, "/")
		return of == namespace
	})
}

// hasInfras reports whether any Infra can be in scope.
func (s Scope) hasInfras() bool { return len(s.Infras) > 0 || !s.Closed() }

// Snapshot is the result of a build. It is immutable and safe for concurrent use.
type Snapshot struct {
	// Clusters are the hosted clusters in scope, oldest first.
	Clusters []*Cluster `json:"clusters"`
	// Infras are the Infras in scope, sorted by reference.
	Infras []*Infra `json:"infras"`
	// Parts are the hosted clusters in groups that share no names, the group of the oldest cluster first. Successive
	// snapshots share Parts that did not change.
	Parts []*Part `json:"-"`
	// VLANs are the VLANs of the Infras, each with its view, sorted by name.
	VLANs []*VLAN `json:"vlans"`
	// ProxyServers are the proxies in scope, sorted by reference; nil if Options.Proxies is false.
	ProxyServers []*ProxyServer `json:"proxyServers,omitempty"`
	// Problems are all problems found, sorted by object.
	Problems []Problem `json:"problems"`

	pod      func() *View
	services *serviceIndex
	vmHosts  map[string][]*vmHost // hosts whose leases are in force, by pool
}

// A Part is a group of hosted clusters whose names do not interact with other clusters' names: no name in the group
// equals a name outside, or is its parent or child domain.
type Part struct {
	// Clusters are sorted, oldest first.
	Clusters []*Cluster
	// Pod is the part of the view of pods.
	Pod *View
}

// oldest returns the oldest cluster, or the zero Ref if there is none.
func (p *Part) oldest() Ref {
	if len(p.Clusters) == 0 {
		return Ref{}
	}
	return p.Clusters[0].Ref
}

// Pod returns the view of pods and of the management cluster's DNS, which is built when it is first read.
func (s *Snapshot) Pod() *View { return s.pod() }

// ServiceIPs returns the sorted cluster IPs of a Service, "namespace/name"; empty if it does not exist or has none.
// They come from the Builder's latest snapshot.
func (s *Snapshot) ServiceIPs(name string) []netip.Addr { return s.services.addresses(name) }

// Infra returns the Infra "namespace/name", or nil if it is not in scope.
func (s *Snapshot) Infra(name string) *Infra {
	if i := slices.IndexFunc(s.Infras, func(i *Infra) bool { return i.Key() == name }); i >= 0 {
		return s.Infras[i]
	}
	return nil
}

// ProxyServer returns the proxy of the ProxyServer "namespace/name", or nil if it is not in scope or Options.Proxies
// is false.
func (s *Snapshot) ProxyServer(name string) *ProxyServer {
	if i := slices.IndexFunc(s.ProxyServers, func(p *ProxyServer) bool { return p.Key() == name }); i >= 0 {
		return s.ProxyServers[i]
	}
	return nil
}

// VLAN is one network with the Infras on it.
type VLAN struct {
	// Name is the NetworkAttachmentDefinition of its first Infra, "namespace/name".
	Name string `json:"name"`
	// CIDRs are its subnets, sorted.
	CIDRs []netip.Prefix `json:"cidrs"`
	// View is the view of its clients, with the hosted clusters of its Infras only.
	View *View `json:"view"`

	infras []*Infra
}

// Uses reports whether an Infra on the VLAN has a NetworkAttachmentDefinition, "namespace/name".
func (v *VLAN) Uses(nad string) bool {
	return slices.ContainsFunc(v.infras, func(i *Infra) bool { return i.NetworkAttachment == nad })
}

// podPublications returns the publications of the pods' view: control-plane and apps names resolve to the
// proxy's Service. Of a cluster on several VLANs, proxies that are not ready are left out while another one is ready, and only
// the proxy of the Infra that configures the apps has routes to them.
func podPublications(clusters []*draft, services *serviceIndex) []Publication {
	list := make([]Publication, 0, len(clusters))
	for _, c := range clusters {
		p := Publication{Cluster: c.Cluster}
		works := func(i *Infra) bool { return i.Proxy != nil && len(i.Proxy.ClusterIPs) > 0 && !i.proxyFailed }
		anyWorks := slices.ContainsFunc(c.infras, works)
		for _, i := range c.infras {
			p.NameServers = append(p.NameServers, services.addresses(i.Key()+"-dns")...)
			if i.Proxy == nil {
				continue
			}
			p.ControlPlane.Served = true
			if anyWorks && !works(i) {
				continue
			}
			p.ControlPlane.Addresses = append(p.ControlPlane.Addresses, i.Proxy.ClusterIPs...)
		}
		if c.Apps != nil && p.ControlPlane.Served {
			p.Apps = Answer{Served: true}
			if len(c.Apps.Addresses) > 0 { // otherwise the proxy's destination is not known yet
				p.Apps.Addresses = c.appsProxy(p.ControlPlane.Addresses)
			}
		}
		list = append(list, p.sorted())
	}
	return list
}

// appsProxy returns the cluster IPs of the proxy with routes to the apps; others, if only the options configure the apps.
func (d *draft) appsProxy(others []netip.Addr) []netip.Addr {
	if d.Apps.Infra == nil {
		return others
	}
	for _, i := range d.infras {
		if i.Ref == *d.Apps.Infra && i.Proxy != nil {
			return i.Proxy.ClusterIPs
		}
	}
	return nil
}

// publications returns the publications of the VLAN's view: control-plane names resolve to the proxy's VLAN
// addresses, apps names to the apps addresses or, if the router requires the PROXY protocol, to the proxy's.
func (v *VLAN) publications() []Publication {
	byCluster := map[*Cluster]*Publication{}
	for _, i := range v.infras {
		if i.Cluster == nil {
			continue
		}
		p := byCluster[i.Cluster]
		if p == nil {
			p = &Publication{Cluster: i.Cluster, Apps: i.Cluster.AppsAnswer()}
			byCluster[i.Cluster] = p
		}
		if i.appsThroughProxy() && len(p.Apps.Addresses) > 0 { // otherwise the proxy's destination is not known yet
			p.Apps.Addresses = i.Proxy.VLAN
		}
		p.NameServers = append(p.NameServers, i.DNS...)
		if i.Proxy != nil {
			p.ControlPlane.Served = true
			p.ControlPlane.Addresses = append(p.ControlPlane.Addresses, i.Proxy.VLAN...)
		}
	}
	list := make([]Publication, 0, len(byCluster))
	for _, p := range byCluster {
		list = append(list, p.sorted())
	}
	return list
}

func (p Publication) sorted() Publication {
	p.ControlPlane.Addresses = sortedAddrs(slices.Clone(p.ControlPlane.Addresses))
	p.Apps.Addresses = sortedAddrs(slices.Clone(p.Apps.Addresses))
	p.NameServers = sortedAddrs(slices.Clone(p.NameServers))
	return p
}

// vlansOf groups Infras by VLAN, and reports VLANs with the same CIDR, which cannot be distinguished by a
// client's address.
func vlansOf(infras []*Infra, found *problems) []*VLAN {
	byName := map[string]*VLAN{}
	owner := map[netip.Prefix]*Infra{}
	var list []*VLAN
	for _, i := range infras {
		v := byName[i.VLAN]
		if v == nil {
			v = &VLAN{Name: i.VLAN}
			byName[i.VLAN] = v
			list = append(list, v)
		}
		v.infras = append(v.infras, i)
		v.CIDRs = append(v.CIDRs, i.CIDRs...)
		for _, cidr := range i.CIDRs {
			first := owner[cidr]
			if first == nil {
				owner[cidr] = i
			} else if first.VLAN != i.VLAN {
				found.add(i.Ref, ReasonVLANOverlap,
					"%s is also the CIDR of %s on VLAN %s: give each VLAN a separate DNS listener", cidr, first.Ref, first.VLAN)
			}
		}
	}
	for _, v := range list {
		slices.SortFunc(v.CIDRs, netip.Prefix.Compare)
		v.CIDRs = slices.Compact(v.CIDRs)
	}
	slices.SortFunc(list, func(a, b *VLAN) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// KeeperOf returns the cluster that keeps the names in a domain of c: one that is older and has an apps domain that the
// domain equals or lies in. Without one it returns nil.
func (s *Snapshot) KeeperOf(c *Cluster, domain string) *Cluster {
	for _, other := range s.Clusters {
		if compareAge(other, c) < 0 && slices.ContainsFunc(other.AppsDomains, func(apps string) bool { return within(domain, apps) }) {
			return other
		}
	}
	return nil
}

// ForwardedDomains returns the domains of a cluster that the management cluster's DNS must forward to the DNS of its Infra,
// without subdomains of earlier ones. It omits domains whose names an older cluster keeps: a longer zone would take
// precedence over that cluster's.
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

func inScope(scope []string, o objects.Object) bool {
	return len(scope) == 0 || slices.Contains(scope, o.GetNamespace()+"/"+o.GetName())
}

// LastServices returns the Services, "namespace/name", that were selected by the labels of backends, keyed by upstream
// name, for Objects.LastServices of the next snapshot. Backends without a selected Service are omitted.
func (s *Snapshot) LastServices() map[string]string {
	found := map[string]string{}
	for _, p := range s.ProxyServers {
		for _, u := range p.Upstreams {
			if u.Selected && u.Service != "" {
				found[u.Name] = u.Service
			}
		}
	}
	return found
}

// LastGood returns the apps addresses of each hosted cluster that has any, keyed by the cluster's key and UID, for
// Objects.LastGood of the next snapshot. Clusters that do not exist yet are omitted.
func (s *Snapshot) LastGood() map[string][]netip.Addr {
	kept := map[string][]netip.Addr{}
	for _, c := range s.Clusters {
		if c.Apps != nil && len(c.Apps.Addresses) > 0 && !c.isPlaceholder() {
			kept[c.identity()] = c.Apps.Addresses
		}
	}
	return kept
}
