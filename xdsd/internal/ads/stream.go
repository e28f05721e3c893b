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

// maxName is the maximum length in bytes of names that clients send. Names in Kubernetes have at most 253 bytes.
const maxName = 512

var errDeleted = errors.New("this proxy was deleted")

// service implements the gRPC service of a Server.
type service struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	server *Server
}

// DeltaAggregatedResources implements discoveryv3.AggregatedDiscoveryServiceServer.
func (s *service) DeltaAggregatedResources(grpcStream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx, cancel := context.WithCancelCause(grpcStream.Context())
	defer cancel(nil)
	st := &stream{
		server: s.server, end: cancel, types: map[string]*typeState{},
		warming: map[string]struct{}{}, endpointsNext: make(chan struct{}, 1),
	}
	// Each stream has its own delta server, so that callbacks and watches know their stream.
	byName := deltav3.DeactivateLegacyWildcardForTypes([]string{resource.RouteType, resource.EndpointType})
	err := deltav3.NewServer(ctx, st, st, byName).DeltaStreamHandler(newRequestStream(grpcStream, st.endpointsNext), resource.AnyType)
	if cause := context.Cause(ctx); errors.Is(cause, errDeleted) {
		return status.Error(codes.Unavailable, cause.Error())
	}
	return err
}

// A stream is the connection of one Envoy. It implements the callbacks and the cache of go-control-plane's delta
// server, which calls them from one goroutine.
type stream struct {
	server *Server
	end    context.CancelCauseFunc

	// The first request sets proxy and id with Server.mu held; they do not change afterwards.
	proxy         *proxy
	id            string
	endpointsNext chan struct{} // receives a value when a request for endpoints must be inserted, see requestStream

	// Server.mu guards all fields below.
	connected time.Time
	types     map[string]*typeState // by type URL
	version   string                // of the last config of which all listeners, clusters and routes were acknowledged
	lastNACK  *NACK
	warming   map[string]struct{} // assignments that warming clusters wait for, to be sent again
}

var (
	_ deltav3.Callbacks   = (*stream)(nil)
	_ cache.ConfigWatcher = (*stream)(nil)
)

// OnDeltaStreamOpen implements deltav3.Callbacks. The node is unknown until the first request.
func (st *stream) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }

// OnStreamDeltaRequest implements deltav3.Callbacks. It returns an error, which ends the stream, for an invalid
// request, and otherwise records the ACK or NACK.
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
			return status.Errorf(codes.InvalidArgument, "%s resources must be requested by name", kind(typeURL))
		}
	default:
		return status.Errorf(codes.InvalidArgument, "unsupported resource type %q", typeURL)
	}
	if first {
		st.server.connect(st, r.GetNode())
	}
	if st.server.recordRequest(st, r) || first {
		st.server.notify()
	}
	if st.tooManyPending(typeURL) {
		return status.Errorf(codes.ResourceExhausted, "%d %s responses have not been acknowledged", maxPending, kind(typeURL))
	}
	return nil
}

func (st *stream) tooManyPending(typeURL string) bool {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	return len(st.types[typeURL].pending) >= maxPending
}

// checkNode validates the node of the first request, and returns an error if a later request has another one. Envoy
// may omit the node in later requests.
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
		return status.Errorf(codes.InvalidArgument, "node.id has %d bytes, expected 1 to %d", n, maxName)
	}
	return nil
}

// OnStreamDeltaResponse implements deltav3.Callbacks. It records the response as pending.
func (st *stream) OnStreamDeltaResponse(_ int64, r *discoveryv3.DeltaDiscoveryRequest, response *discoveryv3.DeltaDiscoveryResponse) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	f := newPendingResponse(response, time.Now())
	switch r.GetTypeUrl() {
	case resource.ClusterType:
		if served := st.proxy.served.Load(); served != nil {
			for _, name := range assignmentsOf(served.clusters.resources, f.changes) {
				st.warming[name] = struct{}{}
			}
		}
		if len(st.warming) > 0 && st.types[resource.EndpointType] != nil {
			select {
			case st.endpointsNext <- struct{}{}:
			default:
			}
		}
	case resource.EndpointType:
		for name := range f.changes {
			delete(st.warming, name)
		}
	}
	st.types[r.GetTypeUrl()].send(response.GetNonce(), f)
}

// OnDeltaStreamClosed implements deltav3.Callbacks.
func (st *stream) OnDeltaStreamClosed(int64, *corev3.Node) {
	if st.proxy == nil {
		return
	}
	st.server.disconnect(st)
	st.server.notify()
}

// CreateWatch implements cache.ConfigWatcher for the state-of-the-world protocol, which is not supported.
func (st *stream) CreateWatch(*cache.Request, cache.Subscription, chan cache.Response) (func(), error) {
	return nil, status.Error(codes.Unimplemented, "only delta ADS is served")
}

// CreateDeltaWatch implements cache.ConfigWatcher.
func (st *stream) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, responses chan cache.DeltaResponse) (func(), error) {
	st.server.mu.Lock()
	t := st.types[r.GetTypeUrl()]
	watched := subscription{Subscription: sub, proxy: st.proxy, typeURL: r.GetTypeUrl(), resend: t.resend, rejectedVersion: t.rejectedVersion}
	if r.GetTypeUrl() == resource.EndpointType {
		// The cache sends assignments that this stream was never sent anyway, once Envoy subscribes to them.
		maps.DeleteFunc(st.warming, func(name string, _ struct{}) bool {
			_, sent := sub.ReturnedResources()[name]
			return !sent
		})
		watched.warming = maps.Clone(st.warming)
	}
	st.server.mu.Unlock()
	return st.proxy.caches.CreateDeltaWatch(r, watched, responses)
}

// A subscription is go-control-plane's, except that resources which must be sent again have an empty version, so that
// the caches consider them outdated. It is immutable, because goroutines that change the configuration read the
// subscriptions of open watches.
type subscription struct {
	cache.Subscription
	proxy           *proxy
	typeURL         string
	resend          map[string]struct{}
	rejectedVersion string
	warming         map[string]struct{}
}

// ReturnedResources implements cache.Subscription.
func (s subscription) ReturnedResources() map[string]string {
	known := s.Subscription.ReturnedResources()
	if s.typeURL == resource.EndpointType && s.proxy.updates.Load() == 0 {
		// No endpoints were set yet. The linear cache would tell a reconnected Envoy to remove all assignments that it
		// has. The snapshot cache needs no such exception: it waits for the first snapshot.
		return map[string]string{}
	}
	repeat := len(s.resend) > 0 && s.proxy.typeVersion(s.typeURL) != s.rejectedVersion
	if !repeat && len(s.warming) == 0 {
		return known
	}
	known = maps.Clone(known)
	if repeat {
		for name := range s.resend {
			known[name] = ""
		}
	}
	for name := range s.warming {
		known[name] = ""
	}
	return known
}

// assignmentsOf returns the names of the assignments of all clusters that a response changes. Envoy replaces such a
// cluster, and the new one waits in warming state for its assignment. If Envoy is already subscribed to the assignment,
// it does not request it again. Unless it is sent anyway, Envoy neither uses the cluster nor acknowledges the response
// for initial_fetch_timeout (15 s), and then uses the assignment it had.
func assignmentsOf(clusters map[string]types.Resource, changes map[string]string) []string {
	var names []string
	for cluster := range changes {
		if c, ok := clusters[cluster].(*clusterv3.Cluster); ok && endpointsOf(c) != "" {
			names = append(names, endpointsOf(c))
		}
	}
	return names
}

// A requestStream is a gRPC stream into which empty requests for endpoints are inserted. They make the delta server
// open a new watch, which sends the assignments of warming clusters.
type requestStream struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	received      <-chan receivedRequest
	endpointsNext <-chan struct{}
}

type receivedRequest struct {
	request *discoveryv3.DeltaDiscoveryRequest
	err     error
}

// newRequestStream returns a requestStream. Its goroutine reads from the gRPC stream until that ends.
func newRequestStream(from discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer, endpointsNext <-chan struct{}) *requestStream {
	c := make(chan receivedRequest)
	go func() {
		for {
			r, err := from.Recv()
			select {
			case c <- receivedRequest{r, err}:
			case <-from.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return &requestStream{from, c, endpointsNext}
}

// Recv returns the next request: an inserted one, or the one that Envoy sent.
func (r *requestStream) Recv() (*discoveryv3.DeltaDiscoveryRequest, error) {
	select {
	case <-r.endpointsNext:
		return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType}, nil
	case next := <-r.received:
		return next.request, next.err
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

// connect adds a stream to its proxy, which it creates if necessary.
func (s *Server) connect(st *stream, node *corev3.Node) {
	s.mu.Lock()
	st.proxy, st.id, st.connected = s.getOrCreate(node.GetCluster()), node.GetId(), time.Now()
	st.proxy.streams[st] = struct{}{}
	s.mu.Unlock()
	s.log.Info("envoy connected", "proxy", st.proxy.name, "node", st.id)
}

func (s *Server) disconnect(st *stream) {
	s.mu.Lock()
	p := st.proxy
	delete(p.streams, st)
	if p.config == nil && len(p.streams) == 0 && s.proxies[p.name] == p {
		delete(s.proxies, p.name) // never Set; it existed only because a client named it
	}
	s.mu.Unlock()
	s.log.Info("envoy disconnected", "proxy", p.name, "node", st.id)
}

// recordRequest records the ACK, NACK and unsubscribed names of a request. It reports whether the state of the stream
// changed.
func (s *Server) recordRequest(st *stream, r *discoveryv3.DeltaDiscoveryRequest) bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	typeURL := r.GetTypeUrl()
	t := st.types[typeURL]
	if t == nil {
		t = newTypeState(r.GetInitialResourceVersions())
		st.types[typeURL] = t
	}
	t.unsubscribe(r.GetResourceNamesUnsubscribe())
	f, answers := t.pending[r.GetResponseNonce()]
	if answers {
		delete(t.pending, r.GetResponseNonce())
		if detail := r.GetErrorDetail(); detail != nil {
			t.reject(f, NACK{Type: kind(typeURL), Version: f.version, Message: strings.TrimSpace(detail.GetMessage()), Time: now})
			st.lastNACK = t.nack
			s.recordNACK(st, typeURL, t.nack)
		} else {
			t.ack(f)
			s.latency.WithLabelValues(kind(typeURL)).Observe(now.Sub(f.at).Seconds())
			if t.nack == nil {
				delete(st.proxy.logged, typeURL)
			}
		}
	}
	if c := st.proxy.config; c != nil && typeURL != resource.EndpointType && st.version != c.version && st.configAcknowledged() {
		st.version = c.version
		return true
	}
	return answers
}

// recordNACK counts a NACK, and logs it unless the last one of the same proxy and type had the same message. The caller
// holds mu.
func (s *Server) recordNACK(st *stream, typeURL string, n *NACK) {
	p := st.proxy
	p.nacks[typeURL]++
	if p.logged[typeURL] == n.Message {
		return
	}
	p.logged[typeURL] = n.Message
	s.log.Warn("envoy rejected configuration", "proxy", p.name, "node", st.id, "type", kind(typeURL), "version", n.Version, "err", n.Message)
}

// isCurrent reports whether the Envoy has acknowledged all current resources of a type. The caller holds Server.mu.
func (st *stream) isCurrent(typeURL string) bool {
	c, t := st.proxy.config, st.types[typeURL]
	if c == nil {
		return false
	}
	switch typeURL {
	case resource.ListenerType:
		return t.acknowledged(c.listeners.versions, true)
	case resource.ClusterType: // retained clusters do not matter
		return t != nil && t.acknowledged(c.clusters.versions, false)
	case resource.RouteType:
		return t.acknowledged(c.routes.versions, false)
	}
	want := make(map[string]string, len(c.endpoints))
	for name := range c.endpoints {
		want[name] = st.proxy.assigned[name]
	}
	return len(st.warming) == 0 && t.acknowledged(want, false)
}

func (st *stream) configAcknowledged() bool {
	return st.isCurrent(resource.ListenerType) && st.isCurrent(resource.ClusterType) && st.isCurrent(resource.RouteType)
}
