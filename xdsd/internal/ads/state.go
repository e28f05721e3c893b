package ads

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A NACK is a response that Envoy rejected.
type NACK struct {
	// Type is listener, cluster, route or endpoint.
	Type string `json:"type"`
	// Version is the type's version in the rejected response.
	Version string `json:"version"`
	// Message is Envoy's error message, truncated to 4 KiB.
	Message string `json:"message"`
	// Time is when the NACK was received.
	Time time.Time `json:"time"`
}

// Type is the state of one resource type on one Envoy.
type Type struct {
	// Sent and Acked are the versions that were last sent and last acknowledged: the number of changes of the type since
	// the process started.
	Sent  string `json:"sent,omitempty"`
	Acked string `json:"acked,omitempty"`
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
	// empty if there was none since the Envoy connected.
	Version string `json:"version,omitempty"`
	// Current reports whether the Envoy has acknowledged all resources of the latest Set, and the current endpoints.
	Current bool `json:"current"`
	// Types has an entry for each type that the Envoy has requested: listener, cluster, route or endpoint.
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
	// Resources is the number of served resources by type: listener, cluster, route or endpoint. It is empty before
	// the first Set.
	Resources map[string]int `json:"resources"`
	// Retained has the sorted names of removed clusters that are still served.
	Retained []string `json:"retained,omitempty"`
	// Pushes is the number of versions of listeners, clusters and routes that were served since the process started.
	Pushes uint64 `json:"pushes"`
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

// ProxyState returns the state of one proxy, and whether it exists: whether it has a configuration or a connected
// Envoy.
func (s *Server) ProxyState(name string) (Proxy, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.proxies[name]
	if p == nil {
		return Proxy{}, false
	}
	return p.state(), true
}

// Connected returns when the Envoy with a node.id connected; zero if it is not connected.
func (s *Server) Connected(proxy, id string) (connected time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.proxies[proxy]; p != nil {
		for st := range p.streams {
			if st.id == id && st.connected.After(connected) {
				connected = st.connected
			}
		}
	}
	return connected
}

func (p *proxy) state() Proxy {
	state := Proxy{
		Name: p.name, Resources: p.count(), Pushes: p.pushes,
		Retained: slices.Sorted(maps.Keys(p.retained)), Envoys: []Envoy{},
	}
	if p.config != nil {
		state.Version = p.config.version
	}
	newest := map[string]*stream{}
	for st := range p.streams {
		if old := newest[st.id]; old == nil || old.connected.Before(st.connected) {
			newest[st.id] = st
		}
	}
	for _, st := range newest {
		state.Envoys = append(state.Envoys, st.state())
	}
	slices.SortFunc(state.Envoys, func(a, b Envoy) int { return cmp.Compare(a.ID, b.ID) })
	return state
}

// count returns the number of served resources by kind, or an empty map before the first Set.
func (p *proxy) count() map[string]int {
	n := map[string]int{}
	if p.config != nil {
		for typeURL, t := range p.tables {
			n[kinds[typeURL]] = len(t.resources)
		}
	}
	return n
}

func (st *stream) state() Envoy {
	state := Envoy{
		ID: st.id, Connected: st.connected, Version: st.version, Current: true,
		Types: map[string]Type{}, LastNACK: st.lastNACK,
	}
	for typeURL, kind := range kinds {
		current := st.isCurrent(typeURL)
		state.Current = state.Current && current
		if t := st.types[typeURL]; t != nil {
			state.Types[kind] = Type{Sent: t.sent, Acked: t.acked, Current: current, NACK: t.nack}
		}
	}
	return state
}
