package watch

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// tables are the objects of a source.
type tables []*table

// objects returns the objects, each kind sorted by namespace and name.
func (s tables) objects() *model.Objects {
	all := &model.Objects{}
	for _, t := range s {
		list, _ := t.list()
		slices.SortFunc(list, func(a, b objects.Object) int { return cmp.Compare(keyOf(a), keyOf(b)) })
		all.Add(list...)
	}
	return all
}

// changes returns the changes to objects since its last call, at first all objects, and whether every resource was listed. Before
// that it returns none.
func (s tables) changes() ([]model.Change, bool) {
	for _, t := range s {
		if !t.isSynced() {
			return nil, false
		}
	}
	var all []model.Change
	for _, t := range s {
		for key, now := range t.takeChanged() {
			namespace, name, _ := strings.Cut(key, "/")
			all = append(all, model.Change{Kind: t.resource.kind, Namespace: namespace, Name: name, Now: now})
		}
	}
	return all, true
}

// endpointSlices returns the EndpointSlices of a Service, "namespace/name", in no order.
func (s tables) endpointSlices(service string) []*objects.EndpointSlice {
	var all []*objects.EndpointSlice
	for _, t := range s {
		for _, o := range t.grouped(service) {
			if slice, ok := o.(*objects.EndpointSlice); ok {
				all = append(all, slice)
			}
		}
	}
	return all
}

// object returns an Infra or a ProxyServer with its status, or nil if it does not exist.
func (s tables) object(resource schema.GroupVersionResource, name string) objects.Object {
	for _, t := range s {
		if t.resource.gvr == resource {
			if o := t.get(name); o != nil {
				return o
			}
		}
	}
	return nil
}
