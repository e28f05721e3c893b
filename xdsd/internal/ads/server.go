package ads

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
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
	// Retry is how long after a rejection listeners are sent again: their port may be free then. It doubles with each
	// rejection, up to a minute. 0 means 1 s.
	Retry time.Duration
}

// A Server holds the configuration of all proxies and serves it. All methods are safe for concurrent use.
type Server struct {
	log     *slog.Logger
	retain  time.Duration
	retry   time.Duration
	latency *prometheus.HistogramVec

	// mu is held while tables are changed and watched. They send to channels that are never full.
	mu          sync.Mutex
	assignments map[string]versioned // all endpoints that were set, by name
	proxies     map[string]*proxy
	subscribers map[chan struct{}]struct{}
}

// New returns a Server without configuration. It returns an error if its metrics are already registered.
func New(options Options) (*Server, error) {
	s := &Server{
		log: options.Log, retain: options.Retain, retry: cmp.Or(options.Retry, time.Second),
		assignments: map[string]versioned{},
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
	s.mu.Lock()
	defer s.mu.Unlock()
	var old *config
	if p := s.proxies[name]; p != nil {
		old = p.config
	}
	next, err := newConfig(old, r)
	endpoints, endpointsErr := collect("endpoints", s.assignments, r.Endpoints, (*endpointv3.ClusterLoadAssignment).GetClusterName)
	if err := errors.Join(err, endpointsErr); err != nil {
		return fmt.Errorf("invalid configuration of proxy %s: %w", name, err)
	}
	s.updateAssignments(endpoints, nil)
	if next == old {
		return nil
	}
	s.log.Info("configuration changed", "proxy", name, "version", next.version, "listeners", len(next.resources[resource.ListenerType]),
		"clusters", len(next.resources[resource.ClusterType]), "route_configurations", len(next.resources[resource.RouteType]))
	p := s.getOrCreate(name)
	p.setConfig(next, time.Now().Add(s.retain))
	if len(p.retained) > 0 {
		time.AfterFunc(s.retain, func() { s.expire(time.Now()) })
	}
	p.push(s.assignments)
	if old == nil {
		close(p.ready)
	}
	s.notify()
	return nil
}

// Delete deletes a proxy and disconnects its Envoys. They keep their configuration. When they reconnect, nothing is
// sent to them until the next Set. If the proxy does not exist, Delete does nothing.
func (s *Server) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.proxies[name]; p != nil {
		for stream := range p.streams {
			stream.end(errDeleted)
		}
	}
	delete(s.proxies, name)
	s.notify()
}

// UpdateEndpoints sets and removes endpoints by the name that EDS clusters reference: their
// eds_cluster_config.service_name, or their own name. A proxy is sent only the endpoints that its clusters reference.
// A current cluster whose endpoints are removed is sent an empty assignment; a retained one keeps its endpoints.
//
// Invalid endpoints are skipped: the previous endpoints of that name stay in use, and the error names the invalid ones.
// The caller must not change the messages afterwards.
func (s *Server) UpdateEndpoints(set []*endpointv3.ClusterLoadAssignment, remove []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	valid, err := collect("endpoints", s.assignments, set, (*endpointv3.ClusterLoadAssignment).GetClusterName)
	if err != nil {
		err = fmt.Errorf("invalid %w", err)
	}
	s.updateAssignments(valid, remove)
	return err
}

// updateAssignments sets and removes assignments, and sends the changes to the proxies whose clusters reference them.
// It modifies set. The caller holds mu.
func (s *Server) updateAssignments(set map[string]versioned, remove []string) {
	maps.DeleteFunc(set, func(name string, a versioned) bool { return s.assignments[name].version == a.version })
	remove = slices.DeleteFunc(slices.Clone(remove), func(name string) bool {
		_, known := s.assignments[name]
		return !known
	})
	if len(set) == 0 && len(remove) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		s.assignments[name] = set[name]
		s.log.Info("endpoints changed", "cluster", name, "version", set[name].version, "endpoints", countEndpoints(set[name].message))
	}
	for _, name := range remove {
		delete(s.assignments, name)
	}
	for _, p := range s.proxies {
		p.updateEndpoints(set, remove)
	}
	s.notify()
}

// expire removes the retained clusters whose time has passed.
func (s *Server) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.proxies {
		before := len(p.retained)
		maps.DeleteFunc(p.retained, func(_ string, until time.Time) bool { return !until.After(now) })
		if len(p.retained) == before {
			continue
		}
		p.push(s.assignments)
		s.notify()
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

// notify notifies the subscribers. The caller holds mu.
func (s *Server) notify() {
	for c := range s.subscribers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// getOrCreate returns the proxy of that name, and creates it if it does not exist. The caller holds mu.
func (s *Server) getOrCreate(name string) *proxy {
	p := s.proxies[name]
	if p == nil {
		p = newProxy(name)
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
