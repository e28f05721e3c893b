package watch

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/internal/objects"
)

// Following says what a Follower follows.
type Following struct {
	Resource schema.GroupVersionResource
	Kind     string
	// Namespace is where; empty for all namespaces.
	Namespace string
	// Selector narrows by labels, in the words of a label selector; empty for all.
	Selector string
	// Decode cuts an object down as it arrives.
	Decode func(*unstructured.Unstructured) objects.Object
	// Changed is told of every change, one at a time, and with nil of a whole list.
	// Whether an object came or went, Get says.
	Changed func(objects.Object)
	// Failed, if set, is told how every attempt to follow went, in place of the log.
	// Nothing is forgotten then when the API server does not serve the resource.
	Failed func(error)
}

// Follower keeps the objects of one resource of an API server, for who needs them and no
// model. Its methods are safe for concurrent use.
type Follower struct{ watcher *watcher }

// NewFollower makes a Follower. Nothing happens until Run.
func NewFollower(client dynamic.Interface, f Following, log *slog.Logger) *Follower {
	r := resource{gvr: f.Resource, kind: f.Kind, decode: f.Decode}
	w := newWatcher(client, r, objectKey{namespace: f.Namespace}, f.Changed, log)
	w.selector, w.failed = f.Selector, f.Failed
	return &Follower{w}
}

// Run follows the resource until the context ends.
func (f *Follower) Run(ctx context.Context) { f.watcher.run(ctx) }

// Get returns an object as it was last seen.
func (f *Follower) Get(namespace, name string) (objects.Object, bool) {
	f.watcher.table.mu.Lock()
	defer f.watcher.table.mu.Unlock()
	o, ok := f.watcher.table.items[namespace+"/"+name]
	return o, ok
}

// List returns all objects, in no order, and whether they have ever been all there were.
func (f *Follower) List() ([]objects.Object, bool) { return f.watcher.table.list() }

// Current reports whether the objects are all there are, now or no longer ago than a gap
// between two watches may take.
func (f *Follower) Current(gap time.Duration) bool {
	f.watcher.table.mu.Lock()
	synced := f.watcher.table.synced
	f.watcher.table.mu.Unlock()
	f.watcher.mu.Lock()
	defer f.watcher.mu.Unlock()
	s := f.watcher.state
	return synced && !s.missing && (s.connected || f.watcher.clock.Since(s.lastSeen) < gap)
}

// Status tells how the watch stands.
func (f *Follower) Status() ResourceStatus { return f.watcher.status() }
