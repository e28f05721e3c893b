package model

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// Builder builds one snapshot after another. Objects never change once they are in a
// snapshot, so what has been read out of one is not read again, and what two successive
// snapshots have in common is shared: a reader may tell by the pointer of a Cluster or a
// View that it is what it was. It is not safe for concurrent use.
type Builder struct {
	options Options
	read    map[*objects.HostedCluster]*reading
	infras  map[*v1alpha1.Infra]*infraReading
	before  *Snapshot
	// owners are made of these Routes.
	ownedBy []*objects.Route
	owners  *routeOwners
}

// reading is what a HostedCluster says by itself.
type reading struct {
	routes []*objects.Route // that it was read with
	ports  nodePorts        // that it was read with
	draft  *draft
	found  problems
}

// NewBuilder returns a Builder whose snapshots are made with the options.
func NewBuilder(options Options) *Builder { return &Builder{options: options} }

// Build computes what the objects mean, as the function Build does.
func (b *Builder) Build(in *Objects) *Snapshot {
	next := builder{
		last: b, read: make(map[*objects.HostedCluster]*reading, len(in.HostedClusters)),
		readInfras: make(map[*v1alpha1.Infra]*infraReading, len(in.Infras)),
		services:   clusterIPs(in.Services),
		routes:     map[string][]*objects.Route{},
		nodePorts:  nodePortsOf(in.Services),
		byKey:      make(map[string]*draft, len(in.HostedClusters)), byNamespace: make(map[string][]*draft, len(in.HostedClusters)),
		byDomain: make(map[string][]*draft, len(in.HostedClusters)), claims: map[string][]claim{},
	}
	s := next.build(in, b.options)
	b.read, b.infras, b.before = next.read, next.readInfras, s
	return s
}

// builder builds one snapshot.
type builder struct {
	last       *Builder // with what the snapshot before was made of
	read       map[*objects.HostedCluster]*reading
	readInfras map[*v1alpha1.Infra]*infraReading
	services   map[string][]netip.Addr // their addresses, by "namespace/name"
	index      serviceIndex            // whatever else there is to know of them, for applications and proxies
	routes     map[string][]*objects.Route
	nodePorts  map[string]nodePorts // by namespace
	clusters   []*draft
	// The HostedClusters among them, by "namespace/name", by the control plane's
	// namespace and by their own domain.
	byKey                 map[string]*draft
	byNamespace, byDomain map[string][]*draft
	infras                []*Infra
	lastServices          map[string]string  // that backends have found by labels
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
			claims = append(claims, b.readInfra(infra))
		}
	}
	b.refuseUnconsented(claims)
	for _, c := range claims {
		b.addInfra(c)
	}
	b.screenNames(routes, options.Names)
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
		proxies = b.proxyServers(in.ProxyServers, scope.ProxyServers)
	}
	s := b.snapshot()
	s.ProxyServers = proxies
	return s
}

func (b *builder) addHostedCluster(hc *objects.HostedCluster) {
	namespace := ControlPlaneNamespace(hc.Namespace, hc.Name)
	routes := b.routes[namespace]
	ports := b.nodePorts[namespace]
	r := b.last.read[hc]
	if r == nil || !slices.Equal(r.routes, routes) || !maps.Equal(r.ports, ports) {
		r = &reading{routes: routes, ports: ports}
		r.draft = clusterOf(hc, routes, ports, &r.found)
	}
	b.read[hc] = r
	b.found = append(b.found, r.found...)
	c := r.draft.copy()
	b.clusters = append(b.clusters, c)
	b.byKey[c.Key()] = c
	b.byNamespace[namespace] = append(b.byNamespace[namespace], c)
	for _, domain := range c.Domains {
		b.byDomain[domain] = append(b.byDomain[domain], c)
	}
}

// readInfra reads an Infra and finds the hosted cluster that it claims.
func (b *builder) readInfra(in *v1alpha1.Infra) *clusterClaim {
	r := b.last.infras[in]
	if r == nil {
		r = readInfra(in)
	}
	b.readInfras[in] = r
	infra := r.resolved(b.services, &b.found)
	infra.apps, infra.status = in.Spec.AppsIngress, in.Status.AppsIngress
	b.infras = append(b.infras, infra)
	b.claims[infra.VLAN] = append(b.claims[infra.VLAN], infra.claims()...)
	typed := typedDomain(in, infra.Ref, &b.found)
	return &clusterClaim{in: in, infra: infra, typed: typed, cluster: b.bind(in, infra.Ref, typed)}
}

// addInfra makes an Infra serve the hosted cluster that it claims.
func (b *builder) addInfra(claim *clusterClaim) {
	in, infra, typed, cluster := claim.in, claim.infra, claim.typed, claim.cluster
	if owner := b.ownerOf(typed); owner != nil && owner != cluster {
		b.found.add(infra.Ref, ReasonNameConflict, "spec.infraComponents.dns says %s, which is the domain of %s: not served here", typed, owner.Ref)
		typed = ""
	}
	if cluster == nil && typed != "" {
		cluster = clusterOfInfra(in, infra.Ref)
		b.clusters = append(b.clusters, cluster)
	}
	if cluster == nil {
		return
	}
	infra.Cluster, infra.Serves = cluster.Cluster, &cluster.Ref
	cluster.infras = append(cluster.infras, infra)
	if infra.apps.LacksClass(cluster.Platform) {
		b.found.add(infra.Ref, ReasonControllerConflict, "spec.appsIngress: on KubeVirt the cloud controller writes the status of every Service without a class, beside MetalLB: "+
			"set metallb.loadBalancerClass and run MetalLB with that --lb-class, or use source MirroredService or Static")
	}
	cluster.addTyped(in, infra.Ref, typed, &b.found)
}

// finish makes the drafts whole, and puts the clusters of the snapshot before in the
// place of those that are the same.
func (b *builder) finish() {
	before := map[Ref]*Cluster{}
	if b.last.before != nil {
		for _, c := range b.last.before.Clusters {
			before[c.Ref] = c
		}
	}
	slices.SortFunc(b.clusters, compareDrafts)
	for _, c := range b.clusters {
		c.finish()
		if same := before[c.Ref]; same != nil && same.equal(c.Cluster) {
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
	if before := b.last.before; before != nil {
		pod = before.Pod
		for _, vlan := range before.VLANs {
			vlans[vlan.Name] = vlan.View
		}
	}
	s.Pod = NewView(podPublications(b.clusters, b.services), pod)
	b.found = append(b.found, s.Pod.lost...)
	for _, vlan := range s.VLANs {
		vlan.View = NewView(vlan.publications(), vlans[vlan.Name])
		b.found = append(b.found, vlan.View.lost...)
		vlan.checkSubnets(&b.found)
	}
	for _, claims := range b.claims {
		checkClaims(claims, &b.found)
	}
	s.Problems = b.found.sorted()
	return s
}

func compareDrafts(a, b *draft) int { return compareAge(a.Cluster, b.Cluster) }
