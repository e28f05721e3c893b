// Package nametree builds the tree of a view's DNS names, and answers queries from it.
//
// A Tree is immutable. It contains names instead of records, so that a query's data fits into the CPU's caches: a
// thousand clusters have many names but few addresses. Names exist as in RFC 4592 and RFC 8020: parents of a name
// exist as empty non-terminals, and nothing exists below a name that does not.
package nametree

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/plugins/internal/reuse"
)

// A Part is a set of names that one plugin answers. The parts share one tree, so that each plugin knows which names
// belong to the other.
type Part uint8

// Parts of a tree.
const (
	// ControlPlane is the part of the control planes' names and the cluster domains.
	ControlPlane Part = 1 << iota
	// Apps is the part of the application names.
	Apps
)

// A Tree contains all names of one view: several parts of the model's view, with disjoint names.
type Tree struct {
	index index
	parts []*nodes // in the order of the views that the tree was built from
}

// nodes is a linked list of the nodes of one part.
type nodes struct {
	list []Node
	rest *nodes // nil for none
}

// appendTo appends the nodes that are in the tree to list.
func (s *nodes) appendTo(list []*Node) []*Node {
	for ; s != nil; s = s.rest {
		for i := range s.list {
			list = append(list, &s.list[i])
		}
	}
	return list
}

// A Node is a name that exists.
type Node struct {
	name string // in lower case and without a trailing dot
	// Zone is the zone that contains the name.
	Zone *Zone
	// Wildcard answers for all names below the node that do not exist; nil without a wildcard.
	Wildcard *Node
	// Part is the part that answers for the name, or 0 if it belongs to a part that the tree does not serve.
	Part Part
	// Apex is set if the name is its zone's origin.
	Apex bool
	// Open is set if a name below that does not exist belongs to Wildcard or, without one, to a plugin that this tree does
	// not serve: the name is an apps domain, or in an open zone.
	Open bool

	named      bool          // a name of the view, possibly without an address yet
	ownTTL     bool          // ttl is not the zone's
	hasSingleA bool          // exactly one address is IPv4: a
	a          [4]byte       // stored here to save a cache line
	ttl        uint32        // of the address records
	addresses  *[]netip.Addr // nil for none
	records    *[]recordSet  // of other types; nil for none
}

// setAddresses sets the addresses of the node.
func (n *Node) setAddresses(addresses *[]netip.Addr) {
	n.addresses, n.hasSingleA = addresses, false
	first := slices.IndexFunc(*addresses, netip.Addr.Is4)
	if first < 0 {
		return
	}
	n.a = (*addresses)[first].As4()
	n.hasSingleA = !slices.ContainsFunc((*addresses)[first+1:], netip.Addr.Is4)
}

// TTLs maps the parts that a tree answers for to the TTLs of their records, in seconds.
type TTLs map[Part]uint32

// New builds the tree of a view. It answers for the parts in ttls. All zones get the given serial. own are the
// addresses of this server: name servers without an address in the view get them.
func New(view *model.View, ttls TTLs, serial uint32, own ...netip.Addr) *Tree {
	return &Tree{index: (&index{}).with(nil, buildNodes(view, ttls, serial, own).appendTo(nil))}
}

// Parts are the parts of a view, none of which has a name that is equal to, above or below a name of another part.
type Parts[E, K comparable] struct {
	List []E
	// Key returns what identifies the names and addresses of a part. Keys are unique in the List.
	Key func(E) K
	// View returns the view of a part.
	View func(E) *model.View
}

// Next builds the tree of the parts now. It shares the nodes of parts with the same key in previous, the tree of the
// parts before, which may be nil; the zones of these keep their serial.
func Next[E, K comparable](previous *Tree, before []E, now Parts[E, K], ttls TTLs, serial uint32, own ...netip.Addr) *Tree {
	if previous == nil {
		previous, before = &Tree{}, nil
	}
	var added, removed []*Node
	parts := reuse.Values(before, previous.parts, now.List, now.Key, func(part E) *nodes {
		built := buildNodes(now.View(part), ttls, serial, own)
		added = built.appendTo(added)
		return built
	}, func(part *nodes) { removed = part.appendTo(removed) })
	return &Tree{index: previous.index.with(removed, added), parts: parts}
}

// A builder builds the nodes of one part of a view.
type builder struct {
	nodes map[string]*Node // by name, in lower case and without a trailing dot
	zones map[string]*Zone // by origin, spelled as in nodes
	part  *nodes           // has capacity for new nodes
}

// buildNodes returns the nodes of a part.
func buildNodes(view *model.View, ttls TTLs, serial uint32, own []netip.Addr) *nodes {
	// Each zone adds about two empty non-terminals, and each apps domain a wildcard.
	size := len(view.Names) + len(view.Apps) + len(view.Records) + 2*len(view.Zones)
	if _, served := ttls[Apps]; served {
		for i := range view.Apps {
			if view.Apps[i].Subtree {
				size++
			}
		}
	}
	t := &builder{
		nodes: make(map[string]*Node, size), zones: make(map[string]*Zone, len(view.Zones)), part: &nodes{list: make([]Node, 0, size)},
	}
	_, control := ttls[ControlPlane]
	_, served := ttls[Apps]
	if control {
		for _, z := range view.Zones {
			t.addZone(z.Origin, z.Domain, z.NameServer(), ControlPlane, ttls, serial)
			if z.Open {
				t.zones[z.Origin].open, t.nodes[z.Origin].Part, t.nodes[z.Origin].Open = true, 0, true
			}
		}
	}
	apps := outermostFirst(view.Apps)
	var zones []*model.App // with separate zones
	for _, a := range apps {
		// An apps domain is a zone only if no other zone contains it.
		if z := t.enclosing(a.Name); served && a.Served && t.nodes[a.Name] == nil && (z == nil || z.open) {
			t.addZone(a.Name, a.Domain, a.NameServer(), Apps, ttls, serial)
			zones = append(zones, a)
		}
	}
	for origin, z := range t.zones {
		z.parent = t.enclosing(origin)
	}
	for _, n := range view.Names {
		t.addName(n, control)
	}
	for _, a := range apps {
		t.addApp(a, served && a.Served)
	}
	for _, r := range view.Records {
		t.addRecord(r, control)
	}
	for _, a := range zones {
		if server := t.add(a.NameServer()); !server.named {
			server.setAddresses(&a.NameServers)
		}
		t.addGlue(a.Name, a.NameServer(), own)
	}
	for _, z := range view.Zones {
		t.add(z.Origin) // names between a zone and its enclosing zone exist
		t.addGlue(z.Origin, z.NameServer(), own)
	}
	for name, n := range t.nodes {
		n.name = name
		if !n.ownTTL {
			n.ttl = n.Zone.ttls[n.Part]
		}
	}
	return t.part
}

// addGlue sets the glue of a zone to the addresses of its name server, or to own if the name server has none.
func (t *builder) addGlue(origin, name string, own []netip.Addr) {
	apex, server := t.nodes[origin], t.nodes[name]
	if apex == nil || server == nil || server.addresses == nil {
		return
	}
	if len(*server.addresses) == 0 && len(own) > 0 {
		server.setAddresses(&own)
	}
	apex.Zone.glue = *server.addresses
}

// outermostFirst sorts apps domains so that each one precedes those inside it.
func outermostFirst(apps []model.App) []*model.App {
	sorted := make([]*model.App, len(apps))
	for i := range apps {
		sorted[i] = &apps[i]
	}
	slices.SortStableFunc(sorted, func(a, b *model.App) int { return cmp.Compare(len(a.Name), len(b.Name)) })
	return sorted
}

// newNode allocates a node of the tree. The caller adds it to t.nodes, where it replaces none.
func (t *builder) newNode(n Node) *Node {
	if len(t.part.list) == cap(t.part.list) {
		t.part = &nodes{list: make([]Node, 0, 4), rest: t.part}
	}
	t.part.list = append(t.part.list, n)
	return &t.part.list[len(t.part.list)-1]
}

func (t *builder) addZone(origin, domain, server string, part Part, ttls TTLs, serial uint32) {
	zone := &Zone{
		Origin: dns.Fqdn(origin), server: dns.Fqdn(server), mbox: "hostmaster." + dns.Fqdn(domain),
		part: part, serial: serial,
	}
	for part, ttl := range ttls {
		zone.ttls[part] = ttl
	}
	t.zones[origin] = zone
	t.nodes[origin] = t.newNode(Node{Apex: true, Part: part, Zone: zone})
}

// addName adds a control-plane name.
func (t *builder) addName(n model.Name, served bool) {
	if node := t.addNamed(n.Name, served); node != nil {
		node.setAddresses(&n.Addresses)
	}
}

// addNamed returns the node of a control-plane name or a record. It returns nil for a name that is in no zone of the tree, and if the
// tree does not serve control planes: the node then only prevents a wildcard from answering the name.
func (t *builder) addNamed(name string, served bool) *Node {
	node := t.add(name)
	if node == nil {
		return nil
	}
	node.named = true
	if !served {
		node.Part = 0
		return nil
	}
	node.Part = ControlPlane
	return node
}

// addApp adds an application name or an apps domain.
func (t *builder) addApp(a *model.App, served bool) {
	node := t.add(a.Name)
	switch {
	case node == nil:
	case a.Subtree:
		node.Open = true
		if served {
			node.Wildcard = t.newNode(Node{Part: Apps, Zone: node.Zone})
			node.Wildcard.setAddresses(&a.Addresses)
			t.nodes["*."+a.Name] = node.Wildcard // the wildcard exists, so names below it do not (RFC 4592, section 2.2.1)
		}
	case node.named: // the control-plane name takes precedence
	case served:
		node.Part = Apps
		node.setAddresses(&a.Addresses)
	default:
		node.Part = 0
	}
}

// add returns the node of name. It creates the node and the empty non-terminals between it and its zone. It returns
// nil for a name that is in no zone of the tree.
func (t *builder) add(name string) *Node {
	node := t.nodes[name]
	zone := t.enclosing(name)
	if zone == nil {
		return node // an apex without an enclosing zone, or nil
	}
	if node == nil {
		node = t.newNode(zone.emptyNode())
		t.nodes[name] = node
	}
	for parent := parentOf(name); len(parent) >= len(zone.Origin); parent = parentOf(parent) {
		if t.nodes[parent] != nil {
			break // all parents up to the zone exist too
		}
		t.nodes[parent] = t.newNode(zone.emptyNode())
	}
	return node
}

// enclosing returns the zone that contains the parent of name: for an apex the enclosing zone, for another name its
// own zone.
func (t *builder) enclosing(name string) *Zone {
	for parent := parentOf(name); parent != ""; parent = parentOf(parent) {
		if z := t.zones[parent]; z != nil {
			return z
		}
	}
	return nil
}

// parentOf returns name without its first label, or "" for a top-level domain.
func parentOf(name string) string {
	_, parent, _ := strings.Cut(name, ".")
	return parent
}

// Lookup returns the node of qname and true. If qname does not exist, it returns its closest encloser (RFC 4592,
// section 3.3.1), the longest existing parent, and false. The node is nil if qname is in no zone of the tree or not
// fully qualified. Case does not matter. Only names longer than 256 bytes cause an allocation, unless the tree has names
// with more than 16 labels.
func (t *Tree) Lookup(qname string) (node *Node, exact bool) {
	relative, qualified := strings.CutSuffix(qname, ".")
	if !qualified {
		return nil, false
	}
	var buf [256]byte
	lower := buf[:]
	if len(relative) > len(buf) {
		lower = make([]byte, len(relative))
	}
	lower = lower[:len(relative)]
	// A name is hashed from its last byte to its first, so that one pass yields the hashes of all parents.
	parents := make([]suffix, 0, 16)
	hash := hashSeed
	for i := len(relative) - 1; i >= 0; i-- {
		c := toLower(relative[i])
		if c == '.' && len(parents) < t.index.labels && !escaped(relative, i) {
			parents = append(parents, suffix{i + 1, hash})
		}
		lower[i] = c
		hash = hashByte(hash, c)
	}
	if len(lower) == 0 {
		return nil, false
	}
	if n := t.index.find(hash, lower); n != nil {
		return n, true
	}
	for len(parents) > 0 {
		parent := parents[len(parents)-1]
		parents = parents[:len(parents)-1]
		if n := t.index.find(parent.hash, lower[parent.at:]); n != nil {
			return n, false
		}
	}
	return nil, false
}

// suffix is a parent of a name: its position in the name, and its hash.
type suffix struct {
	at   int
	hash uint32
}

// escaped reports whether the byte at i is escaped by a backslash.
func escaped(s string, i int) bool {
	n := 0
	for i > n && s[i-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// Answers returns the node from which the plugin of part answers a query, for n and exact, the results of Lookup: n
// itself or, if the name does not exist, possibly the wildcard of n. If deny is true, the answer is that the name does
// not exist. The node is nil if n is nil, or if the name belongs to another part or to a plugin that the tree does not
// serve.
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
