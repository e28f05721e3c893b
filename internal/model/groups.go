package model

import (
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// A key identifies a member of a group, what connects members, or what they read. Members are HostedClusters, Infras,
// ProxyServers and AppsServices in scope, and objects that cannot be decoded. The strings are shared with other parts of the
// model where possible, because each cluster has several keys.
type key struct {
	kind keyKind
	name string
}

type keyKind uint8

// Kinds of keys, with what identifies one. Members with a common key of a kind before readService are members of one group.
const (
	keyOther         keyKind = iota // kind and "namespace/name" of an object that cannot be decoded
	keyHostedCluster                // "namespace/name", as the following ones
	keyInfra
	keyProxyServer
	keyAppsService
	keyNamespace // the namespace of a control plane
	keyVLAN      // a network
	keyCIDR
	keyName       // a name that is not below another one of the member; names above and below it connect, too
	readBelow     // a parent domain of names
	readService   // "namespace/name"
	readNamespace // whose Services are read
	readNetwork   // a NetworkAttachmentDefinition, "namespace/name"
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

// A member is an object of a group.
type member struct {
	key    key
	object objects.Object // nil if it was deleted
	keys   []key          // in Builder.byKey
	group  *group         // nil while the member moves to another group
}

// A group is a set of members that may affect each other, with the snapshot of these alone.
type group struct {
	members  []*member
	snapshot *Snapshot
}

// A Builder builds a sequence of snapshots from the changes to objects. It divides the objects into groups that do not affect
// each other, and builds only the groups that a change affects. Successive snapshots share equal Clusters, Views, Parts and
// ProxyServers, so that a reader can detect changes by comparing pointers. Callers must not modify objects that they have passed
// to Update. A Builder is not safe for concurrent use.
type Builder struct {
	options  Options
	all      *environment
	members  map[key]*member
	byKey    map[key][]*member
	previous reusable
	snapshot *Snapshot // the previous one
}

// update is one update of the snapshot.
type update struct {
	*Builder
	changed    map[*member]bool // members whose keys may have changed
	queue      []*member        // members of the groups that were dissolved, and new ones
	management bool             // whether the names of the management cluster may have changed
	everything bool             // whether every group may be affected

	dissolved, built []*group
}

// dissolve removes a group, which may be nil. Its members become members of new groups.
func (u *update) dissolve(g *group) {
	if g == nil {
		return
	}
	u.dissolved = append(u.dissolved, g)
	u.previous.add(g.snapshot)
	for _, m := range g.members {
		m.group = nil
	}
	u.queue = append(u.queue, g.members...)
}

// reindex dissolves the group of a changed member, and updates the member's keys.
func (u *update) reindex(m *member) {
	u.dissolve(m.group)
	u.queue = append(u.queue, m)
	keys := u.keysOf(m)
	if slices.Equal(keys, m.keys) {
		return
	}
	for _, k := range m.keys {
		if u.byKey[k] = slices.DeleteFunc(u.byKey[k], func(other *member) bool { return other == m }); len(u.byKey[k]) == 0 {
			delete(u.byKey, k)
		}
	}
	for _, k := range keys {
		u.byKey[k] = append(u.byKey[k], m)
	}
	m.keys = slices.Clip(keys)
	if m.object == nil {
		delete(u.members, m.key)
	}
}

// regroup forms groups of the members without one and of those that they are connected with, and builds their snapshots.
func (u *update) regroup() {
	for len(u.queue) > 0 {
		first := u.queue[0]
		u.queue = u.queue[1:]
		if first.group != nil || first.object == nil {
			continue
		}
		g, visited := &group{}, map[key]bool{}
		var join func(*member)
		join = func(m *member) {
			if m.group == g {
				return
			}
			u.dissolve(m.group)
			m.group, g.members = g, append(g.members, m)
			u.eachNeighbour(m, visited, join)
		}
		join(first)
		u.build(g)
	}
}

// build builds the snapshot of a group.
func (u *update) build(g *group) {
	in := &Objects{}
	for _, m := range g.members {
		in.Add(m.object)
	}
	g.snapshot = newBuilder(u.all, &u.options, &u.previous).build(in, u.options)
	u.built = append(u.built, g)
}

// eachNeighbour calls f with the members that a member is connected with by keys that were not visited yet.
func (b *Builder) eachNeighbour(m *member, visited map[key]bool, f func(*member)) {
	visit := func(k key) {
		if !visited[k] {
			visited[k] = true
			for _, other := range b.byKey[k] {
				f(other)
			}
		}
	}
	for _, k := range m.keys {
		switch {
		case k.kind == keyName:
			visit(key{readBelow, k.name})
			for at := range nameAndParents(k.name) {
				visit(key{keyName, at})
			}
		case k.kind < keyName:
			visit(k)
		}
	}
}

// keysOf returns the keys of a member; none if it does not exist.
func (u *update) keysOf(m *member) []key {
	if m.object == nil {
		return nil
	}
	keys := []key{m.key}
	add := func(kind keyKind, name string) {
		if k := (key{kind, name}); name != "" && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	addName := func(name string) {
		add(keyName, name)
		for at := range nameAndParents(name) {
			if at != name {
				add(readBelow, at)
			}
		}
	}
	switch o := m.object.(type) {
	case *objects.HostedCluster:
		c := u.all.parse(o).draft
		add(keyNamespace, c.ControlPlaneNamespace)
		add(readNamespace, c.vmNamespace)
		for _, name := range c.topmostNames() {
			addName(name)
		}
	case *objects.AppsService:
		add(keyHostedCluster, m.key.name)
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
		addName(infraDomainOf(o, infra.Ref, &problems{}))
		addName(infraAppsDomainOf(o, infra.Ref, &problems{}))
		add(readNetwork, infra.NetworkAttachment)
		add(readService, m.key.name+"-dns")
		if infra.vmNamesSpec.IsEnabled() {
			add(readLeases, Pool(m.key.name))
		}
		for name := range infra.podRecordNames() {
			addName(name)
		}
		if infra.Proxy != nil {
			add(readService, infra.Proxy.Service)
		}
	case *v1alpha1.ProxyServer:
		if ref := o.Spec.InfraRef; ref != nil {
			add(keyInfra, o.Namespace+"/"+ref.Name)
		} else if nad := o.Spec.NetworkConfig.NetworkAttachment(o.Namespace); nad.Name != "" {
			add(keyVLAN, u.all.networks.Of(nad.String()))
			add(readNetwork, nad.String())
		}
		for i := range o.Spec.Backends {
			add(readNamespace, o.Spec.Backends[i].TargetNamespace)
		}
	}
	return keys
}

// topmostNames returns the names of a cluster that are in none of its domains, and the domains.
func (c *Cluster) topmostNames() []string {
	names := slices.Clone(c.Domains)
	add := func(name string) {
		if !slices.ContainsFunc(names, func(above string) bool { return within(name, above) }) {
			names = append(names, name)
		}
	}
	for _, name := range slices.Concat(c.AppsDomains, c.AppsNames) {
		add(name)
	}
	for _, h := range c.Hostnames {
		add(h.Name)
	}
	return names
}
