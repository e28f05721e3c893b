// Package nametree turns a view of the model into the DNS names that answer it.
//
// A Tree is immutable and its records are made once, so that a query costs map
// look-ups and nothing else. Existence follows RFC 4592 and RFC 8020: parents of a
// name exist (empty non-terminals), and nothing exists below a name that does not.
package nametree

import (
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/model"
)

// Tree is every name of one view.
type Tree struct {
	nodes map[string]*Node
	zones int
}

// Node is a name that exists.
type Node struct {
	// A and AAAA are the name's records, in lower case. They are shared by every
	// answer: copy them before changing one.
	A, AAAA []dns.RR
	// Zone is the zone that the name lies in.
	Zone *Zone
	// Apex: the name is its zone's origin.
	Apex bool
	// Apps: the name is an apps domain. It exists, but what else lies below it is
	// not known to this tree.
	Apps bool
	// Elsewhere: the name is an application's, not known to this tree.
	Elsewhere bool

	named bool // the view gives it addresses, though there may be none yet
}

// New builds the tree of a view. Records get the given TTL in seconds, zones the
// given serial.
func New(view *model.View, ttl, serial uint32) *Tree {
	t := &Tree{nodes: make(map[string]*Node, 2*len(view.Names)), zones: len(view.Zones)}
	for _, z := range view.Zones {
		t.nodes[dns.Fqdn(z.Origin)] = &Node{Apex: true, Zone: newZone(z, ttl, serial)}
	}
	for _, n := range view.Names {
		if node := t.add(dns.Fqdn(n.Name)); node != nil {
			node.named = true
			node.A, node.AAAA = records(dns.Fqdn(n.Name), n.Addresses, ttl)
		}
	}
	for _, a := range view.Apps {
		node := t.add(dns.Fqdn(a.Name))
		switch {
		case node == nil:
		case a.Subtree:
			node.Apps = true
		case !node.named:
			node.Elsewhere = true
		}
	}
	for _, z := range view.Zones {
		t.add(dns.Fqdn(z.Origin)) // a zone inside another: the parents between them exist
		zone := t.nodes[dns.Fqdn(z.Origin)].Zone
		if server := t.nodes[dns.Fqdn(z.NameServer())]; server != nil {
			zone.Glue = slices.Clip(slices.Concat(server.A, server.AAAA))
		}
	}
	return t
}

// Len returns the number of zones in the tree.
func (t *Tree) Len() int { return t.zones }

// add makes name and the empty non-terminals between it and the zone that it lies
// in. It returns nil for a name in no zone of the tree.
func (t *Tree) add(name string) *Node {
	zone := t.enclosing(name)
	if zone == nil {
		return t.nodes[name] // an outermost apex, or nothing
	}
	if t.nodes[name] == nil {
		t.nodes[name] = &Node{Zone: zone}
	}
	for parent := parentOf(name); t.nodes[parent] == nil || !t.nodes[parent].Apex; parent = parentOf(parent) {
		if t.nodes[parent] == nil {
			t.nodes[parent] = &Node{Zone: zone}
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

// Within reports whether qname is the zone, which is in lower case, or lies below
// it. It is dns.IsSubDomain without its allocations.
func Within(qname, zone string) bool {
	for off, end := 0, false; !end; off, end = dns.NextLabel(qname, off) {
		if len(qname)-off == len(zone) {
			return equalFold(qname[off:], zone)
		}
	}
	return zone == "."
}

// equalFold compares as the DNS does: only the case of ASCII letters is alike.
func equalFold(s, lower string) bool {
	for i := range len(s) {
		if toLower(s[i]) != lower[i] {
			return false
		}
	}
	return true
}

func appendLower(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = append(dst, toLower(s[i]))
	}
	return dst
}

func toLower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
