package model

import (
	"slices"
)

// NewView returns the view of the publications and records. A name that several clusters claim belongs to the oldest.
// Hostnames and apps domains that conflict with a domain of another cluster are omitted, and so are records that conflict
// with names of clusters. If previous, which may be nil, has the same input, NewView returns previous.
func NewView(publications []Publication, recordSets []*RecordSet, previous *View) *View {
	ordered, sets := slices.Clone(publications), slices.Clone(recordSets)
	slices.SortStableFunc(ordered, func(a, c Publication) int { return compareAge(a.Cluster, c.Cluster) })
	slices.SortStableFunc(sets, compareRecordSets)
	if previous != nil && slices.EqualFunc(ordered, previous.from, Publication.equal) && slices.EqualFunc(sets, previous.sets, (*RecordSet).equal) {
		return previous
	}
	hostnames := 0
	for _, p := range ordered {
		if p.ControlPlane.Served {
			hostnames += len(p.Cluster.Hostnames) + 1
		}
	}
	records := 0
	for _, set := range sets {
		records += len(set.Records)
	}
	b := viewBuilder{
		names:   make(map[string]*Cluster, hostnames),
		zones:   make(map[string]*Cluster, len(ordered)),
		apps:    make(map[string]*Cluster, len(ordered)),
		refused: map[ownedDomain]bool{},
		records: make(map[string]*RecordSet, records), aliases: map[string]bool{}, open: map[string]bool{},
		view: &View{from: ordered, sets: sets, Names: make([]Name, 0, hostnames), Records: slices.Grow([]*Record(nil), records)},
	}
	b.refuseAppsDomains(ordered)
	for _, p := range ordered {
		b.add(p)
	}
	for _, set := range sets {
		b.addReverseZones(set)
	}
	for _, set := range sets {
		b.addRecordSet(set)
	}
	b.view.conflicts = b.conflicts.sorted()
	return b.view
}

func (b *viewBuilder) add(p Publication) {
	b.refuseNestedDomains(p.Cluster)
	if p.ControlPlane.Served {
		b.addControlPlane(p)
	}
	if p.ControlPlane.Served || p.Apps.Served {
		b.addApps(p)
	}
}

// refuseNestedDomains refuses the cluster domains of c that lie in an apps domain of an older cluster: their names would
// replace names of its apps. It reports that for both clusters.
func (b *viewBuilder) refuseNestedDomains(c *Cluster) {
	for _, domain := range c.Domains {
		for at := range nameAndParents(domain) {
			if older := b.apps[at]; older != nil && older != c {
				b.refused[ownedDomain{c, domain}] = true
				b.conflicts.add(c.Ref, ReasonNameConflict, "cluster domain %s is not served where %s is: it lies in %s, an apps domain of %[2]s, which is older",
					domain, older.Ref, at)
				b.conflicts.add(older.Ref, ReasonDomainOverlap,
					"cluster domain %s of %s lies in %s, an apps domain of this cluster, which is older and keeps its names", domain, c.Ref, at)
				break
			}
		}
	}
}

// isInRefusedDomain reports whether a name is in a cluster domain of c that is refused.
func (b *viewBuilder) isInRefusedDomain(c *Cluster, name string) bool {
	return len(b.refused) > 0 && slices.ContainsFunc(c.Domains, func(domain string) bool {
		return b.refused[ownedDomain{c, domain}] && within(name, domain)
	})
}

func (b *viewBuilder) addControlPlane(p Publication) {
	c, before := p.Cluster, len(b.view.Zones)
	for _, domain := range c.Domains {
		if !b.isInRefusedDomain(c, domain) && b.claim(b.zones, domain, c, "cluster domain") {
			b.addZone(domain, c)
		}
	}
	target := &Target{Cluster: c.Ref, Addresses: p.ControlPlane.Addresses}
	for _, h := range c.Hostnames {
		if b.isRefused(c, h) || b.inOlderDomain(c, h.Name) || !b.claim(b.names, h.Name, c, "hostname") {
			continue
		}
		b.view.Names = append(b.view.Names, Name{Name: h.Name, Target: target})
		if !c.owns(h.Name) && b.zones[h.Name] == nil {
			b.zones[h.Name] = c
			b.addZone(h.Name, c)
		}
	}
	servers := &Target{Cluster: c.Ref, Addresses: p.NameServers}
	for _, zone := range b.view.Zones[before:] {
		if server := zone.NameServer(); b.names[server] == nil {
			b.names[server] = c
			b.view.Names = append(b.view.Names, Name{Name: server, Target: servers})
		}
	}
}

// inOlderDomain reports whether a hostname is in a domain of an older cluster, or is one of its apps names, and reports
// the conflict. Such a name could replace an apps name, or one that the older cluster will have later.
func (b *viewBuilder) inOlderDomain(c *Cluster, name string) bool {
	if b.isInRefusedDomain(c, name) {
		return true // reported for the domain
	}
	if c.owns(name) {
		return false
	}
	for at := range nameAndParents(name) {
		owner := b.apps[at]
		if zone := b.zones[at]; zone != nil && at != name {
			owner = zone
		}
		if owner != nil && owner != c {
			b.conflicts.add(c.Ref, ReasonNameConflict, "hostname %s is not served: it lies in %s, a domain of %s, which is older", name, at, owner.Ref)
			return true
		}
	}
	return false
}

func (b *viewBuilder) addApps(p Publication) {
	c := p.Cluster
	add := func(name string, subtree bool) {
		if b.claim(b.apps, name, c, "apps domain") {
			b.view.Apps = append(b.view.Apps, App{Name: name, Cluster: &c.Ref, Domain: b.domainFor(c, name), Subtree: subtree,
				NameServers: p.NameServers, Answer: p.Apps})
		}
	}
	for _, domain := range c.AppsDomains {
		if (c.owns(domain) || p.Apps.Served) && !b.refused[ownedDomain{c, domain}] && !b.isInRefusedDomain(c, domain) {
			add(domain, true)
		}
	}
	for _, name := range c.AppsNames {
		if owner := b.names[name]; owner != nil && owner != c {
			b.conflicts.add(c.Ref, ReasonNameConflict, "apps name %s is not served for this cluster: it belongs to %s, which is older", name, owner.Ref)
		} else if !b.inOlderDomain(c, name) {
			add(name, false)
		}
	}
}

func (b *viewBuilder) addZone(origin string, c *Cluster) {
	b.view.Zones = append(b.view.Zones, Zone{Origin: origin, Cluster: &c.Ref, Domain: b.domainFor(c, origin)})
}

// claim assigns name to c unless an older cluster has claimed it, and reports the conflict. Names in a cluster domain
// that c lost are not reported one by one.
func (b *viewBuilder) claim(owners map[string]*Cluster, name string, c *Cluster, what string) bool {
	owner := owners[name]
	if owner == nil {
		owners[name] = c
		return true
	}
	if owner != c && !b.lostParentDomain(name, c) {
		b.conflicts.add(c.Ref, ReasonNameConflict, "%s %s is not served for this cluster: it belongs to %s, which is older", what, name, owner.Ref)
	}
	return false
}

// lostParentDomain reports whether name is in a domain of c that another cluster has.
func (b *viewBuilder) lostParentDomain(name string, c *Cluster) bool {
	for _, domain := range c.Domains {
		if name != domain && within(name, domain) && b.zones[domain] != c {
			return true
		}
	}
	return false
}

// domainFor returns the domain that the name of a zone's name server is in.
func (b *viewBuilder) domainFor(c *Cluster, origin string) string {
	for _, domain := range c.Domains {
		if !b.isInRefusedDomain(c, domain) {
			return domain
		}
	}
	return origin
}
