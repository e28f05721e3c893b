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
	st := &stream{server: s.server, end: cancel, ended: ctx.Done(), types: map[string]*typeState{}, warming: map[string]struct{}{}}
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
	types     map[string]*typeState // by type URL
	version   string                // of the last config of which all listeners, clusters and routes were acknowledged
	lastNACK  *NACK
	warming   map[string]struct{} // assignments that warming clusters wait for, to be sent again if they were sent before
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
	if err := st.checkNode(r.GetNode()); err != nil {
		return err
	}
	switch typeURL := r.GetTypeUrl(); typeURL {
	case resource.ListenerType, resource.ClusterType:
	case resource.RouteType, resource.EndpointType:
		if slices.Contains(r.GetResourceNamesSubscribe(), "*") {
			return status.Errorf(codes.InvalidArgument, "%s resources must be requested by name", kinds[typeURL])
		}
	default:
		return status.Errorf(codes.InvalidArgument, "unsupported resource type %q", typeURL)
	}
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	if st.proxy == nil {
		st.server.connect(st, r.GetNode())
	}
	if st.record(r) {
		st.server.notify()
	}
	return nil
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
	st.types[r.GetTypeUrl()].send(response.GetNonce(), f)
	switch r.GetTypeUrl() {
	case resource.ClusterType:
		st.resendEndpoints(f.changes)
	case resource.EndpointType:
		for name := range f.changes {
			delete(st.warming, name)
		}
	}
}

// resendEndpoints sends the assignments of the given clusters, which a response changes. Envoy replaces such a cluster,
// and the new one waits in warming state for its assignment. If Envoy is already subscribed to the assignment, it does
// not request it again. Unless it is sent anyway, Envoy neither uses the cluster nor acknowledges the response for
// initial_fetch_timeout (15 s), and then uses the assignment it had.
func (st *stream) resendEndpoints(clusters map[string]string) {
	endpoints, again := st.proxy.tables[resource.EndpointType], map[string]versioned{}
	for cluster := range clusters {
		if name := endpointsOf(st.proxy.tables[resource.ClusterType].resources[cluster].message); name != "" {
			st.warming[name] = struct{}{}
			again[name] = endpoints.resources[name]
		}
	}
	if st.types[resource.EndpointType] == nil {
		return // Envoy will request them
	}
	// An open watch does not respond before its table is updated, even if the update changes nothing.
	endpoints.update(again, nil)
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

// CreateDeltaWatch implements cache.ConfigWatcher. It waits for the first Set: from empty caches, a reconnected Envoy
// would be told to remove everything.
func (st *stream) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, responses chan cache.DeltaResponse) (func(), error) {
	select {
	case <-st.proxy.ready:
	case <-st.ended:
		return nil, status.Error(codes.Canceled, "the stream ended before the first configuration")
	}
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	return st.proxy.tables[r.GetTypeUrl()].watch(&watch{st, r, sub, responses}), nil
}

// repeated returns the names of resources that must be sent again although the Envoy has their version. The caller holds
// Server.mu.
func (w *watch) repeated() []string {
	typeURL := w.request.GetTypeUrl()
	var names []string
	t := w.stream.types[typeURL]
	if w.stream.proxy.tables[typeURL].version() != t.rejectedVersion {
		names = slices.Collect(maps.Keys(t.resend))
	}
	if typeURL == resource.EndpointType {
		for name := range w.stream.warming {
			if _, ok := w.sub.ReturnedResources()[name]; ok { // all others are sent as soon as Envoy subscribes to them
				names = append(names, name)
			}
		}
	}
	return names
}

// connect adds a stream to its proxy, which it creates if necessary. The caller holds mu.
func (s *Server) connect(st *stream, node *corev3.Node) {
	st.proxy, st.id, st.connected = s.getOrCreate(node.GetCluster()), node.GetId(), time.Now()
	st.proxy.streams[st] = struct{}{}
	s.log.Info("envoy connected", "proxy", st.proxy.name, "node", st.id)
	s.notify()
}

func (s *Server) disconnect(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := st.proxy
	delete(p.streams, st)
	if p.config == nil && len(p.streams) == 0 && s.proxies[p.name] == p {
		delete(s.proxies, p.name) // never Set; it existed only because a client named it
	}
	s.log.Info("envoy disconnected", "proxy", p.name, "node", st.id)
	s.notify()
}

// record records the ACK, NACK and unsubscribed names of a request. It reports whether the state of the stream changed.
// The caller holds Server.mu.
func (st *stream) record(r *discoveryv3.DeltaDiscoveryRequest) bool {
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
		now := time.Now()
		if detail := r.GetErrorDetail(); detail != nil {
			t.reject(f, NACK{Type: kinds[typeURL], Version: f.version, Message: strings.TrimSpace(detail.GetMessage()), Time: now})
			st.lastNACK = t.nack
			st.server.recordNACK(st, typeURL, t.nack)
			if typeURL == resource.ListenerType {
				st.retry(t)
			}
		} else {
			t.ack(f)
			st.server.latency.WithLabelValues(kinds[typeURL]).Observe(now.Sub(f.at).Seconds())
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

// maxRetry is the maximum of Options.Retry after several rejections.
const maxRetry = time.Minute

// retry sends rejected listeners again after Options.Retry, unless Envoy answers for them before. The caller holds Server.mu.
func (st *stream) retry(t *typeState) {
	rejected := t.nack
	time.AfterFunc(min(maxRetry, st.server.retry<<min(t.rejections-1, 10)), func() {
		st.server.mu.Lock()
		defer st.server.mu.Unlock()
		if _, connected := st.proxy.streams[st]; !connected || t.nack != rejected {
			return
		}
		listeners, again := st.proxy.tables[resource.ListenerType], map[string]versioned{}
		for name := range t.resend {
			if r, ok := listeners.resources[name]; ok {
				again[name] = r
			}
		}
		listeners.update(again, nil) // a new version, with which the stream gets what it rejected
	})
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
	s.log.Warn("envoy rejected configuration", "proxy", p.name, "node", st.id, "type", n.Type, "version", n.Version, "err", n.Message)
}

// isCurrent reports whether the Envoy has acknowledged all current resources of a type. The caller holds Server.mu.
func (st *stream) isCurrent(typeURL string) bool {
	t, want := st.types[typeURL], st.proxy.tables[typeURL].resources
	switch {
	case st.proxy.config == nil:
		return false
	case t == nil:
		// Envoy requests routes and endpoints only when a listener or cluster references them.
		return len(want) == 0 && (typeURL == resource.RouteType || typeURL == resource.EndpointType)
	case typeURL == resource.EndpointType:
		for name := range st.warming {
			if t.known[name] != "" {
				return false
			}
		}
	}
	return t.acknowledged(want, typeURL == resource.ListenerType)
}

func (st *stream) configAcknowledged() bool {
	return st.isCurrent(resource.ListenerType) && st.isCurrent(resource.ClusterType) && st.isCurrent(resource.RouteType)
}
