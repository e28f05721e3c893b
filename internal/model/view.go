package model

import (
	"net/netip"
	"slices"
)

// View has the zones and names that one kind of client sees. It is immutable. In each list, the entries of older
// clusters come first, and equal input gives an equal view.
type View struct {
	Zones []Zone `json:"zones"`
	Names []Name `json:"names"`
	// Apps are the apps names. Names that are not served, and names below them, are forwarded even inside a zone of
	// the view, because they do not belong to the control plane.
	Apps []App `json:"apps,omitempty"`
	// Records are the records that do not belong to hosted clusters. None has a name of Names or Apps.
	Records []*Record `json:"records,omitempty"`

	from      []Publication // the input, oldest cluster first
	sets      []*RecordSet  // the input, in the order of precedence
	conflicts []Problem     // names that older clusters have
}

// ACMEChallenge is how names with the challenges of certificate authorities begin (RFC 8555, section 8.4). They are forwarded,
// even in a zone of the view: ACME clients create their records in public DNS, and wait until the zone's servers have them.
const ACMEChallenge = "_acme-challenge."

// Zone is a domain for which the view is authoritative: a cluster domain, or a control-plane hostname outside
// of its cluster's domains.
type Zone struct {
	Origin  string `json:"origin"`
	Cluster *Ref   `json:"cluster"`
	// Domain is the domain of the zone's name server: the cluster domain, or the zone itself if its cluster
	// has none.
	Domain string `json:"domain"`
	// Open reports whether names in the zone that do not exist are forwarded: the zone only contains records outside of
	// the domains of hosted clusters.
	Open bool `json:"open,omitempty"`
}

// NameServer returns the name of the zone's name server in its SOA and NS records, "ns.dns.<domain>".
func (z Zone) NameServer() string { return "ns.dns." + z.Domain }

// Name is a hostname and what it resolves to.
type Name struct {
	Name string `json:"name"`
	*Target
}

// Target is what names of one cluster resolve to in a view.
type Target struct {
	Cluster Ref `json:"cluster"`
	// Addresses are sorted. If they are empty, the names exist, but their addresses are not known yet.
	Addresses []netip.Addr `json:"addresses"`
}

// App is an apps name: an apps domain, or another name that resolves to the apps address.
type App struct {
	Name    string `json:"name"`
	Cluster *Ref   `json:"cluster"`
	// Domain is the cluster domain, or the name itself if the cluster has none.
	Domain string `json:"domain"`
	// Subtree reports whether the name is an apps domain, so that all names below it are apps names.
	Subtree bool `json:"subtree"`
	// NameServers are the addresses of the DNS servers with this view; empty if none is known.
	NameServers []netip.Addr `json:"nameServers,omitempty"`
	// Answer is what the apps names resolve to. If Served is false, they are forwarded.
	Answer
}

// NameServer returns the name of the name server in the SOA and NS records if the apps name is a separate zone:
// "ns-dns.<name>". It lies in that zone, so that a resolver that forwards only this zone can resolve it. It has only
// one more label than the zone: a name between them could be an app's name, and would exist without an address.
func (a App) NameServer() string { return "ns-dns." + a.Name }

// Answer is what a cluster's control-plane or apps names resolve to in a view.
type Answer struct {
	// Served reports whether the names are answered; otherwise they are forwarded.
	Served bool `json:"served"`
	// Addresses are sorted. If Served is true and they are empty, the names exist, but their addresses are not
	// known yet.
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// Publication is how one cluster is published in one view.
type Publication struct {
	Cluster *Cluster
	// ControlPlane is what the control-plane names resolve to.
	ControlPlane Answer
	// Apps is what the apps names resolve to.
	Apps Answer
	// NameServers are the addresses of the DNS servers with this view; empty if none is known.
	NameServers []netip.Addr
}

func (p Publication) equal(o Publication) bool {
	return p.Cluster == o.Cluster && p.ControlPlane.equal(o.ControlPlane) && p.Apps.equal(o.Apps) && slices.Equal(p.NameServers, o.NameServers)
}

func (a Answer) equal(o Answer) bool {
	return a.Served == o.Served && slices.Equal(a.Addresses, o.Addresses)
}

// viewBuilder builds a View. Its maps have the owners of names, by name.
type viewBuilder struct {
	names   map[string]*Cluster
	zones   map[string]*Cluster
	apps    map[string]*Cluster
	refused map[ownedDomain]bool
	records map[string]*RecordSet
	aliases map[string]bool // names with a CNAME
	// parentFaults is why names in a domain cannot be records of the set that is added, by domain.
	parentFaults map[string]string
	open         map[string]bool // zones of records, and whether they are open
	view         *View
	conflicts    problems
}

// owns reports whether name is in one of the cluster's domains.
func (c *Cluster) owns(name string) bool {
	return slices.ContainsFunc(c.Domains, func(domain string) bool { return within(name, domain) })
}
