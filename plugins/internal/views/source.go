package views

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/plugins/internal/nametree"
)

// Maximum time to wait for the first snapshots. During a reload, the old server keeps serving. At the first start,
// the server does not listen before the wait ends, so firstStartWait is short: after SERVFAIL, clients try another
// server immediately, but without an answer they wait for a timeout.
const (
	reloadWait     = 5 * time.Second
	firstStartWait = 500 * time.Millisecond
)

// A Source maintains the table of one server block.
type Source struct {
	config Config
	ttls   nametree.TTLs
	log    *slog.Logger

	table   atomic.Pointer[Table]
	changed chan struct{} // signals a change; only wait receives from it

	mu     sync.Mutex
	lease  *lease
	serial uint32
	// records come from the Corefile's records file, and unfollow ends the goroutine that reads it; nil for none.
	records  *model.RecordSet
	unfollow func()
}

// NewSource returns the source of a server block. Start, or the functions that hook registers, start it.
func NewSource(config Config, log *slog.Logger) *Source {
	return &Source{config: config, ttls: nametree.TTLs{}, log: log, changed: make(chan struct{}, 1)}
}

// Serve connects a plugin's handler to the source. It must be called before the source starts.
func (s *Source) Serve(h *Handler) {
	s.ttls[h.Part] = h.TTL
	if h.Config.Source.Apps != nil {
		s.config.Source.Apps = h.Config.Source.Apps
	}
	h.Source = s
}

// hook registers functions with c that start and stop the source with the server. Errors of the start contain name, the
// name of the plugin.
func (s *Source) hook(c *caddy.Controller, name string) {
	load, ok := c.Get(startupKey{}).(*startup)
	if !ok {
		load = &startup{}
		c.Set(startupKey{}, load)
	}
	load.sources = append(load.sources, s)
	c.OnFirstStartup(func() error {
		load.first = true
		return nil
	})
	c.OnStartup(func() error {
		if err := load.start(s); err != nil {
			return plugin.Error(name, err)
		}
		return nil
	})
	c.OnShutdown(s.Stop)
	c.OnRestart(func() error {
		shared.reloading()
		return nil
	})
	c.OnRestartFailed(func() error {
		shared.reloadFailed()
		return nil
	})
}

// A startup is the start of one load of a Corefile. All of its sources start before the first one waits, so
// that without an API server many server blocks wait no longer than one.
type startup struct {
	sources  []*Source
	first    bool      // first start: no other server is running
	deadline time.Time // end of the wait; zero before the start
}

// startupKey is the key of the startup in the storage of the CoreDNS instance.
type startupKey struct{}

// start starts all sources on its first call, and waits for the first snapshot of s.
func (u *startup) start(s *Source) error {
	if u.deadline.IsZero() {
		timeout := reloadWait
		if u.first {
			timeout = firstStartWait
		}
		u.deadline = time.Now().Add(timeout)
		if err := u.shareFiles(); err != nil {
			return err
		}
		for _, s := range u.sources {
			if err := s.begin(); err != nil {
				return err
			}
		}
	}
	s.wait(u.deadline)
	return nil
}

// shareFiles sets every source's snapshot file to its store's, which may be configured in another server block. It
// returns an error if two blocks configure different files for one store.
func (u *startup) shareFiles() error {
	files, keys := map[string]string{}, make([]string, len(u.sources))
	for i, s := range u.sources {
		key, err := storeKey(s.config.Source)
		if err != nil {
			return err
		}
		keys[i] = key
		file := s.config.Source.File
		if known := files[key]; file != "" && known != "" && file != known {
			return fmt.Errorf("snapshot %s: another server block reads the same objects and has snapshot %s; set the same file in both, because they share one "+
				"store", file, known)
		}
		files[key] = cmp.Or(files[key], file)
	}
	for i, s := range u.sources {
		s.config.Source.File = files[keys[i]]
	}
	return nil
}

// Start starts the source without a Corefile, for tests of the plugins. It waits up to 5 s for the first snapshot; it
// is not an error if none exists by then. It returns an error if the store cannot be opened.
func (s *Source) Start() error {
	return (&startup{sources: []*Source{s}}).start(s)
}

// begin acquires the store, without waiting for a snapshot.
func (s *Source) begin() error {
	l, err := shared.acquire(s.config.Source, s.log, func() {
		s.update()
		select {
		case s.changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	list, version, err := s.config.readRecords()
	if err != nil {
		shared.release(l)
		return err
	}
	if s.config.Records != "" {
		s.setRecords(list)
	}
	s.mu.Lock()
	s.lease = l
	if s.config.Records != "" {
		ctx, cancel := context.WithCancel(context.Background())
		s.unfollow = cancel
		go s.followRecords(ctx, version)
	}
	s.mu.Unlock()
	s.update()
	return nil
}

// wait waits for the first snapshot until the deadline.
func (s *Source) wait(deadline time.Time) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for s.Table() == nil {
		select {
		case <-s.changed:
		case <-timer.C:
			s.log.Warn("hosted clusters have not been read yet; answering SERVFAIL until they are")
			return
		}
	}
}

// Stop releases the store. The last table stays in use. Stop always returns nil, and a second call has no
// effect.
func (s *Source) Stop() error {
	s.mu.Lock()
	l := s.lease
	s.lease = nil
	if s.unfollow != nil {
		s.unfollow()
	}
	s.mu.Unlock()
	if l != nil {
		shared.release(l)
	}
	return nil
}

// update builds the table of the store's current snapshot.
func (s *Source) update() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return
	}
	snapshot := s.lease.store.Snapshot()
	if snapshot == nil {
		return
	}
	// The serial is the time of the last change. It increases even if two changes occur in one second (RFC 1982).
	s.serial = max(s.serial+1, uint32(time.Now().Unix())) //nolint:gosec // wraps in 2106, as serials do
	previous := s.table.Load()
	table := s.config.newTable(snapshot, s.records, s.ttls, s.serial, previous)
	if len(table.conflicts) > 0 && (previous == nil || !slices.Equal(previous.conflicts, table.conflicts)) {
		s.log.Error("some records are not served", "file", s.config.Records, "err", errors.New(strings.Join(table.conflicts, "; ")))
	}
	s.table.Store(table)
}

// Table returns the current table, or nil before the first snapshot.
func (s *Source) Table() *Table { return s.table.Load() }
