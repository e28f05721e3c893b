package watch

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/densityops/oooi/internal/objects"
)

// table holds the cut-down objects of one watch. It is the store that a reflector
// writes into; nothing larger than the cut-down object outlives an event.
type table struct {
	decode func(*unstructured.Unstructured) objects.Object
	// changed is told of every change; with nil, of a whole list.
	changed func(objects.Object)
	// group, if set, says under which key an object is found by grouped.
	group func(objects.Object) string

	mu     sync.Mutex
	items  map[string]objects.Object
	groups map[string]map[string]objects.Object
	synced bool // items are the whole of what there is
}

var _ cache.TransformingStore = (*table)(nil)

func newTable(decode func(*unstructured.Unstructured) objects.Object, changed func(objects.Object)) *table {
	return &table{decode: decode, changed: changed, items: map[string]objects.Object{}, groups: map[string]map[string]objects.Object{}}
}

// Transformer lets the reflector cut objects down while it still streams the first list.
func (t *table) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return t.object(obj) }
}

func (t *table) object(obj any) (objects.Object, error) {
	switch obj := obj.(type) {
	case *unstructured.Unstructured:
		return t.decode(obj), nil
	case objects.Object:
		return obj, nil
	default:
		return nil, fmt.Errorf("watch delivered a %T", obj)
	}
}

// Add is cache.ReflectorStore's.
func (t *table) Add(obj any) error { return t.Update(obj) }

// Update stores the object. One that differs in nothing that we read is no change.
func (t *table) Update(obj any) error {
	o, err := t.object(obj)
	if err != nil {
		return err
	}
	t.mu.Lock()
	before := t.items[keyOf(o)]
	same := reflect.DeepEqual(before, o)
	if !same { // else the one that snapshots were made of stays
		t.ungroup(before)
		t.items[keyOf(o)] = o
		t.regroup(o)
	}
	t.mu.Unlock()
	if !same {
		t.changed(o)
	}
	return nil
}

// Delete is cache.ReflectorStore's.
func (t *table) Delete(obj any) error {
	o, err := t.object(obj)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.ungroup(t.items[keyOf(o)])
	delete(t.items, keyOf(o))
	t.mu.Unlock()
	t.changed(o)
	return nil
}

// Replace takes the whole of what there is, after a list.
func (t *table) Replace(list []any, _ string) error {
	items := make(map[string]objects.Object, len(list))
	for _, obj := range list {
		o, err := t.object(obj)
		if err != nil {
			return err
		}
		items[keyOf(o)] = o
	}
	t.mu.Lock()
	same := t.synced && len(items) == len(t.items)
	for key, o := range items {
		before, known := t.items[key]
		if known && reflect.DeepEqual(before, o) {
			items[key] = before
			continue
		}
		same = false
	}
	t.items, t.synced = items, true
	clear(t.groups)
	for _, o := range items {
		t.regroup(o)
	}
	t.mu.Unlock()
	if !same {
		t.changed(nil)
	}
	return nil
}

// Resync is cache.ReflectorStore's; there is nothing to do again.
func (t *table) Resync() error { return nil }

// list returns the objects, and whether they are all there are.
func (t *table) list() ([]objects.Object, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]objects.Object, 0, len(t.items))
	for _, o := range t.items {
		list = append(list, o)
	}
	return list, t.synced
}

// grouped returns the objects that group has under a key.
func (t *table) grouped(key string) []objects.Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.groups[key]))
}

func (t *table) regroup(o objects.Object) {
	if t.group == nil {
		return
	}
	key := t.group(o)
	if t.groups[key] == nil {
		t.groups[key] = map[string]objects.Object{}
	}
	t.groups[key][keyOf(o)] = o
}

func (t *table) ungroup(o objects.Object) {
	if t.group == nil || o == nil {
		return
	}
	key := t.group(o)
	delete(t.groups[key], keyOf(o))
	if len(t.groups[key]) == 0 {
		delete(t.groups, key)
	}
}

func keyOf(o objects.Object) string { return o.GetNamespace() + "/" + o.GetName() }
