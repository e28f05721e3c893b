package model

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/objects"
)

// NewBuilder returns a Builder without objects. The first snapshot keeps the apps addresses and selected Services of previous,
// which may be nil.
func NewBuilder(options Options, previous *Snapshot) *Builder {
	b := &Builder{
		options: options, members: map[key]*member{}, byKey: map[key][]*member{}, previous: newReusable(), snapshot: &Snapshot{},
		all: &environment{
			services: &serviceIndex{}, routes: map[string][]*objects.Route{}, networks: cni.Networks{}, leases: map[string]*leasePool{},
			management: newManagementNames(nil, options.Names),
		},
	}
	if previous != nil {
		b.previous.add(previous)
	}
	return b
}

// Update applies changes, at most one of each object, and returns the next snapshot.
func (b *Builder) Update(changes []Change) *Snapshot {
	u := b.newUpdate(changes)
	u.regroup()
	b.snapshot = u.merge()
	b.previous, b.all.parsedClusters, b.all.parsedInfras = newReusable(), nil, nil
	return b.snapshot
}

// Build returns the Snapshot of the objects. It never fails: a fault of an object becomes a Problem, and other
// objects are not affected.
func Build(in *Objects, options Options) *Snapshot {
	b := NewBuilder(options, nil)
	maps.Copy(b.previous.lastGood, in.LastGood)
	maps.Copy(b.previous.lastServices, in.LastServices)
	return b.Update(in.Additions())
}

// newUpdate applies changes, and dissolves the groups that they affect.
func (b *Builder) newUpdate(changes []Change) *update {
	b.all.parsedClusters, b.all.parsedInfras = map[*objects.HostedCluster]*parsedCluster{}, map[*v1alpha1.Infra]*parsedInfra{}
	u := &update{Builder: b, changed: map[*member]bool{}}
	for _, c := range changes {
		u.apply(c)
	}
	for m := range u.changed {
		u.reindex(m)
	}
	if u.management {
		u.updateManagement()
	}
	if u.everything {
		for _, m := range u.members {
			u.dissolve(m.group)
		}
	}
	return u
}

func (u *update) apply(c Change) {
	switch c.Kind {
	case kindService:
		now, _ := c.Now.(*objects.Service)
		u.setService(c, now)
	case kindRoute:
		now, _ := c.Now.(*objects.Route)
		u.setRoute(c, now)
	case KindNetworkAttachment:
		// If it is deleted or invalid, its last network remains, because that detaches no VM.
		now, _ := c.Now.(*objects.NetworkAttachment)
		if nad := c.Namespace + "/" + c.Name; now != nil && now.Network != "" && u.all.networks[nad] != now.Network {
			u.all.networks[nad] = now.Network
			u.touch(key{readNetwork, nad})
		}
	case KindDHCPLease:
		now, _ := c.Now.(*objects.DHCPLease)
		u.setLease(c, now)
	}
	if u.options.isMember(c.Now) {
		u.setMember(c.memberKey(), c.Now)
	} else {
		u.setMember(c.memberKey(), nil)
	}
}

// isMember reports whether an object is in scope and a member of a group.
func (o Options) isMember(one objects.Object) bool {
	switch one.(type) {
	case *objects.HostedCluster:
		return inScope(o.Scope.HostedClusters, one)
	case *v1alpha1.Infra:
		return o.Scope.hasInfras() && inScope(o.Scope.Infras, one)
	case *v1alpha1.ProxyServer:
		return (o.Proxies || o.Backends) && inScope(o.Scope.ProxyServers, one)
	case *objects.AppsService, *objects.Broken:
		return true
	default:
		return false
	}
}

// setMember sets a member of a group; nil if it does not exist.
func (u *update) setMember(k key, now objects.Object) {
	m := u.members[k]
	if m == nil {
		if now == nil {
			return
		}
		m = &member{key: k}
		u.members[k] = m
	}
	if k.kind == keyHostedCluster && (m.object == nil) != (now == nil) { // the Routes of its control plane are not the management cluster's
		namespace, name, _ := strings.Cut(k.name, "/")
		u.management = u.management || len(u.all.routes[ControlPlaneNamespace(namespace, name)]) > 0
	}
	m.object, u.changed[m] = now, true
}

// touch marks the members with a key as changed.
func (u *update) touch(k key) {
	for _, m := range u.byKey[k] {
		u.changed[m] = true
	}
}

func (u *update) setService(c Change, now *objects.Service) {
	name := c.Namespace + "/" + c.Name
	if before := u.all.services.find(c.Namespace, c.Name); !slices.Equal(clusterIPs(before), clusterIPs(now)) {
		u.touch(key{readService, name})
	}
	u.all.services.set(c.Namespace, replaced(u.all.services.list(c.Namespace), c.Name, now, now != nil))
	if _, hasRole := roleByService[c.Name]; hasRole || u.options.Apps != nil || u.options.Proxies {
		u.touch(key{keyNamespace, c.Namespace})
		u.touch(key{readNamespace, c.Namespace})
		u.everything = u.everything || u.options.Apps != nil && u.options.Apps.Service == name
	}
}

func (u *update) setRoute(c Change, now *objects.Route) {
	u.all.routes[c.Namespace] = replaced(u.all.routes[c.Namespace], c.Name, now, now != nil)
	u.touch(key{keyNamespace, c.Namespace})
	u.management = u.management || !u.isControlPlane(c.Namespace)
}

// isControlPlane reports whether a namespace contains the control plane of a HostedCluster.
func (b *Builder) isControlPlane(namespace string) bool {
	return slices.ContainsFunc(b.byKey[key{keyNamespace, namespace}], func(m *member) bool { return m.key.kind == keyHostedCluster && m.object != nil })
}

// replaced returns a copy of a list, which is sorted by name, in which the object of that name is replaced or, if keep
// is false, missing.
func replaced[T objects.Object](list []T, name string, now T, keep bool) []T {
	at, found := slices.BinarySearchFunc(list, name, func(o T, name string) int { return cmp.Compare(o.GetName(), name) })
	end := at
	if found {
		end++
	}
	var next []T
	if keep {
		next = []T{now}
	}
	return slices.Concat(list[:at], next, list[end:])
}

// updateManagement computes the names of the management cluster again.
func (u *update) updateManagement() {
	var routes []*objects.Route
	for namespace, list := range u.all.routes {
		if !u.isControlPlane(namespace) {
			routes = append(routes, list...)
		}
	}
	before := u.all.management
	u.all.management = newManagementNames(sortedByName(routes), u.options.Names)
	u.everything = u.everything || !before.equal(u.all.management)
}
