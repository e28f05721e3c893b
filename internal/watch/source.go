package watch

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// source is a source of objects.
type source interface {
	// run watches the source until the context ends. It calls changed when the snapshot may change, and updated
	// after a change of an object that the Store returns: with that object, or with nil if any number of them may
	// have changed.
	run(ctx context.Context, changed func(), updated func(objects.Object))
	// objects returns the objects, and whether every resource was listed.
	objects() (*model.Objects, bool)
	// changes returns the changes of objects since its last call, at first all objects, and whether every resource was
	// listed. Before that it returns none.
	changes() ([]model.Change, bool)
	// endpointSlices returns the EndpointSlices of a Service, "namespace/name", in no order.
	endpointSlices(service string) []*objects.EndpointSlice
	// object returns an Infra or a ProxyServer with its status, or nil if it does not exist.
	object(resource schema.GroupVersionResource, name string) objects.Object
	// restore sets the objects before the first list, of which some may have disappeared from the API server already.
	restore(added []model.Change, kept []keptObject)
	// keptObjects returns the objects that disappeared from the API server and stay in use.
	keptObjects() []keptObject
	// status returns the state of each watch.
	status() []ResourceStatus
	// follow starts and stops the additional watches that a snapshot requires. run must have been called; it
	// ends them.
	follow(*model.Snapshot)
	// wait returns when everything that follow started has ended. follow must not be called after it.
	wait()
}

// ResourceStatus is the state of one watch, or of the folder of manifests.
type ResourceStatus struct {
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Objects is the number of objects that were read.
	Objects int `json:"objects"`
	// Synced reports whether the first list was completed.
	Synced bool `json:"synced"`
	// Connected reports whether the watch is open.
	Connected bool `json:"connected"`
	// Missing reports whether the API server does not serve the resource.
	Missing bool `json:"missing,omitempty"`
	// LastSeen is when the watch was opened, if it is connected, otherwise when it was last connected or the
	// resource was last found missing; zero for never.
	LastSeen time.Time `json:"lastSeen,omitzero"`
	// Error is why the last request, or reading the folder, failed; empty if it succeeded.
	Error string `json:"error,omitempty"`
	// Reason is the API server's reason for Error, such as Unauthorized, or Unreachable without an answer.
	Reason string `json:"reason,omitempty"`
	// Kept describes objects that disappeared from the API server and stay in use; nil for none.
	Kept *Kept `json:"kept,omitempty"`
}

// reasonUnreachable is the reason of errors that the API server did not send.
const reasonUnreachable = "Unreachable"

// apiSource watches the resources of an API server.
type apiSource struct {
	tables

	watchers []*watcher
	hosted   *hostedServices
	changed  func()
	// updated is called with changed objects of resources with minor, with nil after a list.
	updated func(objects.Object)
	//nolint:containedctx // the context of run, for watches in hosted clusters
	ctx context.Context
}

// Limits of the requests of one source to an API server. A source lists each resource once and then only
// watches.
const (
	clientQPS   = 50
	clientBurst = 100
)

func newAPISource(config *rest.Config, watched Config, log *slog.Logger) (*apiSource, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = clientQPS, clientBurst
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the API server %s: %w", config.Host, err)
	}
	// A separate client with its own limit, so that a thousand Secrets that may not be read do not delay the
	// other watches.
	secrets, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the API server %s: %w", config.Host, err)
	}
	s := &apiSource{hosted: newHostedServices(secrets, log)}
	for _, r := range watched.resources() {
		for _, key := range r.keysToWatch(watched.Scope) {
			w := newWatcher(client, r, key, func(before, now objects.Object) { s.notify(r, before, now) }, log)
			w.table.retention = cmp.Or(watched.Retention, DefaultRetention)
			s.watchers, s.tables = append(s.watchers, w), append(s.tables, w.table)
		}
	}
	return s, nil
}

func (s *apiSource) run(ctx context.Context, changed func(), updated func(objects.Object)) {
	s.ctx, s.changed, s.hosted.changed, s.updated = ctx, changed, changed, updated
	var group sync.WaitGroup
	for _, w := range s.watchers {
		group.Go(func() { w.run(ctx) })
	}
	group.Wait()
}

// notify forwards a change of a resource with minor to updated, and one that is not minor to changed. A list is never
// minor, because the first snapshot waits for all lists.
func (s *apiSource) notify(r resource, before, now objects.Object) {
	listed := before == nil && now == nil
	if r.minor == nil || listed || !r.minor(before, now) {
		s.changed()
	}
	if r.minor == nil {
		return
	}
	if now == nil {
		now = before
	}
	s.updated(now)
}

func (s *apiSource) objects() (*model.Objects, bool) {
	all, complete := s.tables.objects()
	all.Add(s.hosted.list()...)
	return all, complete
}

func (s *apiSource) changes() ([]model.Change, bool) {
	all, complete := s.tables.changes()
	if complete {
		all = append(all, s.hosted.takeChanged()...)
	}
	return all, complete
}

func (s *apiSource) follow(snapshot *model.Snapshot) { s.hosted.follow(s.ctx, snapshot) }

func (s *apiSource) wait() { s.hosted.wait() }

func (s *apiSource) status() []ResourceStatus {
	list := make([]ResourceStatus, len(s.watchers))
	for i, w := range s.watchers {
		list[i] = w.status()
	}
	return slices.Clip(list)
}
