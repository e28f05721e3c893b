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
	for _, one := range o.NetworkAttachments {
		add(KindNetworkAttachment, one)
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
	// KindNetworkAttachment is the kind of NetworkAttachmentDefinitions.
	KindNetworkAttachment = "NetworkAttachmentDefinition"
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
	case KindNetworkAttachment:
		now, _ := c.Now.(*objects.NetworkAttachment)
		u.setNetwork(key, now)
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

// setNetwork sets the network of a NetworkAttachmentDefinition. If that is deleted or invalid, its last network remains,
// because that detaches no VM.
func (u *update) setNetwork(nad string, now *objects.NetworkAttachment) {
	if now != nil && now.Network != "" && u.all.networks[nad] != now.Network {
		u.all.networks[nad] = now.Network
		u.dissolveReaders(readNetwork.of(nad))
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
