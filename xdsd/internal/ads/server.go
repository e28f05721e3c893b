package ads

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
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
	// Retry is how long after a rejection the rejected resources are sent again: the port of a listener may be free then.
	// It doubles with each rejection, up to a minute. 0 means 1 s.
	Retry time.Duration
	// AccessLogs receives the access logs that Envoy sends; nil for none.
	AccessLogs alsv3.AccessLogServiceServer
}

// Resources are the configuration of one proxy, in any order. All messages are valid, have unique names, and listeners
// reference exactly Routes. The Server keeps the messages; the caller must not change them after Set.
type Resources struct {
	Listeners []*listenerv3.Listener
	// Clusters are EDS clusters, each with an assignment of the same name.
	Clusters []*clusterv3.Cluster
	Routes   []*routev3.RouteConfiguration
	// Endpoints are the assignments that Set sets with the other resources. Server.UpdateEndpoints updates endpoints alone.
	Endpoints []*endpointv3.ClusterLoadAssignment
}

// A Server holds the configuration of all proxies and serves it. All methods are safe for concurrent use.
type Server struct {
	log     *slog.Logger
	retain  time.Duration
	retry   time.Duration
	metrics metrics
	logs    alsv3.AccessLogServiceServer

	// mu is held while responses are sent to the streams: their channels are never full.
	mu          sync.Mutex
	proxies     map[string]*proxy
	subscribers map[chan struct{}]struct{}
}

// New returns a Server without configuration. It returns an error if its metrics are already registered.
func New(options Options) (*Server, error) {
	s := &Server{
		log: cmp.Or(options.Log, slog.Default()), retain: cmp.Or(options.Retain, 30*time.Second), retry: cmp.Or(options.Retry, time.Second),
		proxies: map[string]*proxy{}, subscribers: map[chan struct{}]struct{}{}, metrics: newMetrics(),
		logs: options.AccessLogs,
	}
	if options.Registerer != nil {
		for _, c := range []prometheus.Collector{s.metrics.streams, s.metrics.nacks, s.metrics.latency} {
			if err := options.Registerer.Register(c); err != nil {
				return nil, fmt.Errorf("registering metrics: %w", err)
			}
		}
	}
	return s, nil
}

// Serve serves ADS on a Unix socket until ctx is done, and returns after all streams and goroutines have ended.
// It closes l. Clients are not authenticated: a process that can open the socket can read the configuration of every
// proxy. It returns an error if l fails.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := grpc.NewServer(
		// Both sides detect a lost peer. Envoy may send pings every 15 s, even without a stream.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 60 * time.Second, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 15 * time.Second, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, &service{server: s})
	if s.logs != nil {
		alsv3.RegisterAccessLogServiceServer(server, s.logs)
	}

	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	// Stop, not GracefulStop: Envoy keeps its stream open for as long as it runs.
	wait.Go(func() { <-ctx.Done(); server.Stop() })

	s.log.Info("serving ADS", "socket", l.Addr().String())
	if err := server.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving ADS on %s: %w", l.Addr(), err)
	}
	return nil
}

// Set replaces the configuration of a proxy. The name is the node.cluster of its Envoys, "namespace/name". Only
// resources that differ from the previous ones are sent; a call with equal resources has no effect.
//
// A cluster that is no longer in r is still served for Options.Retain, with its endpoints. A cluster is empty until
// its endpoints are set.
func (s *Server) Set(name string, r Resources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.getOrCreate(name)
	first := p.version == ""
	if !p.set(r, time.Now().Add(s.retain)) {
		return
	}
	s.log.Info("configuration changed", "proxy", name, "version", p.version,
		"listeners", len(r.Listeners), "clusters", len(r.Clusters), "route_configurations", len(r.Routes))
	if len(p.retained) > 0 {
		time.AfterFunc(s.retain, func() { s.expire(time.Now()) })
	}
	if first {
		close(p.ready)
		s.countStreams(p)
	}
	s.notify()
}

// UpdateEndpoints sets the endpoints of current clusters of a proxy. The caller must not change the messages afterwards.
func (s *Server) UpdateEndpoints(name string, list []*endpointv3.ClusterLoadAssignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.proxies[name]; p != nil && p.setEndpoints(list) {
		s.notify()
	}
}

// Delete deletes a proxy and disconnects its Envoys. They keep their configuration. When they reconnect, nothing is
// sent to them until the next Set. If the proxy does not exist, Delete does nothing.
func (s *Server) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.proxies[name]; p != nil {
		for st := range p.streams {
			st.end(errDeleted)
		}
	}
	delete(s.proxies, name)
	s.metrics.remove(name)
	s.notify()
}

// expire removes retained clusters after their time.
func (s *Server) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.proxies {
		if p.expire(now) {
			s.notify()
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
		p = newProxy(name, s.log)
		s.proxies[name] = p
	}
	return p
}
