package watch

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// source is where objects come from.
type source interface {
	// run follows the source until the context ends, calling changed after every change, and
	// endpoints after one of an EndpointSlice, with nil for any number of them.
	run(ctx context.Context, changed func(), endpoints func(*objects.EndpointSlice))
	// objects returns what is known, and whether that is all there is.
	objects() (*model.Objects, bool)
	// endpointSlices returns those of a Service, "namespace/name", in no order.
	endpointSlices(service string) []*objects.EndpointSlice
	// status tells how each part of the source stands.
	status() []ResourceStatus
	// follow goes after what a snapshot asks for beyond the source itself, while run runs.
	follow(*model.Snapshot)
	// wait returns when all that was followed has ended. Nothing may follow after it.
	wait()
}

// ResourceStatus tells how one watch stands.
type ResourceStatus struct {
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Objects is how many objects are known.
	Objects int `json:"objects"`
	// Synced: the objects known were, at some time, all there were.
	Synced bool `json:"synced"`
	// Connected: changes arrive as they happen.
	Connected bool `json:"connected"`
	// Missing: the API server does not serve the resource.
	Missing bool `json:"missing,omitempty"`
	// LastSeen is when an unconnected watch was last connected; zero for never.
	LastSeen time.Time `json:"lastSeen,omitzero"`
	// Error is why the watch is not connected.
	Error string `json:"error,omitempty"`
}

// apiSource follows an API server.
type apiSource struct {
	watchers []*watcher
	hosted   *hosted
	changed  func()
	// endpoints is told of changed EndpointSlices, nil standing for all.
	endpoints func(*objects.EndpointSlice)
	//nolint:containedctx // hosted clusters are followed for as long as run runs
	ctx context.Context
}

// requests to an API server that one source makes at once, at most. A source lists
// each resource once and then only watches.
const (
	clientQPS   = 50
	clientBurst = 100
)

func newAPISource(config *rest.Config, options model.Options, log *slog.Logger) (*apiSource, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = clientQPS, clientBurst
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for %s: %w", config.Host, err)
	}
	// A client of its own, with a limit of its own: a thousand Secrets that may not be
	// read must not keep the other watches waiting.
	secrets, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for %s: %w", config.Host, err)
	}
	s := &apiSource{hosted: newHosted(secrets, log)}
	for _, r := range resourcesOf(options) {
		for _, key := range r.watched(options.Scope) {
			s.watchers = append(s.watchers, newWatcher(client, r, key, func(o objects.Object) { s.note(r, o) }, log))
		}
	}
	return s, nil
}

func (s *apiSource) run(ctx context.Context, changed func(), endpoints func(*objects.EndpointSlice)) {
	s.ctx, s.changed, s.hosted.changed, s.endpoints = ctx, changed, changed, endpoints
	var group sync.WaitGroup
	for _, w := range s.watchers {
		group.Go(func() { w.run(ctx) })
	}
	group.Wait()
}

// note passes a change on: those of EndpointSlices to who wants them, all others to the
// model, which also waits for the first list of everything.
func (s *apiSource) note(r resource, o objects.Object) {
	slice, ok := o.(*objects.EndpointSlice)
	if ok || r.gvr == objects.EndpointSliceResource {
		s.endpoints(slice)
	}
	if !ok {
		s.changed()
	}
}

func (s *apiSource) objects() (*model.Objects, bool) {
	var all []objects.Object
	complete := true
	for _, w := range s.watchers {
		list, synced := w.table.list()
		all = append(all, list...)
		complete = complete && synced
	}
	return collect(append(all, s.hosted.list()...)), complete
}

func (s *apiSource) endpointSlices(service string) []*objects.EndpointSlice {
	var all []*objects.EndpointSlice
	for _, w := range s.watchers {
		for _, o := range w.table.grouped(service) {
			if slice, ok := o.(*objects.EndpointSlice); ok {
				all = append(all, slice)
			}
		}
	}
	return all
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
