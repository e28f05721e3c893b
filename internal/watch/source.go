package watch

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/internal/objects"
)

// source is a source of objects, which are in tables.
type source interface {
	// run watches the source until ctx is done.
	run(context.Context)
	// status returns the state of each watch.
	status() []ResourceStatus
}

// ResourceStatus is the state of one watch, or of the directory of manifests.
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
	// Error is why the last request, or reading the directory, failed; empty if it succeeded.
	Error string `json:"error,omitempty"`
	// Reason is the API server's reason for Error, such as Unauthorized, or Unreachable without an answer.
	Reason string `json:"reason,omitempty"`
	// Kept describes objects that disappeared from the API server and stay in use; nil for none.
	Kept *Kept `json:"kept,omitempty"`
}

// reasonUnreachable is the reason of errors that the API server did not send.
const reasonUnreachable = "Unreachable"

// apiSource watches the resources of an API server.
type apiSource struct{ watchers []*watcher }

// Limits of the requests of one source to an API server. A source lists each resource once and then only
// watches.
const (
	clientQPS   = 50
	clientBurst = 100
)

// watchAPI sets the Store's source and tables to an API server's objects.
func (s *Store) watchAPI(config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = clientQPS, clientBurst
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client for the API server %s: %w", config.Host, err)
	}
	// A separate client with its own limit, so that a thousand Secrets that may not be read do not delay the
	// other watches.
	secrets, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client for the API server %s: %w", config.Host, err)
	}
	api := &apiSource{}
	for _, r := range s.config.resources() {
		for _, key := range r.keysToWatch(s.config.Scope) {
			w := newWatcher(client, r, key, func(before, now objects.Object) { s.changed(r, before, now) }, s.log)
			w.table.retention = cmp.Or(s.config.Retention, DefaultRetention)
			api.watchers, s.tables = append(api.watchers, w), append(s.tables, w.table)
		}
	}
	s.source, s.hosted = api, newHostedServices(secrets, s.markDirty, s.log)
	s.tables = append(s.tables, s.hosted.table)
	return nil
}

// changed passes a change to a resource with minor on to subscribers, and requests a new snapshot for one that is not minor.
// A list is never minor, because the first snapshot waits for all lists.
func (s *Store) changed(r resource, before, now objects.Object) {
	listed := before == nil && now == nil
	if r.minor == nil || listed || !r.minor(before, now) {
		s.markDirty()
	}
	if r.minor == nil {
		return
	}
	if now == nil {
		now = before
	}
	s.notify(now)
}

func (s *apiSource) run(ctx context.Context) {
	var group sync.WaitGroup
	for _, w := range s.watchers {
		group.Go(func() { w.run(ctx) })
	}
	group.Wait()
}

func (s *apiSource) status() []ResourceStatus {
	list := make([]ResourceStatus, len(s.watchers))
	for i, w := range s.watchers {
		list[i] = w.status()
	}
	return list
}
