package model

import (
	"maps"
	"slices"
)

// A key identifies what connects members, or what they read. Objects with a common key are members of one group. The
// strings are shared with other parts of the model where possible, because each cluster has several keys.
type key struct {
	kind keyKind
	name string
}

type keyKind uint8

func (k keyKind) of(name string) key { return key{k, name} }

// Kinds of keys, with what identifies one.
const (
	keyHostedCluster keyKind = iota // "namespace/name"
	keyInfra                        // "namespace/name"
	keyNamespace                    // the namespace of a control plane
	keyDomain                       // a cluster domain
	keyVLAN                         // a network
	keyCIDR
	// Objects that groups read.
	readService   // "namespace/name"
	readNamespace // the namespace of VMs
	readNetwork   // a NetworkAttachmentDefinition, "namespace/name"
)

// A groupSet is a set of groups, of which most have one.
type groupSet struct {
	one  *group
	more map[*group]bool
}

func (s groupSet) list() []*group {
	if s.one == nil {
		return nil
	}
	return slices.AppendSeq([]*group{s.one}, maps.Keys(s.more))
}

// addToSet adds a group to the set of a key.
func addToSet[K comparable](sets map[K]groupSet, k K, g *group) {
	s := sets[k]
	switch {
	case s.one == nil:
		s.one = g
	case s.one == g || s.more[g]:
		return
	case s.more == nil:
		s.more = map[*group]bool{g: true}
	default:
		s.more[g] = true
		return
	}
	sets[k] = s
}

// removeFromSet removes a group from the set of a key, if it is in it.
func removeFromSet[K comparable](sets map[K]groupSet, k K, g *group) {
	s := sets[k]
	if s.one != g {
		delete(s.more, g)
		return
	}
	s.one = nil
	for other := range s.more {
		s.one = other
		delete(s.more, other)
		break
	}
	if s.one == nil {
		delete(sets, k)
	} else {
		sets[k] = s
	}
}

// keysOf returns the keys of a member, and those of the objects that it reads. It returns none if the member does not
// exist.
func (u *update) keysOf(m member) (keys, reads []key) {
	if !m.infra {
		hc := u.hostedClusters[m.key]
		if hc == nil {
			return nil, nil
		}
		namespace := ControlPlaneNamespace(hc.Namespace, hc.Name)
		parsed := u.previous.parse(hc, u.all.routes[namespace], u.all.nodePorts[namespace])
		u.previous.parsed[hc] = parsed
		keys = append(keys, keyHostedCluster.of(m.key), keyNamespace.of(parsed.draft.ControlPlaneNamespace))
		for _, domain := range parsed.draft.Domains {
			keys = append(keys, keyDomain.of(domain))
		}
		if vms := parsed.draft.vmNamespace; vms != "" {
			reads = append(reads, readNamespace.of(vms))
		}
		return keys, reads
	}
	in := u.infras[m.key]
	if in == nil {
		return nil, nil
	}
	parsed := u.previous.parseInfra(in)
	u.previous.parsedInfras[in] = parsed
	infra := &parsed.infra
	keys = append(keys, keyInfra.of(m.key), keyVLAN.of(u.all.networks.Of(infra.NetworkAttachment)))
	for _, cidr := range infra.CIDRs {
		keys = append(keys, keyCIDR.of(cidr.String()))
	}
	if named := in.Spec.NamedHostedCluster(); named.IsSet() {
		for _, candidate := range named.Candidates(in.Namespace) {
			keys = append(keys, keyHostedCluster.of(candidate.String()))
		}
		keys = append(keys, keyHostedCluster.of(in.Namespace+"/"+named.Name)) // which problems mention
	}
	if namespace := controlPlaneNamespace(in); namespace != "" {
		keys = append(keys, keyNamespace.of(namespace))
	}
	if domain := infraDomainOf(in, infra.Ref, &problems{}); domain != "" {
		keys = append(keys, keyDomain.of(domain))
	}
	reads = append(reads, readNetwork.of(infra.NetworkAttachment), readService.of(m.key+"-dns"))
	if infra.Proxy != nil && infra.Proxy.Service != "" {
		reads = append(reads, readService.of(infra.Proxy.Service))
	}
	return keys, reads
}

// regroup forms groups of the members that have none, and builds their snapshots.
func (u *update) regroup() {
	for {
		built := u.partition()
		for _, g := range built {
			u.build(g)
		}
		joined := len(u.joined)
		for _, g := range built {
			u.connectNames(g)
		}
		if len(u.joined) == joined {
			u.built = built
			break
		}
		for _, g := range built {
			u.names.remove(g)
		}
	}
	for _, g := range u.built {
		u.groups[g] = true
		for _, k := range g.keys {
			u.byKey[k] = g
		}
		for _, k := range g.reads {
			addToSet(u.readers, k, g)
		}
	}
}

// partition returns groups of the members without a group and of the members of the groups that they are connected
// with, which it dissolves.
func (u *update) partition() []*group {
	var sets disjointSets
	owners := map[key]int{}
	all := map[member]int{}
	keys, reads := [][]key{}, [][]key{}
	for len(sets) < len(u.queue) { // dissolved groups extend the queue
		i := len(sets)
		m := u.queue[i]
		all[m] = i
		sets = append(sets, i)
		own, read := u.keysOf(m)
		keys, reads = append(keys, own), append(reads, read)
		for _, k := range own {
			u.dissolveKey(k)
			if owner, ok := owners[k]; ok {
				sets.union(owner, i)
			} else {
				owners[k] = i
			}
		}
	}
	for _, pair := range u.joined {
		sets.union(all[pair[0]], all[pair[1]])
	}
	groups := map[int]*group{}
	var list []*group
	for i, m := range u.queue {
		if len(keys[i]) == 0 {
			continue // does not exist
		}
		at := sets.find(i)
		g := groups[at]
		if g == nil {
			g = &group{}
			groups[at] = g
			list = append(list, g)
		}
		g.members = append(g.members, m)
		for _, k := range keys[i] {
			if owners[k] == i { // other members need not list it again
				g.keys = append(g.keys, k)
			}
		}
		g.reads = append(g.reads, reads[i]...)
	}
	return list
}

// disjointSets has the parent of each element; a root is its own parent.
type disjointSets []int

func (s disjointSets) find(i int) int {
	for s[i] != i {
		s[i] = s[s[i]]
		i = s[i]
	}
	return i
}

func (s disjointSets) union(a, b int) { s[s.find(b)] = s.find(a) }

// build builds the snapshot of a group.
func (u *update) build(g *group) {
	in := &Objects{LastGood: u.lastGood}
	for _, m := range g.members {
		if m.infra {
			in.Infras = append(in.Infras, u.infras[m.key])
			continue
		}
		in.HostedClusters = append(in.HostedClusters, u.hostedClusters[m.key])
		if s := u.appsServices[m.key]; s != nil {
			in.AppsServices = append(in.AppsServices, s)
		}
	}
	b := newBuilder(u.all, &u.previous)
	b.parsed, b.parsedInfras = u.previous.parsed, u.previous.parsedInfras
	g.snapshot = b.build(in, u.options)
	g.snapshot.services = nil // would keep this version of them; that of merge has the current one
	g.names = topmostNames(g.snapshot.Clusters)
}

// connectNames adds the names of a group to the index. If other groups have names above, below or equal to them, it
// joins both.
func (u *update) connectNames(g *group) {
	for _, other := range u.names.add(g) {
		u.joined = append(u.joined, [2]member{g.members[0], other.members[0]})
		if u.groups[other] {
			u.dissolve(other)
		}
	}
}

// topmostNames returns the names of clusters that are not below another one.
func topmostNames(clusters []*Cluster) []string {
	all := map[string]bool{}
	for _, c := range clusters {
		for _, list := range [][]string{c.Domains, c.AppsDomains, c.AppsNames} {
			for _, name := range list {
				all[name] = true
			}
		}
		for _, h := range c.Hostnames {
			if !c.owns(h.Name) {
				all[h.Name] = true
			}
		}
	}
	var top []string
	for name := range all {
		below := false
		for at := range nameAndParents(name) {
			below = below || at != name && all[at]
		}
		if !below {
			top = append(top, name)
		}
	}
	return top
}

// nameIndex finds groups by their topmost names.
type nameIndex struct {
	at    map[string]*group   // by name
	below map[string]groupSet // by the parents of names
}

// add adds the names of a group, and returns the other groups with names that are equal, above or below.
func (x *nameIndex) add(g *group) []*group {
	found := map[*group]bool{}
	for _, name := range g.names {
		for at := range nameAndParents(name) {
			if other := x.at[at]; other != nil && other != g {
				found[other] = true
			}
		}
		for _, other := range x.below[name].list() {
			if other != g {
				found[other] = true
			}
		}
	}
	for _, name := range g.names {
		if x.at[name] == nil {
			x.at[name] = g
		}
		for at := range nameAndParents(name) {
			if at != name {
				addToSet(x.below, at, g)
			}
		}
	}
	return slices.Collect(maps.Keys(found))
}

func (x *nameIndex) remove(g *group) {
	for _, name := range g.names {
		if x.at[name] == g {
			delete(x.at, name)
		}
		for at := range nameAndParents(name) {
			removeFromSet(x.below, at, g)
		}
	}
}
