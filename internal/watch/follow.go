package watch

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/internal/objects"
)

// Following configures a Follower. Resource, Decode and Changed are required.
type Following struct {
	Resource schema.GroupVersionResource
	Kind     string
	// Namespace is the namespace to watch; empty for all.
	Namespace string
	// Selector is a label selector; empty for all objects.
	Selector string
	// Decode reduces an object when it arrives, to the type that Get, List and Changed pass on.
	Decode func(*unstructured.Unstructured) objects.Object
	// Changed is called after every change, one call at a time: with the object that was added, changed or
	// deleted, or with nil after a list that differs. Get reports whether the object exists.
	Changed func(objects.Object)
	// Keep is how long objects stay in Get and List if all of them disappear at once: a list is empty, or the API server does
	// not serve the resource; 0 for not at all. Changed is called with nil after they disappeared, or were removed.
	Keep time.Duration
	// Failed, if set, is called with nil when a watch is opened, and with the error of a list or watch request that
	// fails. Errors are then not logged, and without Keep objects are kept if the API server does not serve the resource.
	Failed func(error)
}

// Follower watches one resource of an API server, without a model. It is safe for concurrent use.
type Follower struct{ watcher *watcher }

// NewFollower returns a Follower. It does not connect until Run.
func NewFollower(client dynamic.Interface, f Following, log *slog.Logger) *Follower {
	r := resource{gvr: f.Resource, kind: f.Kind, decode: f.Decode}
	w := newWatcher(client, r, objectKey{namespace: f.Namespace}, func(before, now objects.Object) {
		if now == nil {
			now = before
		}
		f.Changed(now)
	}, log)
	w.selector, w.onAttempt = f.Selector, f.Failed
	if w.table.retention = f.Keep; f.Keep > 0 {
		w.table.keep = keepOutage
	}
	return &Follower{w}
}

// Run watches the resource until ctx is done. It must be called only once.
func (f *Follower) Run(ctx context.Context) { f.watcher.run(ctx) }

// Restore sets the initial objects, and their KeptSince times, as the previous process saved them. It must be called before Run. The first list
// replaces them, except those that Keep keeps.
func (f *Follower) Restore(list []objects.Object, keptSince map[string]time.Time) {
	f.watcher.table.restore(list, keptSince)
}

// KeptSince returns when the objects disappeared that Keep keeps, by "namespace/name".
func (f *Follower) KeptSince() map[string]time.Time {
	f.watcher.table.mu.Lock()
	defer f.watcher.table.mu.Unlock()
	return maps.Clone(f.watcher.table.kept)
}

// Get returns the last known state of an object, or nil and false if the object does not exist.
func (f *Follower) Get(namespace, name string) (objects.Object, bool) {
	o := f.watcher.table.get(namespace + "/" + name)
	return o, o != nil
}

// List returns all objects, in no order, and whether the first list was completed.
func (f *Follower) List() ([]objects.Object, bool) { return f.watcher.table.list() }

// Current reports whether the objects are up to date: all were listed, the API server serves the resource, and the
// watch is connected or was connected less than gap ago. gap allows for the time between two watch requests.
func (f *Follower) Current(gap time.Duration) bool {
	synced := f.watcher.table.isSynced()
	f.watcher.mu.Lock()
	defer f.watcher.mu.Unlock()
	s := f.watcher.state
	return synced && !s.missing && (s.connected || f.watcher.clock.Since(s.lastSeen) < gap)
}

// Status returns the state of the watch.
func (f *Follower) Status() ResourceStatus { return f.watcher.status() }
