package ads

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	deltav3 "github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
	st := &stream{server: s.server, end: cancel, ended: ctx.Done(), types: map[string]*typeState{}}
	for typeURL := range kinds {
		st.types[typeURL] = &typeState{pending: map[string]pendingResponse{}, stale: map[string]bool{}, rejected: map[string]struct{}{}}
	}
	// Each stream has its own delta server, so that callbacks and watches know their stream.
	byName := deltav3.DeactivateLegacyWildcardForTypes([]string{resource.RouteType, resource.EndpointType})
	err := deltav3.NewServer(ctx, st, st, byName).DeltaStreamHandler(grpcStream, resource.AnyType)
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
	ended  <-chan struct{}

	// The first request sets proxy and id with Server.mu held; they do not change afterwards.
	proxy *proxy
	id    string

	// Server.mu guards all fields below.
	connected time.Time
	types     map[string]*typeState // by type URL, all of them
	version   string                // of the last Set of which all listeners, clusters and routes were acknowledged
	lastNACK  *NACK
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
	t := st.types[r.GetTypeUrl()]
	if t == nil {
		return status.Errorf(codes.InvalidArgument, "unsupported resource type %q", r.GetTypeUrl())
	}
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	if st.proxy == nil {
		if r.GetNode().GetCluster() == "" || r.GetNode().GetId() == "" {
			return status.Error(codes.InvalidArgument, "node.cluster and node.id are required")
		}
		st.server.connect(st, r.GetNode())
	}
	for _, name := range r.GetResourceNamesUnsubscribe() {
		delete(t.rejected, name)
	}
	response, answers := t.pending[r.GetResponseNonce()]
	delete(t.pending, r.GetResponseNonce())
	switch {
	case !answers:
	case r.GetErrorDetail() != nil:
		st.reject(r.GetTypeUrl(), response.names, r.GetErrorDetail().GetMessage())
	default:
		st.server.metrics.latency.WithLabelValues(kinds[r.GetTypeUrl()]).Observe(time.Since(response.sent).Seconds())
		t.rejections = 0
		for _, name := range response.names {
			delete(t.rejected, name)
		}
	}
	if t.nack != nil && len(t.rejected) == 0 {
		t.nack = nil
		delete(st.proxy.logged, r.GetTypeUrl())
	}
	return nil
}

// OnStreamDeltaResponse implements deltav3.Callbacks. It records the response as pending.
func (st *stream) OnStreamDeltaResponse(_ int64, r *discoveryv3.DeltaDiscoveryRequest, response *discoveryv3.DeltaDiscoveryResponse) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	names := slices.Clone(response.GetRemovedResources())
	for _, m := range response.GetResources() {
		names = append(names, m.GetName())
	}
	st.types[r.GetTypeUrl()].pending[response.GetNonce()] = pendingResponse{names, time.Now()}
	if r.GetTypeUrl() == resource.ClusterType {
		// Envoy replaces a changed cluster, and the new one waits in warming state for its assignment. If Envoy is already
		// subscribed to the assignment, it does not request it again. Unless it is sent anyway, Envoy neither uses the cluster
		// nor acknowledges the response for initial_fetch_timeout (15 s), and then uses the assignment it had.
		endpoints := st.types[resource.EndpointType]
		endpoints.markStale(slices.Values(names), true)
		endpoints.respond(st.proxy, false)
	}
}

// OnDeltaStreamClosed implements deltav3.Callbacks.
func (st *stream) OnDeltaStreamClosed(int64, *corev3.Node) {
	if st.proxy != nil {
		st.server.disconnect(st)
	}
}

// CreateWatch implements cache.ConfigWatcher for the state-of-the-world protocol, which is not supported.
func (st *stream) CreateWatch(*cache.Request, cache.Subscription, chan cache.Response) (func(), error) {
	return nil, status.Error(codes.Unimplemented, "only delta ADS is served")
}

// CreateDeltaWatch implements cache.ConfigWatcher. It waits for the first Set: with empty caches, a reconnected Envoy
// would remove everything.
func (st *stream) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, responses chan cache.DeltaResponse) (func(), error) {
	select {
	case <-st.proxy.ready:
	case <-st.ended:
		return nil, status.Error(codes.Canceled, "the stream ended before the first configuration")
	}
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	t := st.types[r.GetTypeUrl()]
	t.request, t.sub, t.responses, t.open = r, sub, responses, true
	first := r.GetResponseNonce() == ""
	if first || len(r.GetResourceNamesSubscribe()) > 0 || len(r.GetResourceNamesUnsubscribe()) > 0 {
		t.markStale(maps.Keys(sub.ReturnedResources()), false)
		t.markStale(maps.Keys(sub.SubscribedResources()), false)
		if sub.IsWildcard() {
			t.markStale(maps.Keys(st.proxy.served[r.GetTypeUrl()]), false)
		}
	}
	t.respond(st.proxy, first && sub.IsWildcard()) // Envoy waits for a first response
	st.proxy.acknowledge()
	st.server.notify()
	return func() {
		st.server.mu.Lock()
		defer st.server.mu.Unlock()
		t.open = false
	}, nil
}

// connect adds a stream to its proxy, which it creates if necessary. The caller holds mu.
func (s *Server) connect(st *stream, node *corev3.Node) {
	st.proxy, st.id, st.connected = s.getOrCreate(node.GetCluster()), node.GetId(), time.Now()
	st.proxy.streams[st] = struct{}{}
	s.countStreams(st.proxy)
	s.log.Info("envoy connected", "proxy", st.proxy.name, "node", st.id)
	s.notify()
}

func (s *Server) disconnect(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := st.proxy
	delete(p.streams, st)
	s.countStreams(p)
	if p.version == "" && len(p.streams) == 0 && s.proxies[p.name] == p {
		delete(s.proxies, p.name) // never Set; it existed only because a client named it
	}
	s.log.Info("envoy disconnected", "proxy", p.name, "node", st.id)
	s.notify()
}

const (
	// maxDetail is the maximum number of bytes kept of a NACK's message.
	maxDetail = 4096
	// maxRetry is the maximum of Options.Retry after several rejections.
	maxRetry = time.Minute
)

// reject records a NACK of a response with the named resources, and sends them again with the next change to the type, or
// after Options.Retry: at least one of them is invalid, and Envoy may or may not have applied the others. It logs the NACK
// unless the last one of the same proxy and type had the same message. The caller holds Server.mu.
func (st *stream) reject(typeURL string, names []string, detail string) {
	detail = strings.TrimSpace(detail)
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "")
	}
	p, t, nack := st.proxy, st.types[typeURL], &NACK{Type: kinds[typeURL], Message: detail, Time: time.Now()}
	for _, name := range names {
		t.rejected[name] = struct{}{}
	}
	if len(t.stale) > 0 { // a change since the response
		t.markStale(maps.Keys(t.rejected), true)
	}
	t.nack, st.lastNACK = nack, nack
	if st.server.proxies[p.name] == p {
		st.server.metrics.nacks.WithLabelValues(p.name, nack.Type).Inc()
	}
	if p.logged[typeURL] != detail {
		p.logged[typeURL] = detail
		st.server.log.Warn("envoy rejected configuration", "proxy", p.name, "node", st.id, "type", nack.Type, "err", detail)
	}
	time.AfterFunc(min(maxRetry, st.server.retry<<min(t.rejections, 10)), func() {
		st.server.mu.Lock()
		defer st.server.mu.Unlock()
		if _, connected := p.streams[st]; connected && t.nack == nack {
			t.markStale(maps.Keys(t.rejected), true)
			t.respond(p, false)
		}
	})
	t.rejections++
}
