package ads

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	deltav3 "github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxName bounds names that peers make up and we keep; Kubernetes' are at most 253 bytes.
const maxName = 512

var errDeleted = errors.New("this proxy was deleted")

// service is the ADS of a Server.
type service struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	server *Server
}

// DeltaAggregatedResources is discoveryv3.AggregatedDiscoveryServiceServer's.
func (s *service) DeltaAggregatedResources(grpcStream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx, cancel := context.WithCancelCause(grpcStream.Context())
	defer cancel(nil)
	st := &stream{
		server: s.server, end: cancel, types: map[string]*track{},
		warm: map[string]struct{}{}, ask: make(chan struct{}, 1),
	}
	// A server of its own for each stream: callbacks and watches need not be told
	// which stream they are about.
	byName := deltav3.DeactivateLegacyWildcardForTypes([]string{resource.RouteType, resource.EndpointType})
	err := deltav3.NewServer(ctx, st, st, byName).DeltaStreamHandler(receive(grpcStream, st.ask), resource.AnyType)
	if cause := context.Cause(ctx); errors.Is(cause, errDeleted) {
		return status.Error(codes.Unavailable, cause.Error())
	}
	return err
}

// stream is a connected Envoy. It is the callbacks and the cache of the library's
// server, which calls from one goroutine.
type stream struct {
	server *Server
	end    context.CancelCauseFunc

	// proxy and id are set by the first request, under Server.mu, and stay.
	proxy *proxy
	id    string
	ask   chan struct{} // has a value when endpoints are to be asked for

	// The rest is guarded by Server.mu.
	connected time.Time
	types     map[string]*track
	version   string // of the last config that was acknowledged whole
	last      *NACK
	warm      map[string]struct{} // assignments to send again
}

var (
	_ deltav3.Callbacks   = (*stream)(nil)
	_ cache.ConfigWatcher = (*stream)(nil)
)

// OnDeltaStreamOpen is deltav3.Callbacks'. Nothing is known before the first request.
func (st *stream) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }

// OnStreamDeltaRequest is deltav3.Callbacks': it refuses what must not be served and
// notes what the request tells.
func (st *stream) OnStreamDeltaRequest(_ int64, r *discoveryv3.DeltaDiscoveryRequest) error {
	first := st.proxy == nil
	if err := st.checkNode(r.GetNode()); err != nil {
		return err
	}
	typeURL := r.GetTypeUrl()
	switch typeURL {
	case resource.ListenerType, resource.ClusterType:
	case resource.RouteType, resource.EndpointType:
		if slices.Contains(r.GetResourceNamesSubscribe(), "*") {
			return status.Errorf(codes.InvalidArgument, "%s resources are asked for by name", kind(typeURL))
		}
	default:
		return status.Errorf(codes.InvalidArgument, "no resources of type %q are served", typeURL)
	}
	if first {
		st.server.connect(st, r.GetNode())
	}
	if st.server.note(st, r) || first {
		st.server.notify()
	}
	if st.overdue(typeURL) {
		return status.Errorf(codes.ResourceExhausted, "%d %s responses are unanswered", maxFlight, kind(typeURL))
	}
	return nil
}

func (st *stream) overdue(typeURL string) bool {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	return len(st.types[typeURL].flight) >= maxFlight
}

// checkNode validates the node of the first request, and that later requests have the
// same. Envoy may leave it out of those.
func (st *stream) checkNode(node *corev3.Node) error {
	if st.proxy != nil {
		if node != nil && (node.GetCluster() != st.proxy.name || node.GetId() != st.id) {
			return status.Error(codes.InvalidArgument, "node.cluster and node.id must not change on a stream")
		}
		return nil
	}
	if err := checkName(node.GetCluster()); err != nil {
		return status.Errorf(codes.InvalidArgument, "node.cluster: %v", err)
	}
	if n := len(node.GetId()); n == 0 || n > maxName {
		return status.Errorf(codes.InvalidArgument, "node.id has %d bytes", n)
	}
	return nil
}

// OnStreamDeltaResponse is deltav3.Callbacks'.
func (st *stream) OnStreamDeltaResponse(_ int64, r *discoveryv3.DeltaDiscoveryRequest, response *discoveryv3.DeltaDiscoveryResponse) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	f := newSending(response, time.Now())
	switch r.GetTypeUrl() {
	case resource.ClusterType:
		if served := st.proxy.served.Load(); served != nil {
			for _, name := range assignmentsOf(served.clusters.resources, f.changes) {
				st.warm[name] = struct{}{}
			}
		}
		if len(st.warm) > 0 && st.types[resource.EndpointType] != nil {
			select {
			case st.ask <- struct{}{}:
			default:
			}
		}
	case resource.EndpointType:
		for name := range f.changes {
			delete(st.warm, name)
		}
	}
	st.types[r.GetTypeUrl()].send(response.GetNonce(), f)
}

// OnDeltaStreamClosed is deltav3.Callbacks'.
func (st *stream) OnDeltaStreamClosed(int64, *corev3.Node) {
	if st.proxy == nil {
		return
	}
	st.server.disconnect(st)
	st.server.notify()
}

// CreateWatch is cache.ConfigWatcher's, for state of the world, which is not served.
func (st *stream) CreateWatch(*cache.Request, cache.Subscription, chan cache.Response) (func(), error) {
	return nil, status.Error(codes.Unimplemented, "only delta ADS is served")
}

// CreateDeltaWatch is cache.ConfigWatcher's.
func (st *stream) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, responses chan cache.DeltaResponse) (func(), error) {
	st.server.mu.Lock()
	t := st.types[r.GetTypeUrl()]
	view := subscription{Subscription: sub, proxy: st.proxy, typeURL: r.GetTypeUrl(), again: t.again, refused: t.refused}
	if r.GetTypeUrl() == resource.EndpointType {
		// What was never sent comes anyway, when it is asked for.
		maps.DeleteFunc(st.warm, func(name string, _ struct{}) bool {
			_, sent := sub.ReturnedResources()[name]
			return !sent
		})
		view.warm = maps.Clone(st.warm)
	}
	st.server.mu.Unlock()
	return st.proxy.caches.CreateDeltaWatch(r, view, responses)
}

// subscription is the library's, but for the names that have to be sent again: to
// the caches they have no version. It is immutable, since a parked watch is read by
// whoever changes configuration.
type subscription struct {
	cache.Subscription
	proxy   *proxy
	typeURL string
	again   map[string]struct{}
	refused string
	warm    map[string]struct{}
}

// ReturnedResources is cache.Subscription's.
func (s subscription) ReturnedResources() map[string]string {
	known := s.Subscription.ReturnedResources()
	if s.typeURL == resource.EndpointType && s.proxy.updates.Load() == 0 {
		// Nothing was set. To the linear cache everything would be gone that the Envoy has
		// from before; the snapshot cache waits by itself.
		return map[string]string{}
	}
	repeat := len(s.again) > 0 && s.proxy.typeVersion(s.typeURL) != s.refused
	if !repeat && len(s.warm) == 0 {
		return known
	}
	known = maps.Clone(known)
	if repeat {
		for name := range s.again {
			known[name] = ""
		}
	}
	for name := range s.warm {
		known[name] = ""
	}
	return known
}

// assignmentsOf names the endpoints of clusters that a response changes. Envoy makes
// such a cluster anew and waits for its endpoints, but if it is subscribed to them
// already it does not ask. Unless they come, it neither uses the cluster nor answers
// for initial_fetch_timeout, 15 s, and then falls back on those it had.
func assignmentsOf(clusters map[string]types.Resource, changes map[string]string) []string {
	var names []string
	for cluster := range changes {
		if c, ok := clusters[cluster].(*clusterv3.Cluster); ok && endpointsOf(c) != "" {
			names = append(names, endpointsOf(c))
		}
	}
	return names
}

// requests are what an Envoy sends, and requests for endpoints put in as if it had.
type requests struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	received <-chan received
	warm     <-chan struct{}
}

type received struct {
	request *discoveryv3.DeltaDiscoveryRequest
	err     error
}

// receive begins to read a stream, until it ends.
func receive(from discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer, warm <-chan struct{}) *requests {
	c := make(chan received)
	go func() {
		for {
			r, err := from.Recv()
			select {
			case c <- received{r, err}:
			case <-from.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return &requests{from, c, warm}
}

// Recv is grpc.ServerStream's, typed.
func (r *requests) Recv() (*discoveryv3.DeltaDiscoveryRequest, error) {
	select {
	case <-r.warm:
		return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType}, nil
	case next := <-r.received:
		return next.request, next.err
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

// connect makes a stream one of its proxy's.
func (s *Server) connect(st *stream, node *corev3.Node) {
	s.mu.Lock()
	st.proxy, st.id, st.connected = s.obtain(node.GetCluster()), node.GetId(), time.Now()
	st.proxy.streams[st] = struct{}{}
	s.mu.Unlock()
	s.log.Info("envoy connected", "proxy", st.proxy.name, "node", st.id)
}

func (s *Server) disconnect(st *stream) {
	s.mu.Lock()
	p := st.proxy
	delete(p.streams, st)
	if p.config == nil && len(p.streams) == 0 && s.proxies[p.name] == p {
		delete(s.proxies, p.name) // nobody's but the peer's word
	}
	s.mu.Unlock()
	s.log.Info("envoy disconnected", "proxy", p.name, "node", st.id)
}

// note keeps what a request says about earlier responses, and returns whether it
// said anything.
func (s *Server) note(st *stream, r *discoveryv3.DeltaDiscoveryRequest) bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	typeURL := r.GetTypeUrl()
	t := st.types[typeURL]
	if t == nil {
		t = newTrack(r.GetInitialResourceVersions())
		st.types[typeURL] = t
	}
	t.unsubscribe(r.GetResourceNamesUnsubscribe())
	f, answers := t.flight[r.GetResponseNonce()]
	if answers {
		delete(t.flight, r.GetResponseNonce())
		if detail := r.GetErrorDetail(); detail != nil {
			t.reject(f, NACK{Type: kind(typeURL), Version: f.version, Message: strings.TrimSpace(detail.GetMessage()), Time: now})
			st.last = t.nack
			s.complain(st, typeURL, t.nack)
		} else {
			t.ack(f)
			s.latency.WithLabelValues(kind(typeURL)).Observe(now.Sub(f.at).Seconds())
			if t.nack == nil {
				delete(st.proxy.logged, typeURL)
			}
		}
	}
	if c := st.proxy.config; c != nil && typeURL != resource.EndpointType && st.version != c.version && st.hasConfig() {
		st.version = c.version
		return true
	}
	return answers
}

// complain counts a refusal, and logs it unless the last one of the proxy and type
// said the same. The caller holds mu.
func (s *Server) complain(st *stream, typeURL string, n *NACK) {
	p := st.proxy
	p.nacks[typeURL]++
	if p.logged[typeURL] == n.Message {
		return
	}
	p.logged[typeURL] = n.Message
	s.log.Warn("envoy refused configuration", "proxy", p.name, "node", st.id, "type", kind(typeURL), "version", n.Version, "err", n.Message)
}

// holds says whether the Envoy has acknowledged what the latest Set wants of a type.
// The caller holds Server.mu.
func (st *stream) holds(typeURL string) bool {
	c, t := st.proxy.config, st.types[typeURL]
	if c == nil {
		return false
	}
	switch typeURL {
	case resource.ListenerType:
		return t.holds(c.listeners.versions, true)
	case resource.ClusterType: // those that are retained are neither here nor there
		return t != nil && t.holds(c.clusters.versions, false)
	case resource.RouteType:
		return t.holds(c.routes.versions, false)
	}
	want := make(map[string]string, len(c.endpoints))
	for name := range c.endpoints {
		want[name] = st.proxy.assigned[name]
	}
	return len(st.warm) == 0 && t.holds(want, false)
}

func (st *stream) hasConfig() bool {
	return st.holds(resource.ListenerType) && st.holds(resource.ClusterType) && st.holds(resource.RouteType)
}
