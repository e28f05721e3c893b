package resolve

import (
	"cmp"
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/model"
)

// node is a name that exists in a view.
type node struct {
	name *model.Name
	app  *model.App // that the name is, or below which everything is an application's
	// foreign: the name exists, and our DNS passes it on.
	foreign bool
	zone    string
}

// names is every name that exists in a view. It says of each what CoreDNS with hcpviews and
// hcpapps does, which a test holds it to: parents of a name exist, and nothing exists below a name
// that does not, save applications.
type names struct {
	nodes map[string]*node
	zones map[string]model.Zone
}

func namesOf(v *model.View) *names {
	n := &names{nodes: map[string]*node{}, zones: map[string]model.Zone{}}
	for _, z := range v.Zones {
		n.zones[z.Origin] = z
	}
	apps := slices.SortedStableFunc(slices.Values(v.Apps), func(a, b model.App) int { return cmp.Compare(len(a.Name), len(b.Name)) })
	var servers []model.Name // of apps domains that are zones
	for _, a := range apps {
		// An apps domain that lies in no zone is one itself.
		if _, ok := n.zoneOf(a.Name); !ok && a.Served {
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
			continue // the control plane's name wins
		}
		at.app = &apps[i]
		at.foreign = !apps[i].Subtree && !apps[i].Served
		if apps[i].Subtree && apps[i].Served { // the wildcard exists, and nothing is below it
			wildcard := apps[i]
			wildcard.Subtree = false
			n.nodes["*."+apps[i].Name] = &node{zone: at.zone, app: &wildcard}
		}
	}
	return n
}

// add makes a name exist, with its parents in the zone; nil for a name in no zone.
func (n *names) add(name string) *node {
	zone, ok := n.zoneOf(name)
	if !ok {
		return nil
	}
	if zone.Origin == name { // a zone in another one: what is between them exists
		n.add(parent(name))
	}
	for at := name; len(at) >= len(zone.Origin); at = parent(at) {
		if n.nodes[at] == nil {
			n.nodes[at] = &node{zone: zone.Origin}
		}
	}
	return n.nodes[name]
}

// zoneOf is the innermost zone that a name lies in.
func (n *names) zoneOf(name string) (model.Zone, bool) {
	for at := name; at != ""; at = parent(at) {
		if z, ok := n.zones[at]; ok {
			return z, true
		}
	}
	return model.Zone{}, false
}

// find returns a name, or the longest of its parents that exists; nil for none.
func (n *names) find(name string) (at *node, exact bool) {
	for here := name; here != ""; here = parent(here) {
		if at := n.nodes[here]; at != nil {
			return at, here == name
		}
	}
	return nil, false
}

// parent drops the first label.
func parent(name string) string {
	_, rest, _ := strings.Cut(name, ".")
	return rest
}
