package model

import (
	"cmp"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// A key identifies a member of a group, what connects members, or what they read. Members are HostedClusters, Infras,
// ProxyServers and AppsServices in scope, and objects that cannot be decoded. Objects with a common key are members of one
// group. The strings are shared with other parts of the model where possible, because each cluster has several keys.
type key struct {
	kind keyKind
	name string
}

type keyKind uint8

// Kinds of keys, with what identifies one.
const (
	keyOther         keyKind = iota // kind and "namespace/name" of an object that cannot be decoded
	keyHostedCluster                // "namespace/name", as the following ones
	keyInfra
	keyProxyServer
	keyAppsService
	keyNamespace // the namespace of a control plane
	keyDomain    // a cluster domain
	keyVLAN      // a network
	keyCIDR
	keyName // a name of a cluster that is not below another one of its group
	// Objects that groups read.
	readService   // "namespace/name"
	readNamespace // whose Services are read
	readNetwork   // a NetworkAttachmentDefinition, "namespace/name"
	readBelow     // a parent domain of names
	readLeases    // a pool of DHCP leases
)

var memberKinds = map[string]keyKind{
	kindHostedCluster: keyHostedCluster, kindInfra: keyInfra, kindProxyServer: keyProxyServer, KindAppsService: keyAppsService,
}

// memberKey returns the key of the object of a change.
func (c Change) memberKey() key {
	name := c.Namespace + "/" + c.Name
	if kind, ok := memberKinds[c.Kind]; ok {
		return key{kind, name}
	}
	return key{keyOther, c.Kind + " " + name}
}

// A group is a set of members that may affect each other, with the snapshot of these alone.
type group struct {
	members  []key
	keys     []key // in byKey
	reads    []key // in readers
	snapshot *Snapshot
}

// register adds a group to the indexes.
func (b *Builder) register(g *group) {
	for _, k := range g.keys {
		b.byKey[k] = g
	}
	for _, k := range g.reads {
		b.readers[k] = append(b.readers[k], g)
	}
}

// unregister removes a group from the indexes.
func (b *Builder) unregister(g *group) {
	for _, k := range g.keys {
		if b.byKey[k] == g {
			delete(b.byKey, k)
		}
	}
	for _, k := range g.reads {
		if b.readers[k] = slices.DeleteFunc(b.readers[k], func(other *group) bool { return other == g }); len(b.readers[k]) == 0 {
			delete(b.readers, k)
		}
	}
}

// keysOf returns the keys of a member, and those of the objects that it reads; none if it does not exist.
func (u *update) keysOf(m key) (keys, reads []key) {
	if u.members[m] == nil {
		return nil, nil
	}
	keys = append(keys, m)
	add := func(kind keyKind, name string) {
		if name != "" {
			keys = append(keys, key{kind, name})
		}
	}
	read := func(kind keyKind, name string) {
		if name != "" {
			reads = append(reads, key{kind, name})
		}
	}
	switch o := u.members[m].(type) {
	case *objects.HostedCluster:
		parsed := u.all.parse(o).draft
		add(keyNamespace, parsed.ControlPlaneNamespace)
		for _, domain := range parsed.Domains {
			add(keyDomain, domain)
		}
		read(readNamespace, parsed.vmNamespace)
	case *objects.AppsService:
		add(keyHostedCluster, m.name)
	case *v1alpha1.Infra:
		infra := &u.all.parseInfra(o).infra
		add(keyVLAN, u.all.networks.Of(infra.NetworkAttachment))
		for _, cidr := range infra.CIDRs {
			add(keyCIDR, cidr.String())
		}
		if named := o.Spec.NamedHostedCluster(); named.IsSet() {
			for _, candidate := range named.Candidates(o.Namespace) {
				add(keyHostedCluster, candidate.String())
			}
			add(keyHostedCluster, o.Namespace+"/"+named.Name) // which problems mention
		}
		add(keyNamespace, controlPlaneNamespace(o))
		add(keyDomain, infraDomainOf(o, infra.Ref, &problems{}))
		read(readNetwork, infra.NetworkAttachment)
		read(readService, m.name+"-dns")
		if infra.vmNamesSpec.IsEnabled() {
			read(readLeases, Pool(m.name))
		}
		if infra.Proxy != nil {
			read(readService, infra.Proxy.Service)
		}
	case *v1alpha1.ProxyServer:
		if ref := o.Spec.InfraRef; ref != nil {
			add(keyInfra, o.Namespace+"/"+ref.Name)
		} else if nad := o.Spec.NetworkConfig.NetworkAttachment(o.Namespace); nad.Name != "" {
			add(keyVLAN, u.all.networks.Of(nad.String()))
			read(readNetwork, nad.String())
		}
		for i := range o.Spec.Backends {
			read(readNamespace, o.Spec.Backends[i].TargetNamespace)
		}
	}
	return keys, reads
}

// regroup forms groups of the members that have none, and builds their snapshots. If names of groups are above, below or equal to
// each other, it joins these groups.
func (u *update) regroup() {
	for {
		joined := len(u.joined)
		u.built = u.partition()
		for _, g := range u.built {
			u.build(g)
			for _, other := range u.neighbours(g) {
				u.joined = append(u.joined, [2]key{g.members[0], other.members[0]})
				if u.groups[other] {
					u.dissolve(other)
				}
			}
			u.register(g)
		}
		if len(u.joined) == joined {
			break
		}
		for _, g := range u.built {
			u.unregister(g)
		}
	}
	for _, g := range u.built {
		u.groups[g] = true
	}
}

// partition returns groups of the members without a group and of the members of the groups that they are connected
// with, which it dissolves.
func (u *update) partition() []*group {
	var sets disjointSets
	owners := map[key]int{}
	keys, reads := [][]key{}, [][]key{}
	for len(sets) < len(u.queue) { // dissolved groups extend the queue
		i := len(sets)
		sets = append(sets, i)
		own, read := u.keysOf(u.queue[i])
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
		sets.union(owners[pair[0]], owners[pair[1]])
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

// build builds the snapshot of a group, and adds the keys of its names.
func (u *update) build(g *group) {
	in := &Objects{}
	for _, m := range g.members {
		in.Add(u.members[m])
	}
	g.snapshot = newBuilder(u.all, &u.options, &u.previous).build(in, u.options)
	g.snapshot.services = nil // would keep this version of them; that of merge has the current one
	for _, name := range topmostNames(g.snapshot.Clusters, g.snapshot.Parts[0].Pod.sets) {
		g.keys = append(g.keys, key{keyName, name})
		for at := range nameAndParents(name) {
			if at != name {
				g.reads = append(g.reads, key{readBelow, at})
			}
		}
	}
	slices.SortFunc(g.reads, func(a, b key) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name)) })
	g.keys, g.reads = slices.Clone(g.keys), slices.Clone(slices.Compact(g.reads)) // without unused capacity
}

// neighbours returns the registered groups with names that are above, below or equal to those of a group.
func (u *update) neighbours(g *group) []*group {
	var found []*group
	for _, k := range g.keys {
		if k.kind != keyName {
			continue
		}
		for at := range nameAndParents(k.name) {
			if other := u.byKey[key{keyName, at}]; other != nil {
				found = append(found, other)
			}
		}
		found = append(found, u.readers[key{readBelow, k.name}]...)
	}
	return found
}

// topmostNames returns the names of clusters, and those of records, that are not below another one.
func topmostNames(clusters []*Cluster, records []*RecordSet) []string {
	all := map[string]bool{}
	for _, set := range records {
		for _, zone := range set.reverse {
			all[zone] = true
		}
		if set.domain != "" {
			all[set.domain] = true
			continue
		}
		for i := range set.Records {
			all[strings.TrimPrefix(set.Records[i].Name, "*.")] = true
		}
	}
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
