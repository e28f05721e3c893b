package leasedb

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/snapshotfile"
	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/boltstore"
	"github.com/densityops/oooi/plugins/leasedb/internal/leasestore"
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
	file      *snapshotfile.File

	//nolint:containedctx // CoreDHCP passes handlers no context; close cancels this one
	ctx      context.Context
	cancel   context.CancelFunc
	group    sync.WaitGroup // goroutines of run
	messages sync.WaitGroup // messages being handled
	mu       sync.Mutex     // guards closed
	closed   bool
}

// probe probes addresses. It is nil in tests, whose addresses may be in use on the host's network.
var probe = neighbours.Probe

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
	i.file = i.snapshotFile()
	i.load()
	return i, nil
}

func openStore(c config, log *slog.Logger) (store.Store, error) {
	if c.store == storeBolt {
		return boltstore.Open(c.file, c.nameWithFamily())
	}
	client, err := kubeconfig.RESTConfig(c.kubeconfig, c.context)
	if err != nil {
		return nil, err
	}
	return leasestore.Open(leasestore.Config{
		REST: client, Namespace: c.namespace, Pool: c.pool, Lease: c.lease, Log: log,
	})
}

// run starts the pool and the writing of the snapshot file, until close.
func (i *instance) run() {
	i.group.Go(func() { i.pool.Run(i.ctx) })
	i.group.Go(func() { i.file.Run(i.ctx) })
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

// close stops the instance once all messages are handled. Each has a separate timeout.
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

// snapshotInterval is the minimum time between two writes of the snapshot file.
const snapshotInterval = 2 * time.Second

// snapshotFile returns the snapshot file of an instance.
func (i *instance) snapshotFile() *snapshotfile.File {
	return &snapshotfile.File{
		Path: i.config.snapshot, Objects: "leases", Interval: snapshotInterval, Log: i.log,
		Changes: func() (n uint64, ok bool) { return i.pool.Changes(), i.pool.Loaded() },
		Current: i.store.Synced,
		Content: i.snapshot,
	}
}

// load loads the snapshot file.
func (i *instance) load() {
	s := &store.Snapshot{}
	if i.file.Load(s, func() error { return s.Check(i.config.nameWithFamily()) }) {
		i.log.Info("answering from the snapshot file until the store is read", "file", i.file.Path, "written", s.Written, "bindings", len(s.Bindings))
		i.pool.Replace(s.Bindings, s.Revision)
	}
}

// snapshot returns the content of the snapshot file.
func (i *instance) snapshot() snapshotfile.Content {
	s := &store.Snapshot{
		Header: snapshotfile.Header{Written: time.Now().UTC()}, Pool: i.config.nameWithFamily(), Bindings: i.pool.Bindings(),
	}
	for _, b := range s.Bindings {
		s.Revision = max(s.Revision, b.Revision)
	}
	return s
}
