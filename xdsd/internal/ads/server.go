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

// Options configure a Server. All fields are optional.
type Options struct {
	// Log is the logger; nil means slog.Default().
	Log *slog.Logger
	// Registerer registers the metrics; nil means that they are not registered.
	Registerer prometheus.Registerer
	// Retain is how long a removed cluster is still served, so that Envoy removes the listeners that use it first.
	// 0 means 30 s.
	Retain time.Duration
}

// A Server holds the configuration of all proxies and serves it. All methods are safe for concurrent use.
type Server struct {
	log     *slog.Logger
	retain  time.Duration
	latency *prometheus.HistogramVec

	// update serializes changes of the configuration and is locked before mu. Caches are changed with update held and
	// mu released, because they call functions that lock mu.
	update      sync.Mutex
	assignments map[string]assignment // all endpoints that were set, by name; guarded by update

	mu          sync.Mutex
	proxies     map[string]*proxy
	endpoints   int // number of endpoints in all assignments
	subscribers map[chan struct{}]struct{}
}

// New returns a Server without configuration. It returns an error if its metrics are already registered.
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

// Set replaces the configuration of a proxy. The name is the node.cluster of its Envoys, "namespace/name". Only
// resources that differ from the previous ones are sent; a call with equal resources has no effect.
//
// If a resource is invalid, Set keeps the previous configuration and all endpoints, and returns an error that names
// every invalid resource. It does not validate messages inside an Any; the caller must do so before packing them.
//
// A cluster that is no longer in r is still served for Options.Retain. Call UpdateEndpoints to remove its endpoints after
// Set. A cluster whose endpoints were never set has none.
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
	endpoints, endpointsErr := s.changedAssignments(r.Endpoints)
	if err := errors.Join(err, endpointsErr); err != nil {
		return fmt.Errorf("invalid configuration of proxy %s: %w", name, err)
	}
	if err := s.updateAssignments(endpoints, nil); err != nil {
		return err
	}
	if next == old {
		return nil
	}
	s.mu.Lock()
	p := s.getOrCreate(name)
	p.retainRemoved(next, time.Now().Add(s.retain))
	p.config = next
	s.mu.Unlock()
	s.log.Info("configuration changed", "proxy", name, "version", next.version,
		"listeners", len(next.listeners.resources), "clusters", len(next.clusters.resources), "route_configurations", len(next.routes.resources))
	return s.push(context.Background(), p)
}

// push updates the caches of a proxy to its config. It adds assignments before the clusters that reference them, and
// removes them after. The context must not end: SetSnapshot would drop the response that it is about to send to a
// watch, and such sends never block.
func (s *Server) push(ctx context.Context, p *proxy) error {
	names := p.assignmentNames()
	added, removed := map[string]assignment{}, []string(nil)
	for name := range names {
		if _, ok := p.assigned[name]; ok {
			continue
		}
		a, ok := s.assignments[name]
		if !ok {
			var err error
			if a, err = emptyAssignment(name); err != nil {
				return err
			}
		}
		added[name] = a
	}
	for name := range p.assigned {
		if !names[name] {
			removed = append(removed, name)
		}
	}
	next := p.snapshot()
	s.mu.Lock()
	for name, a := range added {
		p.assigned[name] = a.version
	}
	for _, name := range removed {
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
		return fmt.Errorf("updating the listeners, clusters and routes of proxy %s: %w", p.name, err)
	}
	return p.update(nil, removed)
}

// Delete deletes a proxy and disconnects its Envoys. They keep their configuration. When they reconnect, nothing is
// sent to them until the next Set. If the proxy does not exist, Delete does nothing.
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

// UpdateEndpoints sets and removes endpoints by the name that EDS clusters reference: their
// eds_cluster_config.service_name, or their own name. A proxy is sent only the endpoints that its clusters reference.
// A current cluster whose endpoints are removed is sent an empty assignment; a retained one keeps its endpoints.
//
// Invalid endpoints are skipped: the previous endpoints of that name stay in use, and the error names the invalid ones.
// The caller must not change the messages afterwards.
func (s *Server) UpdateEndpoints(set []*endpointv3.ClusterLoadAssignment, remove []string) error {
	s.update.Lock()
	defer s.update.Unlock()
	changed, err := s.changedAssignments(set)
	if err != nil {
		err = fmt.Errorf("invalid %w", err)
	}
	return errors.Join(err, s.updateAssignments(changed, remove))
}

// changedAssignments returns the assignments that differ from the current ones, by name, and an error that names the
// invalid ones.
func (s *Server) changedAssignments(set []*endpointv3.ClusterLoadAssignment) (map[string]assignment, error) {
	var errs []error
	changed := map[string]assignment{}
	for _, m := range set {
		a, err := newAssignment(m)
		if err != nil {
			errs = append(errs, err)
		} else if s.assignments[m.GetClusterName()].version != a.version {
			changed[m.GetClusterName()] = a
		}
	}
	return changed, errors.Join(errs...)
}

// updateAssignments sets and removes assignments, and sends the changes to the proxies whose clusters reference them.
// The caller holds update.
func (s *Server) updateAssignments(changed map[string]assignment, remove []string) error {
	remove = slices.DeleteFunc(slices.Clone(remove), func(name string) bool {
		_, known := s.assignments[name]
		return !known
	})
	if len(changed) == 0 && len(remove) == 0 {
		return nil
	}
	delta := 0
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		a := changed[name]
		delta += a.count - s.assignments[name].count
		s.assignments[name] = a
		s.log.Info("endpoints changed", "cluster", name, "version", a.version, "endpoints", a.count)
	}
	for _, name := range remove {
		delta -= s.assignments[name].count
		delete(s.assignments, name)
	}

	s.mu.Lock()
	s.endpoints += delta
	var errs []error
	updates := map[*proxy]map[string]assignment{}
	for _, p := range s.proxies {
		u, err := p.affectedAssignments(changed, remove)
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

// expire removes the retained clusters whose time has passed. It returns when the next one expires, or the zero time
// if no cluster is retained.
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
			s.log.Error("cannot remove clusters whose retention has ended", "proxy", p.name, "err", err)
		}
	}
	return next
}

// runExpiry calls expire whenever a retained cluster expires, until the context ends.
func (s *Server) runExpiry(ctx context.Context) {
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

// Subscribe returns a channel that receives a value when State may have changed, and a function that cancels the
// subscription. One value stands for all changes since the last receive.
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

// proxy returns the proxy of that name, or nil.
func (s *Server) proxy(name string) *proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proxies[name]
}

// getOrCreate returns the proxy of that name, and creates it if it does not exist. The caller holds mu.
func (s *Server) getOrCreate(name string) *proxy {
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
		return fmt.Errorf("invalid proxy name %q: expected namespace/name", name)
	}
	return nil
}
