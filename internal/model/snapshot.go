package model

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// Objects is everything that a Snapshot is computed from. It is plain data: it
// survives a round trip through JSON, which is what the snapshot file holds.
type Objects struct {
	HostedClusters []*objects.HostedCluster `json:"hostedClusters,omitempty"`
	Infras         []*v1alpha1.Infra        `json:"infras,omitempty"`
	Services       []*objects.Service       `json:"services,omitempty"`
	Routes         []*objects.Route         `json:"routes,omitempty"`
	ProxyServers   []*v1alpha1.ProxyServer  `json:"proxyServers,omitempty"`
	// EndpointSlices are kept with the rest. The model does not read them: they change
	// often, and mean nothing but themselves.
	EndpointSlices []*objects.EndpointSlice `json:"endpointSlices,omitempty"`
	Broken         []*objects.Broken        `json:"broken,omitempty"`
	// AppsServices are the applications' Services inside hosted clusters.
	AppsServices []*objects.AppsService `json:"appsServices,omitempty"`
	// LastGood is what Snapshot.LastGood returned of the snapshot before.
	LastGood map[string][]netip.Addr `json:"lastGood,omitempty"`
	// LastServices is what Snapshot.LastServices returned of the snapshot before.
	LastServices map[string]string `json:"lastServices,omitempty"`
}

// Add puts objects of any kind into the fields that hold them. Others are left out.
func (o *Objects) Add(list ...objects.Object) {
	for _, one := range list {
		switch one := one.(type) {
		case *objects.HostedCluster:
			o.HostedClusters = append(o.HostedClusters, one)
		case *v1alpha1.Infra:
			o.Infras = append(o.Infras, one)
		case *objects.Route:
			o.Routes = append(o.Routes, one)
		case *objects.Service:
			o.Services = append(o.Services, one)
		case *v1alpha1.ProxyServer:
			o.ProxyServers = append(o.ProxyServers, one)
		case *objects.EndpointSlice:
			o.EndpointSlices = append(o.EndpointSlices, one)
		case *objects.LabelledService:
			o.Services = append(o.Services, &one.Service)
		case *objects.AppsService:
			o.AppsServices = append(o.AppsServices, one)
		case *objects.Broken:
			o.Broken = append(o.Broken, one)
		}
	}
}

// Options say what to make of the objects.
type Options struct {
	Scope Scope
	// Apps asks for the addresses of applications; nil for none.
	Apps *AppsOptions
	// Proxies asks for what ProxyServers amount to.
	Proxies bool
	// Names limits what is published.
	Names NameRules
}

// Scope narrows what is seen to the objects listed, each as "namespace/name". Two
// empty lists mean all objects. With Infras alone, the hosted clusters are those that
// these Infras serve; with hosted clusters alone, there are no Infras.
type Scope struct {
	Infras         []string
	HostedClusters []string
	// ProxyServers are those to see; empty for all.
	ProxyServers []string
	// Namespaces are where backends of ProxyServers are, beside the control planes'.
	Namespaces []string
}

// Closed reports whether nothing is in scope but what is listed: hosted clusters, or, for a
// proxy with backends of its own alone, their namespaces. Otherwise any namespace may hold what
// an Infra names.
func (s Scope) Closed() bool {
	return len(s.HostedClusters) > 0 || len(s.Infras) == 0 && len(s.Namespaces) > 0
}

// hasInfras reports whether there are Infras in scope: who lists other things alone wants none.
func (s Scope) hasInfras() bool { return len(s.Infras) > 0 || !s.Closed() }

// Snapshot is what the objects mean, at one moment. It is immutable and may be
// read by any number of goroutines.
type Snapshot struct {
	// Clusters are the hosted clusters in scope, oldest first.
	Clusters []*Cluster `json:"clusters"`
	// Infras are the Infras in scope, sorted by reference.
	Infras []*Infra `json:"infras"`
	// Pod is what cluster DNS and pods see.
	Pod *View `json:"pod"`
	// VLANs are the networks of the Infras, each with what its clients see.
	VLANs []*VLAN `json:"vlans"`
	// ProxyServers are the proxies in scope, sorted by reference, if asked for.
	ProxyServers []*ProxyServer `json:"proxyServers,omitempty"`
	// Problems is everything found wrong, by object.
	Problems []Problem `json:"problems"`

	services map[string][]netip.Addr
}

// ServiceIPs returns the cluster IPs of the Service "namespace/name", none when it
// does not exist.
func (s *Snapshot) ServiceIPs(name string) []netip.Addr { return s.services[name] }

// Infra returns the Infra "namespace/name", nil where it is not in scope.
func (s *Snapshot) Infra(name string) *Infra {
	if i := slices.IndexFunc(s.Infras, func(i *Infra) bool { return i.Key() == name }); i >= 0 {
		return s.Infras[i]
	}
	return nil
}

// ProxyServer returns the proxy of the ProxyServer "namespace/name", nil where it is not in
// scope.
func (s *Snapshot) ProxyServer(name string) *ProxyServer {
	if i := slices.IndexFunc(s.ProxyServers, func(p *ProxyServer) bool { return p.Key() == name }); i >= 0 {
		return s.ProxyServers[i]
	}
	return nil
}

// VLAN is one network with the Infras on it.
type VLAN struct {
	// Name is the network attachment definition of its VMs, "namespace/name".
	Name string `json:"name"`
	// CIDRs are the subnets of its clients, sorted.
	CIDRs []netip.Prefix `json:"cidrs"`
	// View is what its clients see: the hosted clusters of its own Infras only.
	View *View `json:"view"`

	infras []*Infra
}

// Build computes what the objects mean. It never fails: what is wrong with one
// object becomes a Problem, and the rest stands.
func Build(in *Objects, options Options) *Snapshot { return NewBuilder(options).Build(in) }

// podPublications lists what pods see: control plane and applications alike at the
// Service of the proxy that carries them.
func podPublications(clusters []*draft, services map[string][]netip.Addr) []Publication {
	list := make([]Publication, 0, len(clusters))
	for _, c := range clusters {
		p := Publication{Cluster: c.Cluster}
		for _, i := range c.infras {
			p.NameServers = append(p.NameServers, services[i.Key()+"-dns"]...)
			if i.Proxy == nil {
				continue
			}
			p.ControlPlane.Served = true
			p.ControlPlane.Addresses = append(p.ControlPlane.Addresses, i.Proxy.ClusterIPs...)
		}
		if c.Apps != nil && p.ControlPlane.Served {
			p.Apps = Answer{Served: true}
			if len(c.Apps.Addresses) > 0 { // else the proxy has nowhere to send them yet
				p.Apps.Addresses = p.ControlPlane.Addresses
			}
		}
		list = append(list, p.sorted())
	}
	return list
}

// publications lists what the VLAN's clients see: the control plane at the proxy's
// VLAN address, applications at their own.
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

// vlansOf groups Infras by network, and reports networks that an address cannot
// tell apart.
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
					"%s is also the CIDR of %s on VLAN %s: give each VLAN a DNS listener of its own", cidr, first.Ref, first.VLAN)
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

func clusterIPs(services []*objects.Service) map[string][]netip.Addr {
	byName := make(map[string][]netip.Addr, len(services))
	for _, s := range services {
		var list []netip.Addr
		for _, text := range s.Addresses() {
			if a, err := netip.ParseAddr(text); err == nil {
				list = append(list, a)
			}
		}
		byName[s.Namespace+"/"+s.Name] = sortedAddrs(list)
	}
	return byName
}

func inScope(scope []string, o objects.Object) bool {
	return len(scope) == 0 || slices.Contains(scope, o.GetNamespace()+"/"+o.GetName())
}

func sortedByName[T objects.Object](list []T) []T {
	return slices.SortedFunc(slices.Values(list), func(a, b T) int { return compareNames(a, b) })
}

func compareNames(a, b objects.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}
