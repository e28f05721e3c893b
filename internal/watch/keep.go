package watch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// DefaultRetention is how long objects stay in use that disappeared from the API server without evidence that they were
// deleted on purpose: after a restored etcd, a deleted CRD or a wrong prune.
const DefaultRetention = 10 * time.Minute

// deletionWindow is the longest time from the deletion of the first object of a CRD that is deleted to the end of its
// resource: the API server deletes the objects first.
const deletionWindow = time.Minute

// maxKeptNames limits the names in a Kept.
const maxKeptNames = 10

// A keepRule determines which objects stay in use after they disappeared from the API server.
type keepRule int

const (
	// keepNothing is the rule for resources whose absence is a fact, such as a Secret with credentials.
	keepNothing keepRule = iota
	// keepOutage keeps the objects of a resource for the retention time if all of them disappear at once: the resource is not
	// served, or a list is empty.
	keepOutage
	// keepUnannounced is keepOutage, and keeps each object for the retention time that disappears without a deletionTimestamp.
	keepUnannounced
	// keepAlways keeps every object until it appears again.
	keepAlways
)

// Kept describes objects of a watch that disappeared from the API server and stay in use.
type Kept struct {
	// Objects is the number of these objects.
	Objects int `json:"objects"`
	// Names are "namespace/name" of the first objects, at most 10.
	Names []string `json:"names"`
	// Since is when the first of them disappeared.
	Since time.Time `json:"since"`
	// Until is when the last of them is removed; zero for objects that stay in use until they appear again.
	Until time.Time `json:"until,omitzero"`
}

// CountKept returns the numbers of objects that disappeared from the API server and stay in use, by resource;
// resources without any are omitted.
func CountKept(list []ResourceStatus) map[string]int {
	kept := map[string]int{}
	for i := range list {
		if list[i].Kept != nil {
			kept[list[i].Resource] += list[i].Kept.Objects
		}
	}
	return kept
}

// keptObject is an object in a snapshot file that had disappeared from the API server.
type keptObject struct {
	Resource string    `json:"resource"`
	Key      string    `json:"key"` // "namespace/name"
	Since    time.Time `json:"since"`
}

// removal is an object that was deleted recently.
type removal struct {
	object objects.Object
	at     time.Time
}

// announced reports whether the deletion of an object has been announced by a deletionTimestamp.
func announced(list ...objects.Object) bool {
	return slices.ContainsFunc(list, func(o objects.Object) bool {
		d, ok := o.(interface{ GetDeletionTimestamp() *metav1.Time })
		return ok && d.GetDeletionTimestamp() != nil
	})
}

// ruleFor returns the rule for the objects that a key selects. An Infra or ProxyServer that is watched by its name is
// the one that the pod exists for: only the end of the pod ends its service.
func (r resource) ruleFor(key objectKey) keepRule {
	if key.name != "" && (r.gvr == infraResource || r.gvr == proxyServerResource) {
		return keepAlways
	}
	return r.keep
}

// keepDeleted keeps an object that was deleted, if the rule requires it, and reports whether it does. The caller must hold
// t.mu.
func (t *table) keepDeleted(key string, deleted objects.Object) bool {
	before := t.items[key]
	switch {
	case before == nil || t.keep == keepNothing:
		return false
	case t.keep == keepAlways, t.keep == keepUnannounced && !announced(before, deleted):
		t.setKept(key)
		return true
	case !announced(before, deleted):
		t.removed[key] = removal{before, t.now()}
	}
	return false
}

// keepUnlisted adds kept objects that a list lacks to items, the objects of that list. The caller must hold t.mu.
func (t *table) keepUnlisted(items map[string]objects.Object) {
	outage := len(items) == 0
	for key, o := range t.items {
		_, kept := t.kept[key]
		switch {
		case items[key] != nil:
			continue
		case kept, t.keep == keepAlways:
		case t.keep == keepNothing, announced(o):
			continue
		case t.keep == keepOutage && !outage:
			continue
		}
		t.setKept(key)
	}
	for key := range t.kept {
		if items[key] != nil {
			t.clearKept(key)
			continue
		}
		items[key] = t.items[key]
	}
}

// keepUnserved keeps all objects of a resource that the API server does not serve, and those that it deleted just before.
func (t *table) keepUnserved() {
	t.mu.Lock()
	since := t.now().Add(-deletionWindow)
	for key, r := range t.removed {
		if t.items[key] == nil && r.at.After(since) {
			t.items[key] = r.object
			t.addToGroup(r.object)
			t.changedKeys[key] = true
		}
	}
	changed := len(t.removed) > 0
	clear(t.removed)
	t.mu.Unlock()
	t.replace(map[string]objects.Object{})
	if changed {
		t.notify(nil, nil)
	}
}

// setKept records that an item has disappeared. The caller must hold t.mu.
func (t *table) setKept(key string) {
	if _, known := t.kept[key]; known {
		return
	}
	t.kept[key] = t.now()
	if len(t.kept) <= maxKeptNames {
		t.log.Warn("an object disappeared from the API server; it stays in use", "object", key, "until",
			cmp.Or(t.untilText(key), "it appears again, or the pod is deleted"))
	}
}

// clearKept records that an item is in the API server again. The caller must hold t.mu.
func (t *table) clearKept(key string) {
	if _, known := t.kept[key]; known {
		delete(t.kept, key)
		t.log.Info("an object that had disappeared is in the API server again", "object", key)
	}
}

func (t *table) untilText(key string) string {
	if t.keep == keepAlways {
		return ""
	}
	return t.kept[key].Add(t.retention).UTC().Format(time.RFC3339)
}

// expireKept removes kept items after the retention time, until ctx is done.
func (t *table) expireKept(ctx context.Context) {
	tick := time.NewTicker(max(t.retention/20, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.expire()
		}
	}
}

func (t *table) expire() {
	t.mu.Lock()
	now := t.now()
	maps.DeleteFunc(t.removed, func(_ string, r removal) bool { return now.Sub(r.at) > deletionWindow })
	expired := 0
	for key, since := range t.kept {
		if now.Sub(since) < t.retention {
			continue
		}
		t.removeFromGroup(t.items[key])
		delete(t.items, key)
		delete(t.kept, key)
		t.changedKeys[key] = true
		expired++
	}
	t.mu.Unlock()
	if expired > 0 {
		t.log.Warn("removed objects that have not appeared again", "objects", expired, "after", t.retention)
		t.notify(nil, nil)
	}
}

// restore sets the items before the first list, from a snapshot file, of whose objects some may have disappeared
// already.
func (t *table) restore(list []objects.Object, kept map[string]time.Time) {
	if t.keep == keepNothing {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range list {
		key := keyOf(o)
		t.items[key] = o
		t.changedKeys[key] = true
		t.addToGroup(o)
		if since, ok := kept[key]; ok {
			t.kept[key] = since
		}
	}
}

// keptState describes the kept items; nil without any.
func (t *table) keptState() *Kept {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.kept) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(t.kept))
	k := &Kept{Objects: len(names), Names: names[:min(len(names), maxKeptNames)]}
	last := time.Time{}
	for _, since := range t.kept {
		if k.Since.IsZero() || since.Before(k.Since) {
			k.Since = since
		}
		if since.After(last) {
			last = since
		}
	}
	if t.keep != keepAlways {
		k.Until = last.Add(t.retention)
	}
	return k
}

// keptObjects returns the kept items, for the snapshot file.
func (s tables) keptObjects() []keptObject {
	var list []keptObject
	for _, t := range s {
		t.mu.Lock()
		for _, key := range slices.Sorted(maps.Keys(t.kept)) {
			list = append(list, keptObject{t.resource.gvr.GroupResource().String(), key, t.kept[key]})
		}
		t.mu.Unlock()
	}
	return list
}

// restore sets the objects before the first lists, from a snapshot file, of whose objects some may have disappeared
// already.
func (s tables) restore(added []model.Change, kept []keptObject) {
	for _, t := range s {
		var own []objects.Object
		for _, c := range added {
			if c.Kind == t.resource.kind && (t.key.namespace == "" || t.key.namespace == c.Namespace) && (t.key.name == "" || t.key.name == c.Name) {
				own = append(own, c.Now)
			}
		}
		since := map[string]time.Time{}
		for _, k := range kept {
			if k.Resource == t.resource.gvr.GroupResource().String() {
				since[k.Key] = k.Since
			}
		}
		t.restore(own, since)
	}
}
