package watch

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/densityops/oooi/internal/objects"
)

// table has the reduced objects of one watch. It is the store of a client-go reflector; the full objects are
// not kept.
type table struct {
	resource resource
	key      objectKey // the watched part of the resource
	// changed is called after every change: with the object before, nil if it was added, and now, nil if it was
	// deleted; with nil and nil after a list.
	changed func(before, now objects.Object)

	mu     sync.Mutex
	items  map[string]objects.Object
	groups map[string]map[string]objects.Object
	// changedKeys are the keys of the items that changed since takeChanged was last called.
	changedKeys map[string]bool
	synced      bool // whether the first list was completed

	// keep is the rule for items that disappear, and retention how long those are kept that the rule does not keep always.
	keep      keepRule
	retention time.Duration
	now       func() time.Time
	log       *slog.Logger
	kept      map[string]time.Time // when the items disappeared that are kept
	removed   map[string]removal   // with keepOutage, objects that were deleted recently without a deletionTimestamp
	notifying sync.Mutex           // held during a call of changed
}

var _ cache.TransformingStore = (*table)(nil)

func newTable(r resource, changed func(before, now objects.Object)) *table {
	return &table{
		resource: r, changed: changed, items: map[string]objects.Object{}, groups: map[string]map[string]objects.Object{}, changedKeys: map[string]bool{},
		now: time.Now, log: slog.New(slog.DiscardHandler), kept: map[string]time.Time{}, removed: map[string]removal{},
	}
}

// notify calls changed, one call at a time.
func (t *table) notify(before, now objects.Object) {
	t.notifying.Lock()
	defer t.notifying.Unlock()
	t.changed(before, now)
}

// Transformer returns the transform with which the reflector reduces objects while it streams the first list.
func (t *table) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return t.object(obj) }
}

func (t *table) object(obj any) (objects.Object, error) {
	switch obj := obj.(type) {
	case *unstructured.Unstructured:
		return t.resource.decode(obj), nil
	case objects.Object:
		return obj, nil
	default:
		return nil, fmt.Errorf("the watch returned an object of the unexpected type %T", obj)
	}
}

// Add implements cache.ReflectorStore.
func (t *table) Add(obj any) error { return t.Update(obj) }

// Update implements cache.ReflectorStore.
func (t *table) Update(obj any) error {
	o, err := t.object(obj)
	if err == nil {
		t.set(o)
	}
	return err
}

// set stores an object. It is not a change if the reduced object is equal to the stored one.
func (t *table) set(o objects.Object) {
	t.mu.Lock()
	before := t.items[keyOf(o)]
	same := reflect.DeepEqual(before, o)
	t.clearKept(keyOf(o))
	delete(t.removed, keyOf(o))
	if !same { // an equal object is not replaced, so that snapshots share it
		t.removeFromGroup(before)
		t.items[keyOf(o)] = o
		t.changedKeys[keyOf(o)] = true
		t.addToGroup(o)
	}
	t.mu.Unlock()
	if !same {
		t.notify(before, o)
	}
}

// Delete implements cache.ReflectorStore.
func (t *table) Delete(obj any) error {
	o, err := t.object(obj)
	if err == nil {
		t.remove(o)
	}
	return err
}

// remove removes an object, unless the rule keeps it.
func (t *table) remove(o objects.Object) {
	t.mu.Lock()
	if t.keepDeleted(keyOf(o), o) {
		t.mu.Unlock()
		return
	}
	t.removeFromGroup(t.items[keyOf(o)])
	delete(t.items, keyOf(o))
	delete(t.kept, keyOf(o))
	t.changedKeys[keyOf(o)] = true
	t.mu.Unlock()
	t.notify(o, nil)
}

// Replace implements cache.ReflectorStore.
func (t *table) Replace(list []any, _ string) error {
	items := make(map[string]objects.Object, len(list))
	for _, obj := range list {
		o, err := t.object(obj)
		if err != nil {
			return err
		}
		items[keyOf(o)] = o
	}
	t.replace(items)
	return nil
}

// replace replaces all objects, except kept ones, by the objects of a list. Equal objects are not replaced, so that
// snapshots share them.
func (t *table) replace(items map[string]objects.Object) {
	t.mu.Lock()
	t.keepUnlisted(items)
	same := t.synced && len(items) == len(t.items)
	for key, o := range items {
		before, known := t.items[key]
		if known && reflect.DeepEqual(before, o) {
			items[key] = before
			continue
		}
		same = false
		t.changedKeys[key] = true
	}
	for key := range t.items {
		if items[key] == nil {
			t.changedKeys[key] = true
		}
	}
	t.items, t.synced = items, true
	clear(t.groups)
	for _, o := range items {
		t.addToGroup(o)
	}
	t.mu.Unlock()
	if !same {
		t.notify(nil, nil)
	}
}

// Resync implements cache.ReflectorStore. It does nothing.
func (t *table) Resync() error { return nil }

// isSynced reports whether the first list was completed.
func (t *table) isSynced() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.synced
}

// get returns the object "namespace/name", or nil if it does not exist.
func (t *table) get(key string) objects.Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.items[key]
}

// list returns the objects, in no order, and whether the first list was completed.
func (t *table) list() ([]objects.Object, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]objects.Object, 0, len(t.items))
	for _, o := range t.items {
		list = append(list, o)
	}
	return list, t.synced
}

// takeChanged returns the objects that changed since its last call, by key; nil for those that were deleted.
func (t *table) takeChanged() map[string]objects.Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.changedKeys) == 0 {
		return nil
	}
	changed := make(map[string]objects.Object, len(t.changedKeys))
	for key := range t.changedKeys {
		changed[key] = t.items[key]
	}
	t.changedKeys = map[string]bool{}
	return changed
}

// grouped returns the objects with a group key, in no order.
func (t *table) grouped(key string) []objects.Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.groups[key]))
}

func (t *table) addToGroup(o objects.Object) {
	if t.resource.group == nil {
		return
	}
	key := t.resource.group(o)
	if t.groups[key] == nil {
		t.groups[key] = map[string]objects.Object{}
	}
	t.groups[key][keyOf(o)] = o
}

func (t *table) removeFromGroup(o objects.Object) {
	if t.resource.group == nil || o == nil {
		return
	}
	key := t.resource.group(o)
	delete(t.groups[key], keyOf(o))
	if len(t.groups[key]) == 0 {
		delete(t.groups, key)
	}
}

func keyOf(o objects.Object) string { return o.GetNamespace() + "/" + o.GetName() }
