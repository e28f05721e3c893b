package ads

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/prometheus/client_golang/prometheus"
)

// Options are what a Server may be told; the zero value will do.
type Options struct {
	// Log is where to; nil for slog's default.
	Log *slog.Logger
	// Registerer gets the metrics; nil for none.
	Registerer prometheus.Registerer
	// Retain is for how long a removed cluster is still served, so that the
	// listeners that named it are gone before it is; 0 for 30 s.
	Retain time.Duration
}

// Server holds the configuration of proxies and serves it. All methods are safe for
// concurrent use.
type Server struct {
	log     *slog.Logger
	retain  time.Duration
	latency *prometheus.HistogramVec

	// update is held by whoever changes configuration, and taken before mu. Caches
	// are changed under update alone, since they call back.
	update      sync.Mutex
	assignments map[string]assignment // all endpoints that we were given; update's

	mu          sync.Mutex
	proxies     map[string]*proxy
	endpoints   int // in all assignments
	subscribers map[chan struct{}]struct{}
}

// New makes a Server that serves nothing yet. It fails if its metrics are
// registered already.
func New(options Options) (*Server, error) {
	s := &Server{
		log: options.Log, retain: options.Retain,
		assignments: map[string]assignment{},
		proxies:     map[string]*proxy{},
		subscribers: map[chan struct{}]struct{}{},
		latency:     newLatency(),
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.retain == 0 {
		s.retain = 30 * time.Second
	}
	if options.Registerer != nil {
		for _, c := range []prometheus.Collector{s.latency, collector{s}} {
			if err := options.Registerer.Register(c); err != nil {
				return nil, fmt.Errorf("registering metrics: %w", err)
			}
		}
	}
	return s, nil
}

// Set makes resources the configuration of a proxy, named as its Envoys name their
// node.cluster: "namespace/name". Resources that are no different from those before
// are not sent, and an equal set does nothing at all.
//
// A set with an invalid resource is refused whole, and the one before stays: the
// error names every resource at fault. What is packed into an Any is not looked at;
// it has to be validated before it is packed.
//
// A cluster that is no longer in the set is served for another Options.Retain.
// Endpoints come by UpdateEndpoints: hand over new ones before Set, and remove old
// ones after it. A cluster whose endpoints nobody handed over has none.
func (s *Server) Set(name string, r Resources) error {
	if err := checkName(name); err != nil {
		return err
	}
	s.update.Lock()
	defer s.update.Unlock()

	var old *config
	if p := s.proxy(name); p != nil {
		old = p.config
	}
	next, err := newConfig(old, r)
	if err != nil {
		return fmt.Errorf("refused the configuration of %s: %w", name, err)
	}
	if next == old {
		return nil
	}
	s.mu.Lock()
	p := s.obtain(name)
	p.retire(next, time.Now().Add(s.retain))
	p.config = next
	s.mu.Unlock()
	s.log.Info("configuration changed", "proxy", name, "version", next.version,
		"listeners", len(next.listeners.resources), "clusters", len(next.clusters.resources), "route_configurations", len(next.routes.resources))
	return s.push(context.Background(), p)
}

// push brings the caches of a proxy up to its config: what is new before what needs
// it, what is gone after. The context must not end: it would only bound a send, for
// which there is always room, and what is not sent is lost.
func (s *Server) push(ctx context.Context, p *proxy) error {
	names := p.names()
	added, gone := map[string]assignment{}, []string(nil)
	for name := range names {
		if _, ok := p.assigned[name]; ok {
			continue
		}
		a, ok := s.assignments[name]
		if !ok {
			var err error
			if a, err = none(name); err != nil {
				return err
			}
		}
		added[name] = a
	}
	for name := range p.assigned {
		if !names[name] {
			gone = append(gone, name)
		}
	}
	next := p.snapshot()
	s.mu.Lock()
	for name, a := range added {
		p.assigned[name] = a.version
	}
	for _, name := range gone {
		delete(p.assigned, name)
	}
	p.pushes++
	s.mu.Unlock()

	defer s.notify()
	if err := p.update(added, nil); err != nil {
		return err
	}
	p.served.Store(next)
	if err := p.snapshots.SetSnapshot(ctx, "", next); err != nil {
		return fmt.Errorf("serving %s: %w", p.name, err)
	}
	return p.update(nil, gone)
}

// Delete forgets a proxy. Its Envoys are disconnected and keep what they have; when
// they come back they are sent nothing until there is a Set.
func (s *Server) Delete(name string) {
	s.update.Lock()
	defer s.update.Unlock()
	s.mu.Lock()
	p := s.proxies[name]
	delete(s.proxies, name)
	if p != nil {
		for stream := range p.streams {
			stream.end(errDeleted)
		}
	}
	s.mu.Unlock()
	s.notify()
}

// SetEndpoints is UpdateEndpoints for one name.
func (s *Server) SetEndpoints(name string, m *endpointv3.ClusterLoadAssignment) error {
	return s.UpdateEndpoints(map[string]*endpointv3.ClusterLoadAssignment{name: m}, nil)
}

// UpdateEndpoints sets and removes endpoints by the name that EDS clusters ask for:
// their eds_cluster_config.service_name, or else their own. A proxy has those that
// its clusters name, and no others. A cluster of the current set whose endpoints are
// removed has none from then on; one that is merely retained keeps what it had.
//
// Invalid endpoints are refused and the old ones stay; the error names them. The
// others are served. The messages must not be changed afterwards.
func (s *Server) UpdateEndpoints(set map[string]*endpointv3.ClusterLoadAssignment, remove []string) error {
	s.update.Lock()
	defer s.update.Unlock()

	var errs []error
	changed := map[string]assignment{}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		a, err := newAssignment(name, set[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("refused: %w", err))
			continue
		}
		if old, ok := s.assignments[name]; !ok || old.version != a.version {
			changed[name] = a
			s.log.Info("endpoints changed", "cluster", name, "version", a.version, "endpoints", a.count)
		}
	}
	remove = slices.DeleteFunc(slices.Clone(remove), func(name string) bool {
		_, known := s.assignments[name]
		return !known
	})
	if len(changed) == 0 && len(remove) == 0 {
		return errors.Join(errs...)
	}
	more := 0
	for name, a := range changed {
		more += a.count - s.assignments[name].count
		s.assignments[name] = a
	}
	for _, name := range remove {
		more -= s.assignments[name].count
		delete(s.assignments, name)
	}

	s.mu.Lock()
	s.endpoints += more
	updates := map[*proxy]map[string]assignment{}
	for _, p := range s.proxies {
		u, err := p.affected(changed, remove)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for name, a := range u {
			p.assigned[name] = a.version
		}
		updates[p] = u
	}
	s.mu.Unlock()

	for p, u := range updates {
		errs = append(errs, p.update(u, nil))
	}
	s.notify()
	return errors.Join(errs...)
}

// expire drops the retained clusters whose time is over and says when to come back;
// zero for never.
func (s *Server) expire(ctx context.Context, now time.Time) time.Time {
	s.update.Lock()
	defer s.update.Unlock()
	var next time.Time
	var expired []*proxy
	s.mu.Lock()
	for _, p := range s.proxies {
		before := len(p.retained)
		for name, c := range p.retained {
			switch {
			case !c.until.After(now):
				delete(p.retained, name)
			case next.IsZero() || c.until.Before(next):
				next = c.until
			}
		}
		if len(p.retained) != before {
			expired = append(expired, p)
		}
	}
	s.mu.Unlock()
	for _, p := range expired {
		if err := s.push(ctx, p); err != nil {
			s.log.Error("cannot drop removed clusters", "proxy", p.name, "err", err)
		}
	}
	return next
}

// expireUntil calls expire when it is due, until the context ends.
func (s *Server) expireUntil(ctx context.Context) {
	changed, cancel := s.Subscribe()
	defer cancel()
	for {
		var due <-chan time.Time
		if next := s.expire(context.WithoutCancel(ctx), time.Now()); !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-due:
		}
	}
}

// Subscribe returns a channel that has a value when State may say something new, and
// a function that ends the subscription. Changes are not counted: one value stands
// for all since the last was taken.
func (s *Server) Subscribe() (changed <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers[c] = struct{}{}
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers, c)
	}
}

func (s *Server) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.subscribers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// proxy is one that exists, or nil.
func (s *Server) proxy(name string) *proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proxies[name]
}

// obtain finds or makes a proxy. The caller holds mu.
func (s *Server) obtain(name string) *proxy {
	p := s.proxies[name]
	if p == nil {
		p = newProxy(name, s.log)
		s.proxies[name] = p
	}
	return p
}

func checkName(name string) error {
	namespace, rest, ok := strings.Cut(name, "/")
	if !ok || namespace == "" || rest == "" || strings.Contains(rest, "/") || len(name) > maxName {
		return fmt.Errorf("a proxy is called namespace/name, not %q", name)
	}
	return nil
}
