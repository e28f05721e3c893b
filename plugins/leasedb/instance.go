package leasedb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/densityops/oooi/internal/atomicfile"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/boltstore"
	"github.com/densityops/oooi/plugins/leasedb/internal/leasestore"
	"github.com/densityops/oooi/plugins/leasedb/internal/neighbour"
	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// instance is one pool that serves.
type instance struct {
	config    config
	log       *slog.Logger
	store     *measured
	pool      *pool.Pool
	directory vm.Directory // nil for none

	snapshotFailure atomic.Pointer[string]

	//nolint:containedctx // CoreDHCP gives handlers none; it ends with close
	ctx      context.Context
	cancel   context.CancelFunc
	group    sync.WaitGroup // of run
	messages sync.WaitGroup // being worked on
	mu       sync.Mutex     // guards closed
	closed   bool
}

// look finds out who uses addresses; nil in tests, whose addresses may be those of the host's network.
var look = neighbour.Look

// open makes an instance. Its store's content is not read before run, save from the snapshot file.
func open(c config, directory vm.Directory, log *slog.Logger) (*instance, error) {
	s, err := openStore(c, log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	i := &instance{config: c, log: log, store: &measured{Store: s}, directory: directory, ctx: ctx, cancel: cancel}
	of := pool.Config{
		Ranges: c.ranges, CIDR: c.cidr, Own: c.own, Lease: c.lease, Quarantine: c.quarantine,
		Store: i.store, Directory: directory, Neighbours: look, Ahead: c.probe, Wall: time.Now, Log: log,
	}
	var seen time.Time
	if m, ok := s.(store.Marker); ok {
		of.Marker, seen = i.store, m.Mark()
	}
	of.Clock = newSteadyClock(seen)
	if b, ok := s.(*boltstore.Store); ok {
		of.Suspect = b.Suspect()
	}
	i.pool = pool.New(of)
	i.load()
	return i, nil
}

func openStore(c config, log *slog.Logger) (store.Store, error) {
	if c.store == storeBolt {
		return boltstore.Open(c.file, c.named())
	}
	client, err := watch.RESTConfig(watch.Config{Kubeconfig: c.kubeconfig, Context: c.context})
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	return leasestore.Open(leasestore.Config{
		REST: client, Namespace: c.namespace, Pool: c.pool, Lease: c.lease, Log: log,
	})
}

// run follows the store until close.
func (i *instance) run() {
	i.group.Go(func() { i.pool.Run(i.ctx) })
	if i.config.snapshot != "" {
		i.group.Go(func() { i.keep(i.ctx) })
	}
}

// enter counts a message in; false after close.
func (i *instance) enter() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false
	}
	i.messages.Add(1)
	return true
}

// close ends the instance, after the messages being worked on: each has a deadline of its own.
func (i *instance) close(ctx context.Context) error {
	i.mu.Lock()
	i.closed = true
	i.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		i.messages.Wait()
		i.cancel()
		i.group.Wait()
		done <- i.store.Close()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("waiting for its writes: %w", ctx.Err())
	}
}

const (
	// keepEvery is how often the snapshot file is written, at most, while bindings change; keepFresh, how
	// often without any change, so that its date tells how old it is.
	keepEvery = 2 * time.Second
	keepFresh = time.Minute
)

// load reads the snapshot file. One that cannot be used costs the bridge over an outage, nothing else.
func (i *instance) load() {
	if i.config.snapshot == "" {
		return
	}
	s, err := store.ReadSnapshot(i.config.snapshot, i.config.named())
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		atomicfile.SetAside(i.log, i.config.snapshot, err)
	default:
		i.log.Info("answering from the snapshot file until the store is read", "file", i.config.snapshot, "written", s.Written, "bindings", len(s.Bindings))
		i.pool.Replace(s.Bindings, s.Revision)
	}
}

// keep writes the snapshot file after changes, every while without any, and at the end.
func (i *instance) keep(ctx context.Context) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	var written time.Time
	var changes uint64
	failing := false
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		now, current := i.pool.Changes(), i.store.Synced()
		if !i.pool.Loaded() || now == changes && (!current || time.Since(written) < keepFresh) {
			continue
		}
		s := store.Snapshot{Pool: i.config.named(), Written: time.Now().UTC(), Bindings: i.pool.Bindings()}
		for _, b := range s.Bindings {
			s.Revision = max(s.Revision, b.Revision)
		}
		err := store.WriteSnapshot(i.config.snapshot, s)
		if err != nil && !failing {
			i.log.Error("writing the snapshot file failed; a restart without the API server would have no data", "err", err)
		}
		if failing = err != nil; failing {
			text := err.Error()
			i.snapshotFailure.Store(&text)
			continue
		}
		i.snapshotFailure.Store(nil)
		written, changes = time.Now(), now
	}
}
