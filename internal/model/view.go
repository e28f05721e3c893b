package model

import (
	"net/netip"
	"slices"
)

// View is what one kind of client sees of the hosted clusters: which zones exist
// and where each name leads. It is immutable. Its lists go by the age of the clusters, and
// by name within a cluster, so that equal input gives an equal view.
type View struct {
	Zones []Zone `json:"zones"`
	Names []Name `json:"names"`
	// Apps are the names of applications. Those in a zone of the view exist, whether
	// or not they are served: what lies below them is not the control plane's.
	Apps []App `json:"apps,omitempty"`

	from []Publication // what it was made of, oldest cluster first
	lost []Problem     // what was lost to older clusters
}

// Zone is a domain that the view answers for with authority: a cluster domain, or
// a control-plane hostname that lies outside of every domain of its own cluster.
type Zone struct {
	Origin  string `json:"origin"`
	Cluster *Ref   `json:"cluster"`
	// Domain is the cluster domain in which the zone's name server has its name; the zone
	// itself, where its cluster has no domain.
	Domain string `json:"domain"`
}

// NameServer is the name in the zone's SOA and NS records.
func (z Zone) NameServer() string { return "ns.dns." + z.Domain }

// Name is a hostname with what it resolves to.
type Name struct {
	Name string `json:"name"`
	*Target
}

// Target is what some names of one cluster resolve to in a view.
type Target struct {
	Cluster Ref `json:"cluster"`
	// Addresses are sorted. Without one the name exists all the same: its address is not
	// known yet.
	Addresses []netip.Addr `json:"addresses"`
}

// App is a name that the apps ingress answers for, outside of what the control
// plane answers for.
type App struct {
	Name    string `json:"name"`
	Cluster *Ref   `json:"cluster"`
	// Domain is the cluster domain; the name itself, where the cluster has none.
	Domain string `json:"domain"`
	// Subtree: the name is an apps domain, and every name below it is an application's.
	Subtree bool `json:"subtree"`
	// NameServers are the addresses of the DNS servers that give the view, if known.
	NameServers []netip.Addr `json:"nameServers,omitempty"`
	// Answer is what applications resolve to. Where it is not served, they are passed on.
	Answer
}

// NameServer is the name in the SOA and NS records where the name is a zone of its own. It
// lies in that zone, so that who asks for the zone alone can resolve it, and adds one label,
// so that it is no parent of an application's name.
func (a App) NameServer() string { return "ns-dns." + a.Name }

// Answer is what one kind of a cluster's names resolves to in a view.
type Answer struct {
	// Served: the names are answered; otherwise they are passed on.
	Served bool `json:"served"`
	// Addresses are sorted; none stands for names that exist but have no address yet.
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// Publication is one cluster in one view.
type Publication struct {
	Cluster *Cluster
	// ControlPlane is what the control plane's names resolve to.
	ControlPlane Answer
	// Apps is what the names of applications resolve to.
	Apps Answer
	// NameServers are the addresses of the DNS servers that give this view, if known.
	NameServers []netip.Addr
}

func (p Publication) equal(o Publication) bool {
	return p.Cluster == o.Cluster && p.ControlPlane.equal(o.ControlPlane) && p.Apps.equal(o.Apps) && slices.Equal(p.NameServers, o.NameServers)
}

func (a Answer) equal(o Answer) bool {
	return a.Served == o.Served && slices.Equal(a.Addresses, o.Addresses)
}

// NewView puts publications into one view. A name that several clusters claim
// belongs to the oldest of them. Where the view before, if there is one, was made of the
// same publications, that one is returned.
func NewView(publications []Publication, before *View) *View {
	ordered := slices.Clone(publications)
	slices.SortStableFunc(ordered, func(a, c Publication) int { return compareAge(a.Cluster, c.Cluster) })
	if before != nil && slices.EqualFunc(ordered, before.from, Publication.equal) {
		return before
	}
	hostnames := 0
	for _, p := range ordered {
		if p.ControlPlane.Served {
			hostnames += len(p.Cluster.Hostnames) + 1
		}
	}
	b := viewBuilder{
		names:   make(map[string]*Cluster, hostnames),
		zones:   make(map[string]*Cluster, len(ordered)),
		apps:    make(map[string]*Cluster, len(ordered)),
		refused: map[appsDomain]bool{},
		view:    &View{from: ordered, Names: make([]Name, 0, hostnames)},
	}
	b.refuseAppsDomains(ordered)
	for _, p := range ordered {
		b.add(p)
	}
	b.view.lost = b.lost.sorted()
	return b.view
}

type viewBuilder struct {
	names   map[string]*Cluster
	zones   map[string]*Cluster
	apps    map[string]*Cluster
	refused map[appsDomain]bool
	view    *View
	lost    problems
}

func (b *viewBuilder) add(p Publication) {
	if p.ControlPlane.Served {
		b.addControlPlane(p)
	}
	if p.ControlPlane.Served || p.Apps.Served {
		b.addApps(p)
	}
}

func (b *viewBuilder) addControlPlane(p Publication) {
	c, before := p.Cluster, len(b.view.Zones)
	for _, domain := range c.Domains {
		if b.claim(b.zones, domain, c, "cluster domain") {
			b.addZone(domain, c)
		}
	}
	target := &Target{Cluster: c.Ref, Addresses: p.ControlPlane.Addresses}
	for _, h := range c.Hostnames {
		if b.isRefused(c, h) || b.intrudes(c, h) || !b.claim(b.names, h.Name, c, "hostname") {
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

// intrudes reports whether a hostname lies in a domain of an older cluster: a name that is
// made up there could take an application's place, or one that the older cluster is yet to
// have.
func (b *viewBuilder) intrudes(c *Cluster, h Hostname) bool {
	if c.owns(h.Name) {
		return false
	}
	for at := range upwards(h.Name) {
		owner := b.zones[at]
		if owner == nil {
			owner = b.apps[at]
		}
		if at != h.Name && owner != nil && owner != c {
			b.lost.add(c.Ref, ReasonNameConflict, "hostname %s is not served: it lies in %s, a domain of %s, which is older", h.Name, at, owner.Ref)
			return true
		}
	}
	return false
}

func (b *viewBuilder) addApps(p Publication) {
	c := p.Cluster
	add := func(name string, subtree bool) {
		if b.claim(b.apps, name, c, "apps domain") {
			b.view.Apps = append(b.view.Apps, App{Name: name, Cluster: &c.Ref, Domain: c.domainFor(name), Subtree: subtree, NameServers: p.NameServers, Answer: p.Apps})
		}
	}
	for _, domain := range c.AppsDomains {
		if (c.owns(domain) || p.Apps.Served) && !b.refused[appsDomain{c, domain}] {
			add(domain, true)
		}
	}
	for _, name := range c.AppsNames {
		add(name, false)
	}
}

func (b *viewBuilder) addZone(origin string, c *Cluster) {
	b.view.Zones = append(b.view.Zones, Zone{Origin: origin, Cluster: &c.Ref, Domain: c.domainFor(origin)})
}

// claim gives name to c unless an older cluster has it. Names that were lost with
// their whole domain are not reported one by one.
func (b *viewBuilder) claim(owners map[string]*Cluster, name string, c *Cluster, what string) bool {
	owner := owners[name]
	if owner == nil {
		owners[name] = c
		return true
	}
	if owner != c && !b.lostDomainOf(name, c) {
		b.lost.add(c.Ref, ReasonNameConflict, "%s %s belongs to %s, which is older", what, name, owner.Ref)
	}
	return false
}

func (b *viewBuilder) lostDomainOf(name string, c *Cluster) bool {
	for _, domain := range c.Domains {
		if name != domain && within(name, domain) && b.zones[domain] != c {
			return true
		}
	}
	return false
}

// domainFor is the domain in which the name server of a zone has its name.
func (c *Cluster) domainFor(origin string) string {
	if len(c.Domains) > 0 {
		return c.Domains[0]
	}
	return origin
}

// owns reports whether name lies in one of the cluster's domains.
func (c *Cluster) owns(name string) bool {
	return slices.ContainsFunc(c.Domains, func(domain string) bool { return within(name, domain) })
}
