package views

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"

	"github.com/densityops/oooi/internal/watch"
)

// shared are the stores of this process. Server blocks and successive loads of the
// Corefile that follow the same thing use one store, so that a reload lists
// nothing again. It is global because CoreDNS gives plugins no other place that
// outlives a reload.
var shared = &registry{stores: map[string]*sharedStore{}, leases: map[*lease]bool{}}

type registry struct {
	mu     sync.Mutex
	stores map[string]*sharedStore
	leases map[*lease]bool // true: taken before the last reload began
	reload bool            // one has begun and has neither failed nor ended what was before it
}

// sharedStore is a running store and the leases on it.
type sharedStore struct {
	*watch.Store
	name  string // its configuration, in words
	users int
	stop  func()
}

// lease is one server block's hold on a store.
type lease struct {
	key    string
	store  *sharedStore
	cancel func() // ends the subscription
}

// acquire returns a lease on the store of a configuration, which it starts if it
// does not run yet. Until the release, changed is called after every new snapshot.
func (r *registry) acquire(config watch.Config, log *slog.Logger, changed func()) (*lease, error) {
	key, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("naming the store: %w", err)
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

// start runs a store until its stop is called, which returns when all of it has ended.
func start(store *watch.Store, name string) *sharedStore {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		store.Run(ctx)
	}()
	return &sharedStore{Store: store, name: name, stop: func() { cancel(); <-done }}
}

// release gives a lease back; the last one stops the store. Releasing twice is allowed.
func (r *registry) release(l *lease) {
	r.mu.Lock()
	old, held := r.leases[l]
	delete(r.leases, l)
	last := false
	if old {
		r.reload = false // CoreDNS shuts down what was before once the reload has succeeded
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

// reloading notes that what is leased now belongs to the Corefile in use.
func (r *registry) reloading() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reload = true
	for l := range r.leases {
		r.leases[l] = true
	}
}

// reloadFailed releases what the new Corefile leased before it failed: CoreDNS
// drops such a half-started instance without telling its plugins. A reload can
// fail before it is announced to us, in another plugin's hands; then everything
// leased is still in use.
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

// running returns the stores in use.
func (r *registry) running() []*sharedStore {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*sharedStore, 0, len(r.stores))
	for _, s := range r.stores {
		list = append(list, s)
	}
	return list
}

// Ready reports whether stores are in use and each has a snapshot. The ready plugin keeps
// one entry for all server blocks, so it is told about all of them. It asks as soon as it
// has started, which is before the blocks take their stores, and believes the first yes
// for ever: without a store the answer is no.
func Ready() bool {
	running := shared.running()
	for _, s := range running {
		if s.Snapshot() == nil {
			return false
		}
	}
	return len(running) > 0
}
