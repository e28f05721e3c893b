package views

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/densityops/oooi/internal/audit"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
)

// shared contains the stores of this process. Server blocks and successive loads of the Corefile with the same
// configuration use one store, so a reload does not list the objects again. It is global because CoreDNS offers
// plugins no other state that survives a reload.
var shared = &registry{stores: map[string]*sharedStore{}, leases: map[*lease]bool{}}

// unlisted has the names that clients of VLANs queried and that no record has. Like shared, it survives a reload.
var unlisted = audit.NewLog(time.Now)

// Unlisted returns the names that clients of VLANs queried and that no record has.
func Unlisted() *audit.Log { return unlisted }

type registry struct {
	mu     sync.Mutex
	stores map[string]*sharedStore
	leases map[*lease]bool // true: acquired before the last reload began
	reload bool            // a reload began, and neither failed nor released a lease of the previous Corefile
}

// A sharedStore is a running store with the number of leases on it.
type sharedStore struct {
	*watch.Store
	name  string // of its configuration, for metrics
	users int    // number of leases
	stop  func()
}

// storeKey returns what a store reads: its configuration without the snapshot file, as text.
func storeKey(config watch.Config) (string, error) {
	config.File = ""
	key, err := json.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("encoding the store's configuration: %w", err)
	}
	return string(key), nil
}

// A lease is a server block's reference to a store.
type lease struct {
	key    string
	store  *sharedStore
	cancel func() // cancels the subscription
}

// acquire returns a lease on the store with the given configuration, and starts the store if it is not
// running. The store calls changed after every new snapshot, until the lease is released.
func (r *registry) acquire(config watch.Config, log *slog.Logger, changed func()) (*lease, error) {
	key, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encoding the store's configuration: %w", err)
	}
	l := &lease{key: string(key)}
	r.mu.Lock()
	defer r.mu.Unlock()
	l.store = r.stores[l.key]
	if l.store == nil {
		store, err := watch.Open(config, log)
		if err != nil {
			return nil, err
		}
		l.store = start(store, config.String())
		r.stores[l.key] = l.store
	}
	l.store.users++
	l.cancel = l.store.Subscribe(changed)
	r.leases[l] = false
	return l, nil
}

// start runs a store until its stop is called, which returns when the store has stopped.
func start(store *watch.Store, name string) *sharedStore {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		store.Run(ctx)
	}()
	return &sharedStore{Store: store, name: name, stop: func() { cancel(); <-done }}
}

// release releases a lease, and stops the store with the last one. A second release of the same lease has no
// effect.
func (r *registry) release(l *lease) {
	r.mu.Lock()
	old, held := r.leases[l]
	delete(r.leases, l)
	last := false
	if old {
		r.reload = false // CoreDNS shuts the previous instance down after a successful reload
	}
	if held {
		l.cancel()
		l.store.users--
		last = l.store.users == 0
		if last {
			delete(r.stores, l.key)
		}
	}
	r.mu.Unlock()
	if last {
		l.store.stop()
	}
}

// reloading marks the current leases as belonging to the Corefile in use.
func (r *registry) reloading() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reload = true
	for l := range r.leases {
		r.leases[l] = true
	}
}

// reloadFailed releases the leases of a new Corefile that failed: CoreDNS discards the half-started instance
// without notifying its plugins. If a reload fails in another plugin before reloading is called, all leases
// remain in use.
func (r *registry) reloadFailed() {
	var orphans []*lease
	r.mu.Lock()
	for l, old := range r.leases {
		if r.reload && !old {
			orphans = append(orphans, l)
		}
	}
	r.reload = false
	r.mu.Unlock()
	for _, l := range orphans {
		r.release(l)
	}
}

// running returns the running stores.
func (r *registry) running() []*sharedStore {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*sharedStore, 0, len(r.stores))
	for _, s := range r.stores {
		list = append(list, s)
	}
	return list
}

// Snapshots returns the current snapshots of all running stores.
func Snapshots() []*model.Snapshot {
	var list []*model.Snapshot
	for _, s := range shared.running() {
		if snapshot := s.Snapshot(); snapshot != nil {
			list = append(list, snapshot)
		}
	}
	return list
}

// Statuses returns the states of all running stores.
func Statuses() []watch.Status {
	var list []watch.Status
	for _, s := range shared.running() {
		list = append(list, s.Status())
	}
	return list
}

// loaded reports whether at least one store runs, and every running store has a snapshot. The ready plugin
// keeps one entry for all server blocks, so the result covers all of them. It first asks before the blocks
// have acquired their stores, and stops asking after the first true, so the result without a store is false.
func (r *registry) loaded() bool {
	running := r.running()
	for _, s := range running {
		if s.Snapshot() == nil {
			return false
		}
	}
	return len(running) > 0
}
