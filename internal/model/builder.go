package model

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// Builder builds a sequence of snapshots. It parses each object only once, so callers must not modify objects that
// they have passed to Build. Successive snapshots share equal Clusters, Views and ProxyServers, so that a reader can
// detect changes by comparing pointers. A Builder is not safe for concurrent use.
type Builder struct {
	options      Options
	parsed       map[*objects.HostedCluster]*parsedCluster
	parsedInfras map[*v1alpha1.Infra]*parsedInfra
	snapshot     *Snapshot // the previous one
	// management is computed from managementRoutes.
	managementRoutes []*objects.Route
	management       *managementNames
}

// parsedCluster is the result of parsing a HostedCluster.
type parsedCluster struct {
	routes []*objects.Route // of its control plane, on which the result depends
	ports  nodePorts        // of its control plane, on which the result depends
	draft  *draft
	found  problems
}

// NewBuilder returns a Builder that applies the options to every snapshot.
func NewBuilder(options Options) *Builder { return &Builder{options: options} }

// Build returns the next snapshot, built from in. It never fails: a fault of an object becomes a Problem, and other
// objects are not affected.
func (b *Builder) Build(in *Objects) *Snapshot {
	next := builder{
		previous: b, parsed: make(map[*objects.HostedCluster]*parsedCluster, len(in.HostedClusters)),
		parsedInfras: make(map[*v1alpha1.Infra]*parsedInfra, len(in.Infras)),
		services:     clusterIPs(in.Services),
		routes:       map[string][]*objects.Route{},
		nodePorts:    nodePortsOf(in.Services),
		byKey:        make(map[string]*draft, len(in.HostedClusters)), byNamespace: make(map[string][]*draft, len(in.HostedClusters)),
		byDomain: make(map[string][]*draft, len(in.HostedClusters)), claims: map[string][]claim{},
	}
	s := next.build(in, b.options)
	b.parsed, b.parsedInfras, b.snapshot = next.parsed, next.parsedInfras, s
	return s
}

// builder builds one snapshot.
type builder struct {
	previous     *Builder // has the previous snapshot and the objects parsed for it
	parsed       map[*objects.HostedCluster]*parsedCluster
	parsedInfras map[*v1alpha1.Infra]*parsedInfra
	services     map[string][]netip.Addr // cluster IPs, by "namespace/name"
	index        serviceIndex            // all Services, for apps addresses and proxies
	routes       map[string][]*objects.Route
	nodePorts    map[string]nodePorts // by namespace
	clusters     []*draft
	// The HostedClusters among clusters, by "namespace/name", by control-plane namespace and by cluster
	// domain.
	byKey                 map[string]*draft
	byNamespace, byDomain map[string][]*draft
	infras                []*Infra
	lastServices          map[string]string  // Services that backends selected by labels in the previous snapshot, by upstream
	claims                map[string][]claim // by VLAN, "namespace/name"
	found                 problems
}

func (b *builder) build(in *Objects, options Options) *Snapshot {
	scope := options.Scope
	b.lastServices = in.LastServices
	for _, broken := range in.Broken {
		b.found.add(Ref{broken.Kind, broken.Namespace, broken.Name}, ReasonUndecodable, "%s", broken.Error)
	}
	routes := sortedByName(in.Routes)
	for _, r := range routes {
		b.routes[r.Namespace] = append(b.routes[r.Namespace], r)
	}
	for _, hc := range sortedByName(in.HostedClusters) {
		if inScope(scope.HostedClusters, hc) {
			b.addHostedCluster(hc)
		}
	}
	var claims []*clusterClaim
	for _, infra := range sortedByName(in.Infras) {
		if scope.hasInfras() && inScope(scope.Infras, infra) {
			claims = append(claims, b.claimCluster(infra))
		}
	}
	b.refuseUnconsented(claims)
	for _, c := range claims {
		b.addInfra(c)
	}
	b.filterNames(routes, options.Names)
	if len(scope.Infras) > 0 && len(scope.HostedClusters) == 0 {
		b.clusters = slices.DeleteFunc(b.clusters, func(c *draft) bool { return len(c.infras) == 0 })
	}
	if options.Apps != nil || options.Proxies {
		b.index = newServiceIndex(in.Services)
	}
	if options.Apps != nil {
		b.addApps(in, options.Apps)
	}
	b.finish()
	var proxies []*ProxyServer
	if options.Proxies {
		proxies = b.proxyServers(in.ProxyServers, scope)
	}
	s := b.snapshot()
	s.ProxyServers = proxies
	return s
}

func (b *builder) addHostedCluster(hc *objects.HostedCluster) {
	namespace := ControlPlaneNamespace(hc.Namespace, hc.Name)
	routes := b.routes[namespace]
	ports := b.nodePorts[namespace]
	r := b.previous.parsed[hc]
	if r == nil || !slices.Equal(r.routes, routes) || !maps.Equal(r.ports, ports) {
		r = &parsedCluster{routes: routes, ports: ports}
		r.draft = clusterOf(hc, routes, ports, &r.found)
	}
	b.parsed[hc] = r
	b.found = append(b.found, r.found...)
	c := r.draft.copy()
	b.clusters = append(b.clusters, c)
	b.byKey[c.Key()] = c
	b.byNamespace[namespace] = append(b.byNamespace[namespace], c)
	for _, domain := range c.Domains {
		b.byDomain[domain] = append(b.byDomain[domain], c)
	}
}

// claimCluster adds an Infra to the snapshot and returns its claim to a hosted cluster.
func (b *builder) claimCluster(in *v1alpha1.Infra) *clusterClaim {
	r := b.previous.parsedInfras[in]
	if r == nil {
		r = parseInfra(in)
	}
	b.parsedInfras[in] = r
	infra := r.resolve(b.services, &b.found)
	infra.apps, infra.status = in.Spec.AppsIngress, in.Status.AppsIngress
	b.infras = append(b.infras, infra)
	b.claims[infra.VLAN] = append(b.claims[infra.VLAN], infra.claims()...)
	infraDomain := infraDomainOf(in, infra.Ref, &b.found)
	return &clusterClaim{in: in, infra: infra, infraDomain: infraDomain, cluster: b.bind(in, infra.Ref, infraDomain)}
}

// addInfra binds an Infra to the hosted cluster of its claim, or to a placeholder if it has a cluster domain.
func (b *builder) addInfra(claim *clusterClaim) {
	in, infra, infraDomain, cluster := claim.in, claim.infra, claim.infraDomain, claim.cluster
	if owner := b.ownerOf(infraDomain); owner != nil && owner != cluster {
		b.found.add(infra.Ref, ReasonNameConflict, "spec.infraComponents.dns: domain %s belongs to %s, which this Infra does not serve: the domain is ignored", infraDomain, owner.Ref)
		infraDomain = ""
	}
	if cluster == nil && infraDomain != "" {
		cluster = placeholderCluster(in, infra.Ref)
		b.clusters = append(b.clusters, cluster)
	}
	if cluster == nil {
		return
	}
	infra.Cluster, infra.Serves = cluster.Cluster, &cluster.Ref
	cluster.infras = append(cluster.infras, infra)
	if infra.apps.LacksClass(cluster.Platform) {
		b.found.add(infra.Ref, ReasonControllerConflict, "spec.appsIngress: on KubeVirt the cloud controller writes the status of every Service without a load balancer class, in addition to MetalLB: "+
			"set metallb.loadBalancerClass and run MetalLB with that --lb-class, or use source MirroredService or Static")
	}
	cluster.addInfraDomains(in, infra.Ref, infraDomain, &b.found)
}

// finish completes the drafts, sorts them by age, and replaces clusters that equal those of the previous
// snapshot by those.
func (b *builder) finish() {
	previous := map[Ref]*Cluster{}
	if b.previous.snapshot != nil {
		for _, c := range b.previous.snapshot.Clusters {
			previous[c.Ref] = c
		}
	}
	slices.SortFunc(b.clusters, compareDrafts)
	for _, c := range b.clusters {
		c.finish()
		if same := previous[c.Ref]; same != nil && same.equal(c.Cluster) {
			c.Cluster = same
			for _, i := range c.infras {
				i.Cluster, i.Serves = same, &same.Ref
			}
		}
	}
}

func (b *builder) snapshot() *Snapshot {
	s := &Snapshot{Infras: b.infras, VLANs: vlansOf(b.infras, &b.found), services: b.services}
	for _, c := range b.clusters {
		s.Clusters = append(s.Clusters, c.Cluster)
	}
	var pod *View
	vlans := map[string]*View{}
	if previous := b.previous.snapshot; previous != nil {
		pod = previous.Pod
		for _, vlan := range previous.VLANs {
			vlans[vlan.Name] = vlan.View
		}
	}
	s.Pod = NewView(podPublications(b.clusters, b.services), pod)
	b.found = append(b.found, s.Pod.conflicts...)
	for _, vlan := range s.VLANs {
		vlan.View = NewView(vlan.publications(), vlans[vlan.Name])
		b.found = append(b.found, vlan.View.conflicts...)
		vlan.checkSubnets(&b.found)
	}
	for _, claims := range b.claims {
		checkClaims(claims, &b.found)
	}
	s.Problems = b.found.sorted()
	return s
}

func compareDrafts(a, b *draft) int { return compareAge(a.Cluster, b.Cluster) }
