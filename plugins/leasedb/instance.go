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
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/boltstore"
	"github.com/densityops/oooi/plugins/leasedb/internal/leasestore"
	"github.com/densityops/oooi/plugins/leasedb/internal/neighbour"
	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// An instance is a running pool.
type instance struct {
	config    config
	log       *slog.Logger
	store     *instrumentedStore
	pool      *pool.Pool
	directory vm.Directory // nil for none

	snapshotFailure atomic.Pointer[string]

	//nolint:containedctx // CoreDHCP passes handlers no context; close cancels this one
	ctx      context.Context
	cancel   context.CancelFunc
	group    sync.WaitGroup // goroutines of run
	messages sync.WaitGroup // messages being handled
	mu       sync.Mutex     // guards closed
	closed   bool
}

// probe probes addresses. It is nil in tests, whose addresses may be in use on the host's network.
var probe = neighbour.Probe

// open creates an instance. It loads the snapshot file; run reads the store.
func open(c config, directory vm.Directory, log *slog.Logger) (*instance, error) {
	s, err := openStore(c, log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	i := &instance{config: c, log: log, store: &instrumentedStore{Store: s}, directory: directory, ctx: ctx, cancel: cancel}
	config := pool.Config{
		Ranges: c.ranges, CIDR: c.cidr, Protected: c.protected, Lease: c.lease, Quarantine: c.quarantine,
		Store: i.store, Directory: directory, Probe: probe, Ahead: c.probe, Wall: time.Now, Log: log,
	}
	var mark time.Time
	if m, ok := s.(store.Marker); ok {
		config.Marker, mark = i.store, m.Mark()
	}
	config.Clock = newSteadyClock(mark)
	if b, ok := s.(*boltstore.Store); ok {
		config.Suspect = b.Suspect()
	}
	i.pool = pool.New(config)
	i.load()
	return i, nil
}

func openStore(c config, log *slog.Logger) (store.Store, error) {
	if c.store == storeBolt {
		return boltstore.Open(c.file, c.nameWithFamily())
	}
	client, err := kubeconfig.RESTConfig(c.kubeconfig, c.context)
	if err != nil {
		return nil, err //nolint:wrapcheck // RESTConfig adds the context
	}
	return leasestore.Open(leasestore.Config{
		REST: client, Namespace: c.namespace, Pool: c.pool, Lease: c.lease, Log: log,
	})
}

// run starts the pool and the writing of the snapshot file, until close.
func (i *instance) run() {
	i.group.Go(func() { i.pool.Run(i.ctx) })
	if i.config.snapshot != "" {
		i.group.Go(func() { i.maintainSnapshot(i.ctx) })
	}
}

// enter registers a message that is being handled. It returns false after close.
func (i *instance) enter() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false
	}
	i.messages.Add(1)
	return true
}

// close stops the instance once all messages are handled. Each of them has a timeout of its own.
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
		return fmt.Errorf("waiting for pending writes: %w", ctx.Err())
	}
}

const (
	// snapshotInterval is the minimum time between writes of the snapshot file. snapshotRefresh is the maximum time
	// while the store is synced, so that the file's time shows the age of its data.
	snapshotInterval = 2 * time.Second
	snapshotRefresh  = time.Minute
)

// load loads the snapshot file. An unusable file is renamed and ignored: the file is needed only for a start during
// an outage of the API server.
func (i *instance) load() {
	if i.config.snapshot == "" {
		return
	}
	s, err := store.ReadSnapshot(i.config.snapshot, i.config.nameWithFamily())
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		atomicfile.SetAside(i.log, i.config.snapshot, err)
	default:
		i.log.Info("answering from the snapshot file until the store is read", "file", i.config.snapshot, "written", s.Written, "bindings", len(s.Bindings))
		i.pool.Replace(s.Bindings, s.Revision)
	}
}

// maintainSnapshot writes the snapshot file after changes, at least every snapshotRefresh while the store is
// synced, and when ctx is done.
func (i *instance) maintainSnapshot(ctx context.Context) {
	tick := time.NewTicker(snapshotInterval)
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
		if !i.pool.Loaded() || now == changes && (!current || time.Since(written) < snapshotRefresh) {
			continue
		}
		s := store.Snapshot{Pool: i.config.nameWithFamily(), Written: time.Now().UTC(), Bindings: i.pool.Bindings()}
		for _, b := range s.Bindings {
			s.Revision = max(s.Revision, b.Revision)
		}
		err := store.WriteSnapshot(i.config.snapshot, s)
		if err != nil && !failing {
			i.log.Error("cannot write the snapshot file; after a restart during an outage of the API server, leases would be missing or outdated", "err", err)
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
