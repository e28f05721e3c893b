// Package nametree turns a view of the model into the DNS names that answer it.
//
// A Tree is immutable and its records are made once, so that a query costs map
// look-ups and nothing else. Existence follows RFC 4592 and RFC 8020: parents of a
// name exist (empty non-terminals), and nothing exists below a name that does not.
package nametree

import (
	"cmp"
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
	nodes map[string]*Node
	zones int
}

// Node is a name that exists.
type Node struct {
	// Part is the part that answers for the name; 0 for a name that exists elsewhere.
	Part Part
	// A and AAAA are the name's records, in lower case. They are shared by every
	// answer: copy them before changing one.
	A, AAAA []dns.RR
	// Zone is the zone that the name lies in.
	Zone *Zone
	// Apex: the name is its zone's origin.
	Apex bool
	// Open: the name is an apps domain. What does not exist below it is an
	// application's: the Wildcard's, or, without one, not known to this tree.
	Open bool
	// Wildcard answers for every name below that does not exist by itself.
	Wildcard *Node

	named bool // the view gives it addresses, though there may be none yet
}

// TTLs are the parts that a tree answers for, each with the TTL of its records in
// seconds.
type TTLs map[Part]uint32

// New builds the tree of a view. Zones get the given serial.
func New(view *model.View, ttls TTLs, serial uint32) *Tree {
	t := &Tree{nodes: make(map[string]*Node, 2*len(view.Names))}
	controlTTL, control := ttls[ControlPlane]
	appsTTL, served := ttls[Apps]
	if control {
		for _, z := range view.Zones {
			t.addZone(z, ControlPlane, controlTTL, serial)
		}
	}
	apps := outermostFirst(view.Apps)
	for _, a := range apps {
		// An apps domain is a zone of its own only where no other zone has it.
		if name := dns.Fqdn(a.Name); served && a.Served && t.nodes[name] == nil && t.enclosing(name) == nil {
			t.addZone(model.Zone{Origin: a.Name, Cluster: a.Cluster, Domain: a.Domain}, Apps, appsTTL, serial)
		}
	}
	for _, n := range view.Names {
		t.addName(n, control, controlTTL)
	}
	for _, a := range apps {
		t.addApp(a, served && a.Served, appsTTL)
	}
	for _, z := range view.Zones {
		t.add(dns.Fqdn(z.Origin)) // a zone inside another: the parents between them exist
		apex, server := t.nodes[dns.Fqdn(z.Origin)], t.nodes[dns.Fqdn(z.NameServer())]
		if apex != nil && server != nil {
			apex.Zone.Glue = slices.Clip(slices.Concat(server.A, server.AAAA))
		}
	}
	return t
}

// outermostFirst orders apps domains so that one inside another comes after it.
func outermostFirst(apps []model.App) []model.App {
	return slices.SortedStableFunc(slices.Values(apps), func(a, b model.App) int { return cmp.Compare(len(a.Name), len(b.Name)) })
}

// Len returns the number of zones in the tree.
func (t *Tree) Len() int { return t.zones }

func (t *Tree) addZone(z model.Zone, part Part, ttl, serial uint32) {
	t.zones++
	t.nodes[dns.Fqdn(z.Origin)] = &Node{Apex: true, Part: part, Zone: newZone(z, part, ttl, serial)}
}

// addName adds a control plane's name. Where control planes are not answered for, it
// still keeps a wildcard from answering in its place.
func (t *Tree) addName(n model.Name, served bool, ttl uint32) {
	name := dns.Fqdn(n.Name)
	node := t.add(name)
	if node == nil {
		return
	}
	node.named = true
	if !served {
		node.Part = 0
		return
	}
	node.Part = ControlPlane
	node.A, node.AAAA = records(name, n.Addresses, ttl)
}

// addApp adds a name of applications.
func (t *Tree) addApp(a model.App, served bool, ttl uint32) {
	name := dns.Fqdn(a.Name)
	node := t.add(name)
	switch {
	case node == nil:
	case a.Subtree:
		node.Open = true
		if served {
			node.Wildcard = &Node{Part: Apps, Zone: node.Zone}
			node.Wildcard.A, node.Wildcard.AAAA = records("*."+name, a.Addresses, ttl)
		}
	case node.named: // the control plane's name wins
	case served:
		node.Part = Apps
		node.A, node.AAAA = records(name, a.Addresses, ttl)
	default:
		node.Part = 0
	}
}

// add makes name and the empty non-terminals between it and the zone that it lies
// in. It returns nil for a name in no zone of the tree.
func (t *Tree) add(name string) *Node {
	zone := t.enclosing(name)
	if zone == nil {
		return t.nodes[name] // an outermost apex, or nothing
	}
	if t.nodes[name] == nil {
		t.nodes[name] = &Node{Part: zone.part, Zone: zone}
	}
	for parent := parentOf(name); t.nodes[parent] == nil || !t.nodes[parent].Apex; parent = parentOf(parent) {
		if t.nodes[parent] == nil {
			t.nodes[parent] = &Node{Part: zone.part, Zone: zone}
		}
	}
	return t.nodes[name]
}

// enclosing returns the zone that a name, not being an apex itself, lies in. For
// an apex it is the zone around its own.
func (t *Tree) enclosing(name string) *Zone {
	for parent := parentOf(name); parent != ""; parent = parentOf(parent) {
		if n := t.nodes[parent]; n != nil && n.Apex {
			return n.Zone
		}
	}
	return nil
}

// parentOf drops the first label; "" above a top-level domain.
func parentOf(name string) string {
	_, parent, _ := strings.Cut(name, ".")
	return parent
}

// Lookup returns the node of qname, or else of its closest encloser (RFC 4592
// section 3.3.1): the longest of its parents that exists. Case does not matter. It
// returns nil for a name in no zone of the tree. Only a look-up of a name longer
// than 256 bytes allocates.
func (t *Tree) Lookup(qname string) (node *Node, exact bool) {
	var buf [256]byte
	lower := appendLower(buf[:0], qname)
	for off, end := 0, false; !end; off, end = dns.NextLabel(qname, off) {
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
