package model

import (
	"cmp"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/objects"
)

// A Builder builds a sequence of snapshots from the changes of objects. It divides the objects into groups that do not affect
// each other, and builds only the groups that a change affects. Successive snapshots share equal Clusters, Views, Parts and
// ProxyServers, so that a reader can detect changes by comparing pointers. Callers must not modify objects that they have passed
// to Update. A Builder is not safe for concurrent use.
type Builder struct {
	options       Options
	all           *environment
	members       map[key]objects.Object
	controlPlanes map[string]int // number of HostedClusters by the namespace of their control plane
	groups        map[*group]bool
	byKey         map[key]*group   // by the keys that connect members
	readers       map[key][]*group // by the keys of objects that groups read
	previous      reusable
	snapshot      *Snapshot // the previous one; nil before the first
}

// A Change is the change of one object.
type Change struct {
	// Kind, Namespace and Name identify the object.
	Kind, Namespace, Name string
	// Now is the object, *objects.Broken if it cannot be decoded, or nil if it was deleted.
	Now objects.Object
}

// NewBuilder returns a Builder without objects. The first snapshot keeps the apps addresses and selected Services of previous,
// which may be nil.
func NewBuilder(options Options, previous *Snapshot) *Builder {
	b := &Builder{
		options: options, previous: newReusable(),
		all: &environment{
			services: &serviceIndex{}, routes: map[string][]*objects.Route{}, networks: cni.Networks{}, leases: map[string]*leasePool{},
			management: newManagementNames(nil, options.Names),
		},
		members: map[key]objects.Object{}, controlPlanes: map[string]int{},
		groups: map[*group]bool{}, byKey: map[key]*group{}, readers: map[key][]*group{},
	}
	if previous != nil {
		b.previous.add(previous)
	}
	return b
}

// Kinds of objects in changes.
const (
	kindHostedCluster = "HostedCluster"
	kindInfra         = "Infra"
	kindProxyServer   = "ProxyServer"
	kindService       = "Service"
	kindRoute         = "Route"
	// KindDHCPLease is the kind of the Leases of DHCP.
	KindDHCPLease = "Lease"
	// KindAppsService is the kind of the apps Service in a hosted cluster.
	KindAppsService = "AppsService"
	// KindNetworkAttachment is the kind of NetworkAttachmentDefinitions.
	KindNetworkAttachment = "NetworkAttachmentDefinition"
)

// Additions returns the changes that add the objects to a Builder.
func (o *Objects) Additions() []Change {
	list := slices.Concat(
		additions(kindHostedCluster, o.HostedClusters), additions(kindInfra, o.Infras), additions(kindProxyServer, o.ProxyServers),
		additions(kindService, o.Services), additions(kindRoute, o.Routes), additions(KindAppsService, o.AppsServices),
		additions(KindNetworkAttachment, o.NetworkAttachments), additions(KindDHCPLease, o.DHCPLeases),
	)
	for _, one := range o.Broken {
		list = append(list, Change{"broken " + one.Kind, one.Namespace, one.Name, one})
	}
	return list
}

func additions[T objects.Object](kind string, list []T) []Change {
	changes := make([]Change, len(list))
	for i, one := range list {
		changes[i] = Change{kind, one.GetNamespace(), one.GetName(), one}
	}
	return changes
}

// Update applies changes, of which no two are of the same object, and returns the next snapshot.
func (b *Builder) Update(changes []Change) *Snapshot {
	u := b.newUpdate()
	for _, c := range changes {
		u.apply(c)
	}
	if u.management {
		u.updateManagement()
	}
	if u.everything {
		for g := range b.groups {
			u.dissolve(g)
		}
	}
	u.regroup()
	b.snapshot = u.merge()
	b.previous, b.all.parsedClusters, b.all.parsedInfras = newReusable(), nil, nil
	return b.snapshot
}

// update is one update of the snapshot.
type update struct {
	*Builder
	queue  []key // members that are in no group; those that do not exist are in no group later either
	queued map[key]bool
	joined [][2]key // members of groups whose names affect each other

	everything bool // whether every group may be affected
	management bool // whether the names of the management cluster may have changed

	dissolved, built []*group
}

func (b *Builder) newUpdate() *update {
	b.all.parsedClusters, b.all.parsedInfras = map[*objects.HostedCluster]*parsedCluster{}, map[*v1alpha1.Infra]*parsedInfra{}
	return &update{Builder: b, queued: map[key]bool{}}
}

// apply changes an object and dissolves the groups that it affects.
func (u *update) apply(c Change) {
	member := c.Now
	switch now := c.Now.(type) {
	case *objects.LabelledService:
		u.setService(c, &now.Service)
		member = nil
	case *objects.Service:
		u.setService(c, now)
		member = nil
	case *objects.Route:
		u.setRoute(c, now)
		member = nil
	case *objects.NetworkAttachment:
		// If it is deleted or invalid, its last network remains, because that detaches no VM.
		if nad := c.Namespace + "/" + c.Name; now.Network != "" && u.all.networks[nad] != now.Network {
			u.all.networks[nad] = now.Network
			u.dissolveReaders(key{readNetwork, nad})
		}
		member = nil
	case *objects.DHCPLease:
		u.setLease(c, now)
		member = nil
	case *objects.EndpointSlice:
		member = nil
	default: // deleted, broken, or a member
		switch c.Kind {
		case kindService:
			u.setService(c, nil)
		case kindRoute:
			u.setRoute(c, nil)
		case KindDHCPLease:
			u.setLease(c, nil)
		}
	}
	u.setMember(c.memberKey(), member)
}

// setMember sets a member of a group; nil if it does not exist.
func (u *update) setMember(m key, now objects.Object) {
	if now != nil && !u.options.includes(now) {
		now = nil
	}
	before := u.members[m]
	if before == nil && now == nil {
		return
	}
	if was, is := controlPlaneOf(before), controlPlaneOf(now); was != is {
		u.countControlPlane(was, -1)
		u.countControlPlane(is, 1)
	}
	if now == nil {
		delete(u.members, m)
	} else {
		u.members[m] = now
	}
	u.dissolveKey(m)
	u.add(m)
}

// includes reports whether an object is in scope.
func (o Options) includes(one objects.Object) bool {
	switch one.(type) {
	case *objects.HostedCluster:
		return inScope(o.Scope.HostedClusters, one)
	case *v1alpha1.Infra:
		return o.Scope.hasInfras() && inScope(o.Scope.Infras, one)
	case *v1alpha1.ProxyServer:
		return o.Proxies && inScope(o.Scope.ProxyServers, one)
	default:
		return true
	}
}

// controlPlaneOf returns the namespace of the control plane of a HostedCluster, or "" for another object.
func controlPlaneOf(o objects.Object) string {
	if hc, ok := o.(*objects.HostedCluster); ok {
		return ControlPlaneNamespace(hc.Namespace, hc.Name)
	}
	return ""
}

// countControlPlane counts the HostedClusters of a control plane, whose Routes are not the management cluster's.
func (u *update) countControlPlane(namespace string, n int) {
	if namespace != "" {
		u.controlPlanes[namespace] += n
		u.management = u.management || len(u.all.routes[namespace]) > 0
	}
}

func (u *update) setService(c Change, now *objects.Service) {
	name := c.Namespace + "/" + c.Name
	if before := u.all.services.find(c.Namespace, c.Name); !slices.Equal(clusterIPs(before), clusterIPs(now)) {
		u.dissolveReaders(key{readService, name})
	}
	u.all.services = u.all.services.with(c.Namespace, replaced(u.all.services.list(c.Namespace), c.Name, now, now != nil))
	if _, hasRole := roleByService[c.Name]; hasRole || u.options.Apps != nil || u.options.Proxies {
		u.dissolveKey(key{keyNamespace, c.Namespace})
		u.dissolveReaders(key{readNamespace, c.Namespace})
		u.everything = u.everything || u.options.Apps != nil && u.options.Apps.Service == name
	}
}

func (u *update) setRoute(c Change, now *objects.Route) {
	u.all.routes[c.Namespace] = replaced(u.all.routes[c.Namespace], c.Name, now, now != nil)
	u.dissolveKey(key{keyNamespace, c.Namespace})
	u.management = u.management || u.controlPlanes[c.Namespace] == 0
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

// updateManagement computes the names of the management cluster again.
func (u *update) updateManagement() {
	var routes []*objects.Route
	for namespace, list := range u.all.routes {
		if u.controlPlanes[namespace] == 0 {
			routes = append(routes, list...)
		}
	}
	before := u.all.management
	u.all.management = newManagementNames(sortedByName(routes), u.options.Names)
	u.everything = u.everything || !before.equal(u.all.management)
}

// dissolve removes a group. Its members become members of new groups.
func (u *update) dissolve(g *group) {
	delete(u.groups, g)
	u.unregister(g)
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
	for _, g := range slices.Clone(u.readers[k]) {
		u.dissolve(g)
	}
}

// add adds a member without a group.
func (u *update) add(m key) {
	if !u.queued[m] {
		u.queued[m] = true
		u.queue = append(u.queue, m)
	}
}
