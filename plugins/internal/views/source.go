package views

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin"

	"github.com/densityops/oooi/plugins/internal/nametree"
)

// startupWait is for how long a server waits for its first snapshots during a reload: the
// old one answers meanwhile. A server that starts does not listen before the wait is over,
// so firstWait is short: a client asks another server on SERVFAIL, and waits on silence.
const (
	startupWait = 5 * time.Second
	firstWait   = 500 * time.Millisecond
)

// Source is what one server block answers from: the table of its views, kept true
// while the block runs.
type Source struct {
	config Config
	ttls   nametree.TTLs
	log    *slog.Logger
	// requests count what is answered from here.
	requests []*Requests

	table   atomic.Pointer[Table]
	changed chan struct{} // has something after a change; read by wait alone

	mu     sync.Mutex
	lease  *lease
	serial uint32
}

// NewSource returns the source of a server block. Nothing runs before Hook or Start.
func NewSource(config Config, log *slog.Logger) *Source {
	return &Source{config: config, ttls: nametree.TTLs{}, log: log, changed: make(chan struct{}, 1)}
}

// Serve makes a plugin's block answer from the source. Call it before the source starts.
func (s *Source) Serve(b *Block) {
	s.ttls[b.Part] = b.TTL
	if b.Requests != nil {
		s.requests = append(s.requests, b.Requests)
	}
	if b.Config.Source.Apps != nil {
		s.config.Source.Apps = b.Config.Source.Apps
	}
	b.Tables = s
}

// Hook starts and stops the source with the server of a Corefile, in the name of a
// plugin.
func (s *Source) Hook(c *caddy.Controller, name string) {
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

// startup is the start of one load of a Corefile. All its sources begin before the
// first of them waits: while no API server answers, many server blocks are to wait
// no longer than one before they answer anything.
type startup struct {
	sources  []*Source
	first    bool      // no server answers meanwhile
	deadline time.Time // of the wait; zero before the start
}

// startupKey is the key under which a Corefile's instance keeps its startup.
type startupKey struct{}

// start makes all sources begin, the first time it is called, and waits for the first
// snapshot of one of them.
func (u *startup) start(s *Source) error {
	if u.deadline.IsZero() {
		patience := startupWait
		if u.first {
			patience = firstWait
		}
		u.deadline = time.Now().Add(patience)
		for _, s := range u.sources {
			if err := s.begin(); err != nil {
				return err
			}
		}
	}
	s.wait(u.deadline)
	return nil
}

// Start starts the source outside of a Corefile, in tests of the plugins. It waits for
// the first snapshot, for startupWait at most; none by then is not an error.
func (s *Source) Start() error {
	return (&startup{sources: []*Source{s}}).start(s)
}

// begin acquires the store.
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
	s.mu.Lock()
	s.lease = l
	s.mu.Unlock()
	s.update()
	return nil
}

// wait returns when there is a snapshot, or at the deadline.
func (s *Source) wait(deadline time.Time) {
	over := time.NewTimer(time.Until(deadline))
	defer over.Stop()
	for s.Table() == nil {
		select {
		case <-s.changed:
			s.update()
		case <-over.C:
			s.log.Warn("not synced yet: answering SERVFAIL until it is")
			return
		}
	}
}

// Stop ends the source.
func (s *Source) Stop() error {
	s.mu.Lock()
	l := s.lease
	s.lease = nil
	s.mu.Unlock()
	if l != nil {
		shared.release(l)
	}
	return nil
}

// update makes the table of the store's present snapshot.
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
	// A serial is the time of the last change, and greater than the one before even
	// twice in a second (RFC 1982 arithmetic).
	s.serial = max(s.serial+1, uint32(time.Now().Unix())) //nolint:gosec // wraps in 2106, as serials do
	before := s.table.Load()
	table := s.config.newTable(snapshot, s.ttls, s.serial, before)
	s.table.Store(table)
	if before == nil {
		return
	}
	gone := table.gone(before)
	for _, requests := range s.requests {
		requests.drop(gone)
	}
}

// Table returns what the block answers from, nil when nothing is known yet.
func (s *Source) Table() *Table { return s.table.Load() }
