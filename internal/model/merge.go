package model

import (
	"cmp"
	"slices"
	"sync"
)

// merge returns the previous snapshot with the groups that were built in place of those that were dissolved.
func (u *update) merge() *Snapshot {
	before := u.snapshot
	s := &Snapshot{
		Clusters: mergeLists(u, before.Clusters, func(s *Snapshot) []*Cluster { return s.Clusters }, compareAge),
		Infras:   mergeLists(u, before.Infras, func(s *Snapshot) []*Infra { return s.Infras }, func(a, b *Infra) int { return compareRefs(a.Ref, b.Ref) }),
		VLANs:    mergeLists(u, before.VLANs, func(s *Snapshot) []*VLAN { return s.VLANs }, func(a, b *VLAN) int { return cmp.Compare(a.Name, b.Name) }),
		Parts: mergeLists(u, before.Parts, func(s *Snapshot) []*Part {
			return slices.DeleteFunc(slices.Clone(s.Parts), func(p *Part) bool { return len(p.Clusters) == 0 })
		}, func(a, b *Part) int { return compareAge(a.Clusters[0], b.Clusters[0]) }),
		ProxyServers: mergeLists(u, before.ProxyServers, func(s *Snapshot) []*ProxyServer { return s.ProxyServers },
			func(a, b *ProxyServer) int { return compareRefs(a.Ref, b.Ref) }),
		Problems: mergeLists(u, before.Problems, func(s *Snapshot) []Problem { return s.Problems }, compareProblems),
		services: u.all.services, pod: before.pod,
	}
	for pool, p := range u.all.leases {
		if s.vmHosts == nil {
			s.vmHosts = make(map[string][]*vmHost, len(u.all.leases))
		}
		s.vmHosts[pool] = p.hosts
	}
	if s.pod == nil || !sameList(s.Parts, before.Parts) {
		s.pod = sync.OnceValue(func() *View { return wholePod(s.Parts) })
	}
	return s
}

// mergeLists returns a list of the snapshot in which the elements of rebuilt groups replace the elements of dissolved
// groups.
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

// wholePod returns the view of pods of several Parts.
func wholePod(parts []*Part) *View {
	var all []Publication
	var records []*RecordSet
	for _, part := range parts {
		all, records = append(all, part.Pod.from...), append(records, part.Pod.sets...)
	}
	return NewView(all, records, nil)
}
