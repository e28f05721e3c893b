package watch

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// tables are the objects of a source.
type tables []*table

func (s tables) objects() (*model.Objects, bool) {
	all, complete := &model.Objects{}, true
	for _, t := range s {
		list, synced := t.list()
		all.Add(list...)
		complete = complete && synced
	}
	return all, complete
}

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
