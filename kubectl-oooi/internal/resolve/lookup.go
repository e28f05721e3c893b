package resolve

import (
	"cmp"
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/model"
)

// A node is a name that exists in a view.
type node struct {
	name *model.Name // of the control plane; nil for none
	app  *model.App  // an apps name, or an apps domain with all names below it; nil for none
	// forwarded means that the name exists, but DNS forwards queries for it.
	forwarded bool
	// open means that DNS forwards queries for missing names below, and for the name if it lacks records.
	open     bool
	records  []*model.Record // besides hosted clusters' records
	wildcard *node           // of records
	zone     string
}

// A nameTree has every name that exists in a view. It resolves names like CoreDNS with the plugins hcpviews and
// hcpapps: the parents of a name exist, and no name exists below a missing name, except apps names.
// TestReportsMatchCoreDNS compares both.
type nameTree struct {
	nodes map[string]*node
	zones map[string]model.Zone
}

// newNameTree builds the tree of a view.
func newNameTree(v *model.View) *nameTree {
	n := &nameTree{nodes: map[string]*node{}, zones: map[string]model.Zone{}}
	for _, z := range v.Zones {
		n.zones[z.Origin] = z
	}
	apps := slices.SortedStableFunc(slices.Values(v.Apps), func(a, b model.App) int { return cmp.Compare(len(a.Name), len(b.Name)) })
	var servers []model.Name // name servers of the apps domains that are zones
	for _, a := range apps {
		// An apps domain outside of all zones is a zone itself.
		if z, ok := n.zoneOf(a.Name); (!ok || z.Open) && a.Served {
			n.zones[a.Name] = model.Zone{Origin: a.Name, Cluster: a.Cluster, Domain: a.Domain}
			servers = append(servers, model.Name{Name: a.NameServer(), Target: &model.Target{Cluster: *a.Cluster, Addresses: a.NameServers}})
		}
	}
	for origin := range n.zones {
		n.add(origin)
	}
	for _, name := range slices.Concat(servers, v.Names) {
		if at := n.add(name.Name); at != nil {
			at.name = &name
		}
	}
	for i := range apps {
		at := n.add(apps[i].Name)
		if at == nil || at.name != nil && !apps[i].Subtree {
			continue // the control-plane name takes precedence
		}
		at.app = &apps[i]
		at.forwarded = !apps[i].Subtree && !apps[i].Served
		if apps[i].Subtree && apps[i].Served { // the wildcard exists, without names below it
			wildcard := apps[i]
			wildcard.Subtree = false
			n.nodes["*."+apps[i].Name] = &node{zone: at.zone, app: &wildcard}
		}
	}
	for _, record := range v.Records {
		at := n.add(record.Name)
		at.records = append(at.records, record)
		if domain, wild := strings.CutPrefix(record.Name, "*."); wild {
			n.nodes[domain].wildcard = at
		}
	}
	return n
}

// add adds a name and its parents in the zone, and returns its node. It returns nil if no zone contains the name.
func (n *nameTree) add(name string) *node {
	zone, ok := n.zoneOf(name)
	if !ok {
		return nil
	}
	if zone.Origin == name { // the names between this zone and an enclosing one exist, too
		n.add(parent(name))
	}
	for at := name; len(at) >= len(zone.Origin); at = parent(at) {
		if n.nodes[at] == nil {
			n.nodes[at] = &node{zone: zone.Origin, open: zone.Open}
		}
	}
	return n.nodes[name]
}

// zoneOf returns the innermost zone that contains a name.
func (n *nameTree) zoneOf(name string) (model.Zone, bool) {
	for at := name; at != ""; at = parent(at) {
		if z, ok := n.zones[at]; ok {
			return z, true
		}
	}
	return model.Zone{}, false
}

// find returns the node of a name, or else of its closest existing parent; nil for none. exact reports whether the node is
// the name's.
func (n *nameTree) find(name string) (at *node, exact bool) {
	for here := name; here != ""; here = parent(here) {
		if at := n.nodes[here]; at != nil {
			return at, here == name
		}
	}
	return nil, false
}

// parent returns a name without its first label.
func parent(name string) string {
	_, rest, _ := strings.Cut(name, ".")
	return rest
}
