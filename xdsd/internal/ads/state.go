package ads

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// NACK is Envoy's refusal of a response.
type NACK struct {
	// Type is listener, cluster, route or endpoint.
	Type string `json:"type"`
	// Version is the type version that was refused.
	Version string `json:"version"`
	// Message is Envoy's, cut at 4 KiB.
	Message string `json:"message"`
	// Time is when we heard of it.
	Time time.Time `json:"time"`
}

// Type is where one Envoy stands with one type of resource.
type Type struct {
	// Sent and Acked are the type's versions that were last sent and acknowledged. For
	// listeners, clusters and routes they are hashes; for endpoints they count.
	Sent  string `json:"sent,omitempty"`
	Acked string `json:"acked,omitempty"`
	// Current says that everything wanted is acknowledged.
	Current bool `json:"current"`
	// NACK is a refusal that nothing has mended yet.
	NACK *NACK `json:"nack,omitempty"`
}

// Envoy is a connected Envoy.
type Envoy struct {
	// ID is its node.id. Where two streams have one, the younger is shown: the other is
	// the remains of a connection that has not timed out.
	ID string `json:"id"`
	// Connected is since when.
	Connected time.Time `json:"connected"`
	// Version is of the last Set whose listeners, clusters and routes were all
	// acknowledged; empty for none since it connected.
	Version string `json:"version,omitempty"`
	// Current says that it has acknowledged all of the latest Set, and the endpoints
	// as they are now.
	Current bool `json:"current"`
	// Types are by listener, cluster, route and endpoint.
	Types map[string]Type `json:"types"`
	// LastNACK is the last refusal since it connected, mended or not.
	LastNACK *NACK `json:"lastNACK,omitempty"`
}

// Proxy is the state of one proxy.
type Proxy struct {
	// Name is namespace/name.
	Name string `json:"name"`
	// Version is of the latest Set: a hash over it, and so the same for equal sets in
	// any process. Empty before the first Set.
	Version string `json:"version,omitempty"`
	// Resources counts what is served, by listener, cluster, route and endpoint.
	Resources map[string]int `json:"resources"`
	// Retained names removed clusters that are still served, in order.
	Retained []string `json:"retained,omitempty"`
	// Pushes counts the snapshots that were made.
	Pushes uint64 `json:"pushes"`
	// Envoys are those that are connected, by ID.
	Envoys []Envoy `json:"envoys"`
}

// State says where every proxy stands, by name: those that were Set and those that
// have an Envoy connected.
func (s *Server) State() []Proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := make([]Proxy, 0, len(s.proxies))
	for _, name := range slices.Sorted(maps.Keys(s.proxies)) {
		state = append(state, s.proxies[name].state())
	}
	return state
}

// ProxyState is State of one proxy, and whether there is one.
func (s *Server) ProxyState(name string) (Proxy, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.proxies[name]
	if p == nil {
		return Proxy{}, false
	}
	return p.state(), true
}

func (p *proxy) state() Proxy {
	state := Proxy{
		Name: p.name, Resources: p.count(), Pushes: p.pushes,
		Retained: slices.Sorted(maps.Keys(p.retained)), Envoys: []Envoy{},
	}
	if p.config != nil {
		state.Version = p.config.version
	}
	youngest := map[string]*stream{}
	for st := range p.streams {
		if old := youngest[st.id]; old == nil || old.connected.Before(st.connected) {
			youngest[st.id] = st
		}
	}
	for _, st := range youngest {
		state.Envoys = append(state.Envoys, st.state())
	}
	slices.SortFunc(state.Envoys, func(a, b Envoy) int { return cmp.Compare(a.ID, b.ID) })
	return state
}

// count counts what is served.
func (p *proxy) count() map[string]int {
	if p.config == nil {
		return map[string]int{}
	}
	return map[string]int{
		kind(resource.ListenerType): len(p.config.listeners.resources),
		kind(resource.ClusterType):  len(p.config.clusters.resources) + len(p.retained),
		kind(resource.RouteType):    len(p.config.routes.resources),
		kind(resource.EndpointType): len(p.assigned),
	}
}

func (st *stream) state() Envoy {
	state := Envoy{
		ID: st.id, Connected: st.connected, Version: st.version, Current: true,
		Types: map[string]Type{}, LastNACK: st.last,
	}
	for _, typeURL := range []string{resource.ListenerType, resource.ClusterType, resource.RouteType, resource.EndpointType} {
		current := st.holds(typeURL)
		state.Current = state.Current && current
		if t := st.types[typeURL]; t != nil {
			state.Types[kind(typeURL)] = Type{Sent: t.sent, Acked: t.acked, Current: current, NACK: t.nack}
		}
	}
	return state
}
