package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// An IncrementalBuilder builds a sequence of snapshots from the changes of objects. The snapshots equal those that a
// Builder builds from all objects, and share what did not change in the same way. It divides the hosted clusters and
// Infras into groups that do not affect each other, and builds only the groups that a change affects. It does not
// support Options.Proxies and is not safe for concurrent use.
type IncrementalBuilder struct {
	options  Options
	all      *environment
	previous reusable

	hostedClusters map[string]*objects.HostedCluster // in scope, by "namespace/name", as the following ones
	infras         map[string]*v1alpha1.Infra        // in scope
	appsServices   map[string]*objects.AppsService
	broken         map[string]*objects.Broken // by kind and name
	controlPlanes  map[string]int             // number of HostedClusters by the namespace of their control plane
	lastGood       map[string][]netip.Addr    // as in Objects

	groups   map[*group]bool
	byKey    map[key]*group   // by the keys that connect members
	readers  map[key]groupSet // by the keys of objects that groups read
	names    nameIndex
	snapshot *Snapshot // the previous one; nil before the first
}

// A Change is the change of one object.
type Change struct {
	// Kind, Namespace and Name identify the object.
	Kind, Namespace, Name string
	// Now is the object, *objects.Broken if it cannot be decoded, or nil if it was deleted.
	Now objects.Object
}

func (c Change) key() string { return c.Namespace + "/" + c.Name }

// A group is a set of hosted clusters and Infras that may affect each other, with the snapshot of these alone.
type group struct {
	members  []member
	keys     []key    // in byKey
	reads    []key    // in readers
	names    []string // in names
	snapshot *Snapshot
}

// A member identifies a HostedCluster or an Infra by "namespace/name".
type member struct {
	infra bool
	key   string
}

// NewIncrementalBuilder returns an IncrementalBuilder without objects. lastGood is the result of LastGood of a previous
// snapshot, nil for none.
func NewIncrementalBuilder(options Options, lastGood map[string][]netip.Addr) *IncrementalBuilder {
	b := &IncrementalBuilder{
		options: options, all: newEnvironment(), previous: newReusable(),
		hostedClusters: map[string]*objects.HostedCluster{}, infras: map[string]*v1alpha1.Infra{},
		appsServices: map[string]*objects.AppsService{}, broken: map[string]*objects.Broken{},
		controlPlanes: map[string]int{}, lastGood: lastGood,
		groups: map[*group]bool{}, byKey: map[key]*group{}, readers: map[key]groupSet{},
		names: nameIndex{at: map[string]*group{}, below: map[string]groupSet{}},
	}
	b.all.index = serviceIndex{}
	b.all.management = newManagementNames(nil, nil, options.Names)
	return b
}

// Additions returns the changes that add the objects to an IncrementalBuilder.
func (o *Objects) Additions() []Change {
	var changes []Change
	add := func(kind string, one objects.Object) {
		changes = append(changes, Change{kind, one.GetNamespace(), one.GetName(), one})
	}
	for _, one := range o.HostedClusters {
		add(kindHostedCluster, one)
	}
	for _, one := range o.Infras {
		add(kindInfra, one)
	}
	for _, one := range o.Services {
		add(kindService, one)
	}
	for _, one := range o.Routes {
		add(kindRoute, one)
	}
	for _, one := range o.AppsServices {
		add(KindAppsService, one)
	}
	for _, one := range o.Broken {
		add("broken "+one.Kind, one)
	}
	return changes
}

// Kinds of objects in changes.
const (
	kindHostedCluster = "HostedCluster"
	kindInfra         = "Infra"
	kindService       = "Service"
	kindRoute         = "Route"
	// KindAppsService is the kind of the apps Service in a hosted cluster.
	KindAppsService = "AppsService"
)

// Update applies changes, of which no two are of the same object, and returns the next snapshot.
func (b *IncrementalBuilder) Update(changes []Change) *Snapshot {
	u := &update{
		IncrementalBuilder: b, members: map[member]bool{},
		routes: map[string]bool{}, controlPlanesBefore: map[string]int{},
	}
	for _, c := range changes {
		u.apply(c)
	}
	u.updateManagement()
	if u.everything {
		for g := range b.groups {
			u.dissolve(g)
		}
	}
	u.regroup()
	b.snapshot = u.merge()
	u.forget()
	return b.snapshot
}

// keepParsed is the number of members above which the results of parsing those of a group are kept.
const keepParsed = 4

// update is one update of the snapshot.
type update struct {
	*IncrementalBuilder
	members map[member]bool // that are in no group; those that do not exist are in no group later either
	queue   []member        // the same, in the order in which they were found
	joined  [][2]member     // members of groups whose names affect each other

	everything          bool // whether every group may be affected
	brokenBefore        []*objects.Broken
	brokenNow           []*objects.Broken
	routes              map[string]bool // namespaces with changed Routes
	controlPlanesBefore map[string]int  // values of controlPlanes that changed

	dissolved, built []*group
}

// forget drops results that the next update needs only for groups that it dissolves, or can compute again at little cost:
// a group with few members parses all of them again.
func (u *update) forget() {
	u.previous.clusters, u.previous.parts, u.previous.vlans = map[Ref]*Cluster{}, map[Ref]*Part{}, map[string]*View{}
	for _, g := range u.built {
		if len(g.members) > keepParsed {
			continue
		}
		for _, m := range g.members {
			if m.infra {
				delete(u.previous.parsedInfras, u.infras[m.key])
			} else {
				delete(u.previous.parsed, u.hostedClusters[m.key])
			}
		}
	}
}

// apply changes an object and dissolves the groups that it affects.
func (u *update) apply(c Change) {
	key := c.key()
	u.setBroken(c)
	switch c.Kind {
	case kindHostedCluster:
		now, _ := c.Now.(*objects.HostedCluster)
		u.setHostedCluster(key, now)
	case kindInfra:
		now, _ := c.Now.(*v1alpha1.Infra)
		u.setInfra(key, now)
	case kindService:
		now, _ := c.Now.(*objects.Service)
		u.setService(c.Namespace, c.Name, now)
	case kindRoute:
		now, _ := c.Now.(*objects.Route)
		u.all.routes[c.Namespace] = replaced(u.all.routes[c.Namespace], c.Name, now, now != nil)
		u.routes[c.Namespace] = true
	case KindAppsService:
		if now, ok := c.Now.(*objects.AppsService); ok {
			u.appsServices[key] = now
		} else {
			delete(u.appsServices, key)
		}
		u.dissolveKey(keyHostedCluster.of(key))
	}
}

func (u *update) setBroken(c Change) {
	key := c.Kind + " " + c.key()
	if before := u.broken[key]; before != nil {
		u.brokenBefore = append(u.brokenBefore, before)
		delete(u.broken, key)
	}
	if now, ok := c.Now.(*objects.Broken); ok {
		u.brokenNow = append(u.brokenNow, now)
		u.broken[key] = now
	}
}

func (u *update) setHostedCluster(key string, now *objects.HostedCluster) {
	if now != nil && !inScope(u.options.Scope.HostedClusters, now) {
		now = nil
	}
	before := u.hostedClusters[key]
	count := func(hc *objects.HostedCluster, n int) {
		namespace := ControlPlaneNamespace(hc.Namespace, hc.Name)
		if _, known := u.controlPlanesBefore[namespace]; !known {
			u.controlPlanesBefore[namespace] = u.controlPlanes[namespace]
		}
		if u.controlPlanes[namespace] += n; u.controlPlanes[namespace] == 0 {
			delete(u.controlPlanes, namespace)
		}
	}
	if before != nil {
		count(before, -1)
		delete(u.previous.parsed, before)
		delete(u.hostedClusters, key)
	}
	if now != nil {
		count(now, 1)
		u.hostedClusters[key] = now
	}
	u.dissolveKey(keyHostedCluster.of(key))
	u.add(member{key: key})
}

func (u *update) setInfra(key string, now *v1alpha1.Infra) {
	if scope := u.options.Scope; now != nil && (!scope.hasInfras() || !inScope(scope.Infras, now)) {
		now = nil
	}
	if before := u.infras[key]; before != nil {
		delete(u.previous.parsedInfras, before)
		delete(u.infras, key)
	}
	if now != nil {
		u.infras[key] = now
	}
	u.dissolveKey(keyInfra.of(key))
	u.add(member{infra: true, key: key})
}

func (u *update) setService(namespace, name string, now *objects.Service) {
	key := namespace + "/" + name
	var addresses []netip.Addr
	if now != nil {
		addresses = clusterIPs(now)
	}
	if !slices.Equal(u.all.services.get(key), addresses) {
		u.all.services = u.all.services.with(key, addresses)
		u.dissolveReaders(readService.of(key))
	}
	u.all.index[namespace] = replaced(u.all.index[namespace], name, now, now != nil)
	_, hasRole := roleByService[name]
	if hasRole {
		u.all.nodePorts[namespace] = nodePortsOf(u.all.index[namespace])[namespace]
	}
	if apps := u.options.Apps; hasRole || apps != nil {
		u.dissolveKey(keyNamespace.of(namespace))
		u.dissolveReaders(readNamespace.of(namespace))
		u.everything = u.everything || apps != nil && apps.Service == key
	}
}

// replaced returns a copy of a list, which is sorted by name, in which the object of that name is replaced or, if keep
// is false, missing.
func replaced[T objects.Object](list []T, name string, now T, keep bool) []T {
	at, found := slices.BinarySearchFunc(list, name, func(o T, name string) int { return cmp.Compare(o.GetName(), name) })
	end := at
	if found {
		end++
	}
	next := make([]T, 0, len(list)+1)
	next = append(next, list[:at]...)
	if keep {
		next = append(next, now)
	}
	return append(next, list[end:]...)
}

// updateManagement computes the names of the management cluster again if Routes outside of the control planes changed.
func (u *update) updateManagement() {
	changed := false
	for namespace := range u.routes {
		_, counted := u.controlPlanesBefore[namespace]
		if u.controlPlanes[namespace] > 0 && !counted {
			u.dissolveKey(keyNamespace.of(namespace))
			continue
		}
		changed = true
	}
	for namespace, before := range u.controlPlanesBefore {
		changed = changed || (before > 0) != (u.controlPlanes[namespace] > 0) && len(u.all.routes[namespace]) > 0
	}
	if !changed {
		return
	}
	var routes []*objects.Route
	for _, list := range u.all.routes {
		routes = append(routes, list...)
	}
	before := u.all.management
	u.all.management = newManagementNames(sortedByName(routes), slices.Sorted(maps.Keys(u.controlPlanes)), u.options.Names)
	for namespace := range u.routes {
		u.dissolveKey(keyNamespace.of(namespace))
	}
	if !before.equal(u.all.management) {
		u.everything = true
	}
}

// equal reports whether both permit the same names, with the same messages for others.
func (o *managementNames) equal(other *managementNames) bool {
	return slices.Equal(o.domains, other.domains) && maps.EqualFunc(o.routes, other.routes, func(a, b *objects.Route) bool { return compareNames(a, b) == 0 })
}

// dissolve removes a group. Its members become members of new groups.
func (u *update) dissolve(g *group) {
	delete(u.groups, g)
	for _, k := range g.keys {
		delete(u.byKey, k)
	}
	for _, k := range g.reads {
		removeFromSet(u.readers, k, g)
	}
	u.names.remove(g)
	u.dissolved = append(u.dissolved, g)
	u.previous.add(g.snapshot)
	for _, m := range g.members {
		u.add(m)
	}
}

func (u *update) dissolveKey(k key) {
	if g := u.byKey[k]; g != nil {
		u.dissolve(g)
	}
}

func (u *update) dissolveReaders(k key) {
	for _, g := range u.readers[k].list() {
		u.dissolve(g)
	}
}

// add adds a member without a group.
func (u *update) add(m member) {
	if !u.members[m] {
		u.members[m] = true
		u.queue = append(u.queue, m)
	}
}

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
	keyVLAN
	keyCIDR
	// Objects that groups read.
	readService   // "namespace/name"
	readNamespace // the namespace of VMs
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
	keys = append(keys, keyInfra.of(m.key), keyVLAN.of(infra.VLAN))
	for _, cidr := range infra.CIDRs {
		keys = append(keys, keyCIDR.of(cidr.String()))
	}
	if want, ok := namedCluster(in); ok {
		// The second one is mentioned in a problem if the first one does not exist.
		keys = append(keys, keyHostedCluster.of(want.Key()), keyHostedCluster.of(in.Namespace+"/"+want.Name))
	}
	if namespace := controlPlaneNamespace(in); namespace != "" {
		keys = append(keys, keyNamespace.of(namespace))
	}
	if domain := infraDomainOf(in, infra.Ref, &problems{}); domain != "" {
		keys = append(keys, keyDomain.of(domain))
	}
	reads = append(reads, readService.of(m.key+"-dns"))
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

// merge returns the previous snapshot with the groups that were built in place of those that were dissolved.
func (u *update) merge() *Snapshot {
	before := u.snapshot
	if before == nil {
		before = &Snapshot{pod: &wholeView{}}
		u.lastGood = nil
	}
	lastGood := u.lastGood
	if lastGood == nil {
		lastGood = map[string][]netip.Addr{}
	}
	for _, g := range u.dissolved {
		for _, c := range g.snapshot.Clusters {
			delete(lastGood, c.identity())
		}
	}
	for _, g := range u.built {
		maps.Copy(lastGood, g.snapshot.LastGood())
	}
	u.lastGood = lastGood
	s := &Snapshot{
		Clusters: mergeLists(u, before.Clusters, func(s *Snapshot) []*Cluster { return s.Clusters }, compareAge),
		Infras:   mergeLists(u, before.Infras, func(s *Snapshot) []*Infra { return s.Infras }, func(a, b *Infra) int { return compareRefs(a.Ref, b.Ref) }),
		VLANs:    mergeLists(u, before.VLANs, func(s *Snapshot) []*VLAN { return s.VLANs }, func(a, b *VLAN) int { return cmp.Compare(a.Name, b.Name) }),
		Parts: mergeLists(u, before.Parts, func(s *Snapshot) []*Part {
			return slices.DeleteFunc(slices.Clone(s.Parts), func(p *Part) bool { return len(p.Clusters) == 0 })
		}, func(a, b *Part) int { return compareAge(a.Clusters[0], b.Clusters[0]) }),
		services: u.all.services, pod: before.pod,
	}
	problems := func(of []*group, broken []*objects.Broken) []Problem {
		var list problems
		for _, g := range of {
			list = append(list, g.snapshot.Problems...)
		}
		for _, o := range broken {
			list = append(list, problemOf(o))
		}
		return list
	}
	s.Problems = merged(before.Problems, problems(u.dissolved, u.brokenBefore), problems(u.built, u.brokenNow), compareProblems)
	if u.snapshot == nil || !sameList(s.Parts, before.Parts) {
		s.pod = &wholeView{parts: s.Parts}
	}
	return s
}

// mergeLists returns a list of the snapshot in which the elements of the dissolved groups are replaced by those of the
// groups that were built.
func mergeLists[T comparable](u *update, list []T, of func(*Snapshot) []T, compare func(a, b T) int) []T {
	collect := func(groups []*group) []T {
		var all []T
		for _, g := range groups {
			all = append(all, of(g.snapshot)...)
		}
		return all
	}
	return merged(list, collect(u.dissolved), collect(u.built), compare)
}

// merged returns a sorted list with elements removed and added. If both are equal, it returns the list itself.
func merged[T comparable](list, removed, added []T, compare func(a, b T) int) []T {
	slices.SortFunc(removed, compare)
	slices.SortFunc(added, compare)
	if slices.Equal(removed, added) {
		return list
	}
	next := make([]T, 0, len(list)-len(removed)+len(added))
	for len(removed)+len(added) > 0 {
		remove := len(added) == 0 || len(removed) > 0 && compare(removed[0], added[0]) <= 0
		var element T
		if remove {
			element, removed = removed[0], removed[1:]
		} else {
			element, added = added[0], added[1:]
		}
		at, _ := slices.BinarySearchFunc(list, element, compare)
		next, list = append(next, list[:at]...), list[at:]
		if remove {
			list = list[1:]
		} else {
			next = append(next, element)
		}
	}
	return append(next, list...)
}

// sameList reports whether two lists share their elements' memory.
func sameList[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
