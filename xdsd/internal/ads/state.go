package ads

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// typeState is the state of one resource type on one Envoy. Server.mu guards it.
type typeState struct {
	// The last request, its subscription and the channel for a response, which is never full; nil before the first request.
	request   *cache.DeltaRequest
	sub       cache.Subscription
	responses chan<- cache.DeltaResponse

	open       bool                       // the request waits for a change: the Envoy was sent everything
	stale      map[string]bool            // names of resources that may have to be sent; if true, even if the Envoy has their version
	pending    map[string]pendingResponse // neither acknowledged nor rejected yet, by nonce
	rejected   map[string]struct{}        // names in rejected responses that were not acknowledged since, see nack
	nack       *NACK                      // the last one; nil if rejected is empty
	rejections int                        // consecutive ones
}

// A pendingResponse has the names of changed and removed resources.
type pendingResponse struct {
	names []string
	sent  time.Time
}

// markStale adds names to stale.
func (t *typeState) markStale(names iter.Seq[string], again bool) {
	for name := range names {
		t.stale[name] = t.stale[name] || again
	}
}

// respond sends the stale resources of a proxy if a request waits for them. Without any, it sends a response only if empty is
// true.
func (t *typeState) respond(p *proxy, empty bool) {
	if !t.open {
		return
	}
	typeURL, known := t.request.GetTypeUrl(), t.sub.ReturnedResources()
	out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, SystemVersionInfo: p.version}
	for name, again := range t.stale {
		r, exists := p.served[typeURL][name]
		version, has := known[name]
		_, subscribed := t.sub.SubscribedResources()[name]
		subscribed = subscribed || t.sub.IsWildcard()
		switch {
		case exists && subscribed && version == r.version && !again:
		case exists && subscribed:
			out.Resources = append(out.Resources, &discoveryv3.Resource{
				Name: name, Version: r.version, Resource: &anypb.Any{TypeUrl: typeURL, Value: r.wire},
			})
		case has, again && subscribed:
			out.RemovedResources = append(out.RemovedResources, name)
		}
	}
	clear(t.stale)
	if len(out.GetResources()) == 0 && len(out.GetRemovedResources()) == 0 && !empty {
		return
	}
	next := maps.Clone(known)
	for _, r := range out.GetResources() {
		next[r.GetName()] = r.GetVersion()
	}
	for _, name := range out.GetRemovedResources() {
		delete(next, name)
	}
	t.open = false
	t.responses <- &cache.DeltaPassthroughResponse{DeltaRequest: t.request, DeltaDiscoveryResponse: out, NextVersionMap: next}
}

// isCurrent reports whether the Envoy has acknowledged all current resources of a type. The caller holds Server.mu.
func (st *stream) isCurrent(typeURL string) bool {
	t, n := st.types[typeURL], len(st.proxy.served[typeURL])
	byName := typeURL == resource.RouteType || typeURL == resource.EndpointType
	switch {
	case st.proxy.version == "":
		return false
	case t.sub == nil:
		return byName && n == 0 // Envoy requests routes and endpoints only when a listener or cluster references them
	}
	return t.open && len(t.pending) == 0 && t.nack == nil && (!byName || len(t.sub.SubscribedResources()) >= n)
}

// A NACK is a response that Envoy rejected.
type NACK struct {
	// Type is listener, cluster, route or endpoint.
	Type string `json:"type"`
	// Message is Envoy's error message, truncated to 4 KiB.
	Message string `json:"message"`
	// Time is when the NACK was received.
	Time time.Time `json:"time"`
}

// Type is the state of one resource type on one Envoy.
type Type struct {
	// Current reports whether the Envoy has acknowledged all current resources of the type.
	Current bool `json:"current"`
	// NACK is the last rejected response, until its resources are acknowledged or unsubscribed; nil for none.
	NACK *NACK `json:"nack,omitempty"`
}

// Envoy is the state of a connected Envoy.
type Envoy struct {
	// ID is its node.id. If two streams have the same ID, only the newer one is reported: the older belongs to a
	// connection that has not timed out yet.
	ID string `json:"id"`
	// Connected is when the Envoy connected.
	Connected time.Time `json:"connected"`
	// Version is the version of the last Set whose listeners, clusters and routes the Envoy has acknowledged. It is
	// empty until the first ACK after the Envoy connected.
	Version string `json:"version,omitempty"`
	// Current reports whether the Envoy has acknowledged all resources of the latest Set, and the current endpoints.
	Current bool `json:"current"`
	// Types has the state of each type: listener, cluster, route and endpoint.
	Types map[string]Type `json:"types"`
	// LastNACK is the last rejected response since the Envoy connected, whether or not a later one was accepted; nil
	// for none.
	LastNACK *NACK `json:"lastNACK,omitempty"`
}

// Proxy is the state of one proxy.
type Proxy struct {
	// Name is the node.cluster of its Envoys, "namespace/name".
	Name string `json:"name"`
	// Version is a hash of the resources of the latest Set, which is the same for equal resources in any process. It is
	// empty before the first Set.
	Version string `json:"version,omitempty"`
	// Retained has the sorted names of removed clusters that are still served.
	Retained []string `json:"retained,omitempty"`
	// Envoys are the connected Envoys, sorted by ID.
	Envoys []Envoy `json:"envoys"`
}

// State returns the state of every proxy that has a configuration or a connected Envoy, sorted by name.
func (s *Server) State() []Proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := make([]Proxy, 0, len(s.proxies))
	for _, name := range slices.Sorted(maps.Keys(s.proxies)) {
		state = append(state, s.proxies[name].state())
	}
	return state
}

// Envoy returns the version of a proxy's latest Set, and the state of the Envoy with a node.id; its ID is empty if it
// is not connected.
func (s *Server) Envoy(proxy, id string) (version string, e Envoy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.proxies[proxy]
	if p == nil {
		return "", Envoy{}
	}
	if st := p.newest()[id]; st != nil {
		e = st.state()
	}
	return p.version, e
}

// newest returns the newest stream of each node.id.
func (p *proxy) newest() map[string]*stream {
	newest := map[string]*stream{}
	for st := range p.streams {
		if old := newest[st.id]; old == nil || old.connected.Before(st.connected) {
			newest[st.id] = st
		}
	}
	return newest
}

func (p *proxy) state() Proxy {
	state := Proxy{Name: p.name, Version: p.version, Retained: slices.Sorted(maps.Keys(p.retained)), Envoys: []Envoy{}}
	for _, st := range p.newest() {
		state.Envoys = append(state.Envoys, st.state())
	}
	slices.SortFunc(state.Envoys, func(a, b Envoy) int { return cmp.Compare(a.ID, b.ID) })
	return state
}

func (st *stream) state() Envoy {
	state := Envoy{ID: st.id, Connected: st.connected, Version: st.version, Current: true, Types: map[string]Type{}, LastNACK: st.lastNACK}
	for typeURL, kind := range kinds {
		current := st.isCurrent(typeURL)
		state.Current = state.Current && current
		state.Types[kind] = Type{Current: current, NACK: st.types[typeURL].nack}
	}
	return state
}
