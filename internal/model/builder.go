package model

import (
	"maps"
	"net/netip"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/objects"
)

// reusable has the parts of previous snapshots that the next one uses again if they are equal, and what hosted clusters and
// backends had last.
type reusable struct {
	clusters     map[Ref]*Cluster
	parts        map[Ref]*Part    // by the oldest cluster; the zero Ref for a Part without clusters
	vlans        map[string]*View // by VLAN
	proxies      map[Ref]*ProxyServer
	lastGood     map[string][]netip.Addr // as in Objects, and lastServices
	lastServices map[string]string
}

func newReusable() reusable {
	return reusable{
		clusters: map[Ref]*Cluster{}, parts: map[Ref]*Part{}, vlans: map[string]*View{}, proxies: map[Ref]*ProxyServer{},
		lastGood: map[string][]netip.Addr{}, lastServices: map[string]string{},
	}
}

// add adds the parts of a snapshot.
func (r *reusable) add(s *Snapshot) {
	for _, c := range s.Clusters {
		r.clusters[c.Ref] = c
	}
	for _, part := range s.Parts {
		r.parts[part.oldest()] = part
	}
	for _, v := range s.VLANs {
		r.vlans[v.Name] = v.View
	}
	for _, p := range s.ProxyServers {
		r.proxies[p.Ref] = p
	}
	maps.Copy(r.lastGood, s.LastGood())
	maps.Copy(r.lastServices, s.LastServices())
}

// parsedCluster is the result of parsing a HostedCluster.
type parsedCluster struct {
	draft *draft
	found problems
}

// environment has what hosted clusters, Infras and ProxyServers refer to.
type environment struct {
	services   *serviceIndex
	routes     map[string][]*objects.Route // by namespace
	networks   cni.Networks
	management *managementNames
	leases     map[string]*leasePool // by pool
	// Results of parsing objects, which one update of a Builder may need several times.
	parsedClusters map[*objects.HostedCluster]*parsedCluster
	parsedInfras   map[*v1alpha1.Infra]*parsedInfra
}

// parse returns the result of parsing a HostedCluster with the Routes and node ports of its control plane.
func (e *environment) parse(hc *objects.HostedCluster) *parsedCluster {
	c := e.parsedClusters[hc]
	if c == nil {
		c = &parsedCluster{}
		namespace := ControlPlaneNamespace(hc.Namespace, hc.Name)
		c.draft = clusterOf(hc, e.routes[namespace], nodePortsOf(e.services.list(namespace)), &c.found)
		e.parsedClusters[hc] = c
	}
	return c
}

// parseInfra returns the result of parsing an Infra.
func (e *environment) parseInfra(in *v1alpha1.Infra) *parsedInfra {
	i := e.parsedInfras[in]
	if i == nil {
		i = parseInfra(in)
		e.parsedInfras[in] = i
	}
	return i
}

// builder builds the snapshot of one group.
type builder struct {
	*environment
	options  *Options
	previous *reusable
	clusters []*draft
	// The HostedClusters among clusters, by "namespace/name", by control-plane namespace and by cluster
	// domain.
	byKey                 map[string]*draft
	byNamespace, byDomain map[string][]*draft
	infras                []*Infra
	proxies               []*v1alpha1.ProxyServer // sorted by name
	vlans                 map[string]string       // names of VLANs, by their networks
	claims                map[string][]claim      // by VLAN
	found                 problems
}

func newBuilder(all *environment, options *Options, previous *reusable) *builder {
	return &builder{
		environment: all, options: options, previous: previous,
		byKey: map[string]*draft{}, byNamespace: map[string][]*draft{}, byDomain: map[string][]*draft{}, vlans: map[string]string{}, claims: map[string][]claim{},
	}
}

// vlanOf returns the name of the VLAN of a NetworkAttachmentDefinition: the first one of its network.
func (b *builder) vlanOf(nad string) string {
	network := b.networks.Of(nad)
	if b.vlans[network] == "" {
		b.vlans[network] = nad
	}
	return b.vlans[network]
}
