// Package nametree turns a view of the model into the DNS names that answer it.
//
// A Tree is immutable. It holds names, not records: a thousand clusters are many
// names with few addresses, and what a query needs is to be in the CPU's caches.
// Existence follows RFC 4592 and RFC 8020: parents of a name exist (empty
// non-terminals), and nothing exists below a name that does not.
package nametree

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/model"
)

// Part is a kind of names. Each is answered by a plugin of its own, and both share
// one tree, so that each knows where the other's names begin.
type Part uint8

// The parts of a tree.
const (
	// ControlPlane are the names of control planes, and the cluster domains.
	ControlPlane Part = 1 << iota
	// Apps are the names of applications.
	Apps
)

// Tree is every name of one view.
type Tree struct {
	nodes map[string]*Node // by name, lower-case and without a trailing dot
	zones map[string]*Zone // by origin, in the same way
	slab  []Node           // room for the next nodes
}

// Node is a name that exists.
type Node struct {
	// Zone is the zone that the name lies in.
	Zone *Zone
	// Wildcard answers for every name below that does not exist by itself.
	Wildcard *Node
	// Part is the part that answers for the name; 0 for a name that exists elsewhere.
	Part Part
	// Apex: the name is its zone's origin.
	Apex bool
	// Open: the name is an apps domain. What does not exist below it is an
	// application's: the Wildcard's, or, without one, not known to this tree.
	Open bool

	named     bool          // the view gives it addresses, though there may be none yet
	lone      bool          // one of them is IPv4: a
	a         [4]byte       // here, because every cache line counts that a query needs
	addresses *[]netip.Addr // nil for none
}

// resolvesTo gives the node its addresses.
func (n *Node) resolvesTo(addresses *[]netip.Addr) {
	n.addresses, n.lone = addresses, false
	first := slices.IndexFunc(*addresses, netip.Addr.Is4)
	if first < 0 {
		return
	}
	n.a = (*addresses)[first].As4()
	n.lone = !slices.ContainsFunc((*addresses)[first+1:], netip.Addr.Is4)
}

// TTLs are the parts that a tree answers for, each with the TTL of its records in
// seconds.
type TTLs map[Part]uint32

// New builds the tree of a view. Zones get the given serial. The server's own addresses are
// those of every name server that the view has no address for.
func New(view *model.View, ttls TTLs, serial uint32, own ...netip.Addr) *Tree {
	// Each zone brings an empty non-terminal or two.
	size := len(view.Names) + len(view.Apps) + 2*len(view.Zones)
	t := &Tree{nodes: make(map[string]*Node, size), zones: make(map[string]*Zone, len(view.Zones)), slab: make([]Node, 0, size)}
	_, control := ttls[ControlPlane]
	_, served := ttls[Apps]
	if control {
		for _, z := range view.Zones {
			t.addZone(z, ControlPlane, ttls, serial)
		}
	}
	apps := outermostFirst(view.Apps)
	var zones []*model.App // that are zones of their own
	for i := range apps {
		// An apps domain is one only where no other zone has it.
		if a := &apps[i]; served && a.Served && t.nodes[a.Name] == nil && t.enclosing(a.Name) == nil {
			t.addZone(model.Zone{Origin: a.Name, Cluster: a.Cluster, Domain: a.Domain}, Apps, ttls, serial)
			t.zones[a.Name].server = dns.Fqdn(a.NameServer())
			zones = append(zones, a)
		}
	}
	for origin, z := range t.zones {
		z.parent = t.enclosing(origin)
	}
	for _, n := range view.Names {
		t.addName(n, control)
	}
	for i := range apps {
		t.addApp(&apps[i], served && apps[i].Served)
	}
	for _, a := range zones {
		if server := t.add(a.NameServer()); !server.named {
			server.resolvesTo(&a.NameServers)
		}
		t.addGlue(a.Name, a.NameServer(), own)
	}
	for _, z := range view.Zones {
		t.add(z.Origin) // a zone inside another: the parents between them exist
		t.addGlue(z.Origin, z.NameServer(), own)
	}
	t.slab = nil
	return t
}

// addGlue gives a zone the addresses of its name server, and that one the server's own where
// it has none.
func (t *Tree) addGlue(origin, name string, own []netip.Addr) {
	apex, server := t.nodes[origin], t.nodes[name]
	if apex == nil || server == nil || server.addresses == nil {
		return
	}
	if len(*server.addresses) == 0 && len(own) > 0 {
		server.resolvesTo(&own)
	}
	apex.Zone.glue = *server.addresses
}

// outermostFirst orders apps domains so that one inside another comes after it.
func outermostFirst(apps []model.App) []model.App {
	return slices.SortedStableFunc(slices.Values(apps), func(a, b model.App) int { return cmp.Compare(len(a.Name), len(b.Name)) })
}

// Zones returns the zones of the tree, in no order.
func (t *Tree) Zones() []*Zone {
	list := make([]*Zone, 0, len(t.zones))
	for _, z := range t.zones {
		list = append(list, z)
	}
	return list
}

// node returns a new node of the tree.
func (t *Tree) node(n Node) *Node {
	if len(t.slab) == cap(t.slab) {
		t.slab = make([]Node, 0, 8)
	}
	t.slab = append(t.slab, n)
	return &t.slab[len(t.slab)-1]
}

func (t *Tree) addZone(z model.Zone, part Part, ttls TTLs, serial uint32) {
	zone := newZone(z, part, ttls, serial)
	t.zones[z.Origin] = zone
	t.nodes[z.Origin] = t.node(Node{Apex: true, Part: part, Zone: zone})
}

// addName adds a control plane's name. Where control planes are not answered for, it
// still keeps a wildcard from answering in its place.
func (t *Tree) addName(n model.Name, served bool) {
	node := t.add(n.Name)
	if node == nil {
		return
	}
	node.named = true
	if !served {
		node.Part = 0
		return
	}
	node.Part = ControlPlane
	node.resolvesTo(&n.Addresses)
}

// addApp adds a name of applications.
func (t *Tree) addApp(a *model.App, served bool) {
	node := t.add(a.Name)
	switch {
	case node == nil:
	case a.Subtree:
		node.Open = true
		if served {
			node.Wildcard = t.node(Node{Part: Apps, Zone: node.Zone})
			node.Wildcard.resolvesTo(&a.Addresses)
			t.nodes["*."+a.Name] = node.Wildcard // it exists, so nothing answers below it (RFC 4592 section 2.2.1)
		}
	case node.named: // the control plane's name wins
	case served:
		node.Part = Apps
		node.resolvesTo(&a.Addresses)
	default:
		node.Part = 0
	}
}

// add makes name and the empty non-terminals between it and the zone that it lies
// in. It returns nil for a name in no zone of the tree.
func (t *Tree) add(name string) *Node {
	node := t.nodes[name]
	zone := t.enclosing(name)
	if zone == nil {
		return node // an outermost apex, or nothing
	}
	if node == nil {
		node = t.node(Node{Part: zone.part, Zone: zone})
		t.nodes[name] = node
	}
	for parent := parentOf(name); len(parent) >= len(zone.Origin); parent = parentOf(parent) {
		if t.nodes[parent] != nil {
			break // and so do all between it and the zone
		}
		t.nodes[parent] = t.node(Node{Part: zone.part, Zone: zone})
	}
	return node
}

// enclosing returns the zone that a name, not being an apex itself, lies in. For
// an apex it is the zone around its own.
func (t *Tree) enclosing(name string) *Zone {
	for parent := parentOf(name); parent != ""; parent = parentOf(parent) {
		if z := t.zones[parent]; z != nil {
			return z
		}
	}
	return nil
}

// parentOf drops the first label; "" above a top-level domain.
func parentOf(name string) string {
	_, parent, _ := strings.Cut(name, ".")
	return parent
}

// Lookup returns the node of qname, which is fully qualified, or else of its closest
// encloser (RFC 4592 section 3.3.1): the longest of its parents that exists. Case does
// not matter. It returns nil for a name in no zone of the tree. Only a look-up of a
// name longer than 256 bytes allocates.
func (t *Tree) Lookup(qname string) (node *Node, exact bool) {
	relative, qualified := strings.CutSuffix(qname, ".")
	if !qualified {
		return nil, false
	}
	var buf [256]byte
	lower := appendLower(buf[:0], relative)
	for off, end := 0, false; !end && off < len(lower); off, end = dns.NextLabel(qname, off) {
		if n, ok := t.nodes[string(lower[off:])]; ok {
			return n, off == 0
		}
	}
	return nil, false
}

// Answers returns the node that answers for a look-up's result, which may be the
// wildcard of a closest encloser; deny is set where the answer is that the name does not
// exist. It returns nil where the name is another part's, or nobody's.
func (n *Node) Answers(part Part, exact bool) (node *Node, deny bool) {
	switch {
	case n == nil:
		return nil, false
	case !exact && n.Wildcard != nil:
		n, exact = n.Wildcard, true
	case !exact && n.Open:
		return nil, false
	}
	if n.Part != part {
		return nil, false
	}
	return n, !exact
}

func appendLower(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = append(dst, toLower(s[i]))
	}
	return dst
}
