package model

import (
	"reflect"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// build returns the snapshot of the objects, which must all be in scope. It reads Services and Routes from the environment.
func (b *builder) build(in *Objects, options Options) *Snapshot {
	scope := options.Scope
	for _, broken := range in.Broken {
		b.found = append(b.found, problemOf(broken))
	}
	for _, hc := range sortedByName(in.HostedClusters) {
		b.addHostedCluster(hc)
	}
	var claims []*clusterClaim
	for _, infra := range sortedByName(in.Infras) {
		claims = append(claims, b.claimCluster(infra))
	}
	b.refuseUnconsented(claims)
	for _, c := range claims {
		b.addInfra(c)
	}
	b.proxies = sortedByName(in.ProxyServers)
	b.filterNames()
	b.filterRecords()
	if len(scope.Infras) > 0 && len(scope.HostedClusters) == 0 {
		b.clusters = slices.DeleteFunc(b.clusters, func(c *draft) bool { return len(c.infras) == 0 })
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

// problemOf returns the problem of an object that cannot be decoded.
func problemOf(o *objects.Broken) Problem {
	return Problem{Object: Ref{o.Kind, o.Namespace, o.Name}, Reason: ReasonUndecodable, Message: o.Error}
}

func (b *builder) addHostedCluster(hc *objects.HostedCluster) {
	r := b.parse(hc)
	b.found = append(b.found, r.found...)
	c := r.draft.copy()
	b.clusters = append(b.clusters, c)
	b.byKey[c.Key()] = c
	b.byNamespace[c.ControlPlaneNamespace] = append(b.byNamespace[c.ControlPlaneNamespace], c)
	for _, domain := range c.Domains {
		b.byDomain[domain] = append(b.byDomain[domain], c)
	}
}

// claimCluster adds an Infra to the snapshot and returns its claim to a hosted cluster.
func (b *builder) claimCluster(in *v1alpha1.Infra) *clusterClaim {
	infra := b.parseInfra(in).resolve(b.services, &b.found)
	infra.VLAN = b.vlanOf(infra.NetworkAttachment)
	infra.apps, infra.status = in.Spec.AppsIngress, in.Status.AppsIngress
	b.infras = append(b.infras, infra)
	b.claims[infra.VLAN] = append(b.claims[infra.VLAN], infra.claims...)
	infraDomain := infraDomainOf(in, infra.Ref, &b.found)
	cluster := b.bind(in, infra.Ref, infraDomain)
	infra.NotChosen = b.notChosen(in, cluster)
	return &clusterClaim{in: in, infra: infra, infraDomain: infraDomain, cluster: cluster}
}

// addInfra binds an Infra to the hosted cluster of its claim, or to a placeholder if it has a cluster domain.
func (b *builder) addInfra(claim *clusterClaim) {
	in, infra, infraDomain, cluster := claim.in, claim.infra, claim.infraDomain, claim.cluster
	if owner := b.ownerOf(infraDomain); owner != nil && owner != cluster {
		b.found.add(infra.Ref, ReasonNameConflict,
			"spec.infraComponents.dns: domain %s belongs to %s, which this Infra does not serve; the domain is ignored", infraDomain, owner.Ref)
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
		b.found.add(infra.Ref, ReasonControllerConflict,
			"spec.appsIngress: on KubeVirt the cloud controller writes the status of every Service without a load balancer class, in addition to MetalLB: "+
				"set metallb.loadBalancerClass and run MetalLB with that --lb-class, or use source MirroredService or Static")
	}
	cluster.addInfraDomains(in, infra.Ref, infraDomain, &b.found)
}

// finish completes the drafts, sorts them by age, and reuses equal clusters of the previous snapshot.
func (b *builder) finish() {
	slices.SortFunc(b.clusters, compareDrafts)
	for _, c := range b.clusters {
		c.finish()
		if same := b.previous.clusters[c.Ref]; same != nil && reflect.DeepEqual(same, c.Cluster) {
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
	part := &Part{Clusters: s.Clusters}
	previous := b.previous.parts[part.oldest()]
	if previous == nil {
		previous = &Part{}
	}
	part.Pod = NewView(podPublications(b.clusters, b.services), b.podRecords(), previous.Pod)
	if part.Pod == previous.Pod && slices.Equal(part.Clusters, previous.Clusters) {
		part = previous
	}
	s.Parts, s.pod = []*Part{part}, func() *View { return part.Pod }
	b.found = append(b.found, part.Pod.conflicts...)
	for _, vlan := range s.VLANs {
		vlan.View = NewView(vlan.publications(), b.vlanRecords(vlan), b.previous.vlans[vlan.Name])
		b.found = append(b.found, vlan.View.conflicts...)
		vlan.checkSubnets(&b.found)
	}
	for _, claims := range b.claims {
		checkClaims(claims, &b.found)
	}
	s.Problems = b.found.sorted()
	return s
}

// filterNames removes from every cluster the names that it may not have.
func (b *builder) filterNames() {
	if o := b.management; len(o.routes)+len(o.domains)+len(o.rules.Allowed) > 0 {
		for _, c := range b.clusters {
			s := nameFilter{managementNames: o, draft: c, ownRoutes: b.routes[c.ControlPlaneNamespace], found: &b.found}
			s.apply()
		}
	}
}
