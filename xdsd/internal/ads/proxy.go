package ads

import (
	"maps"
	"slices"
	"strconv"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// proxy holds the resources of all Envoys with the same node.cluster. Server.mu guards it.
type proxy struct {
	name  string
	ready chan struct{} // closed after the first Set

	config   *config              // of the latest Set; nil before the first
	retained map[string]time.Time // clusters that config no longer has, and until when they are served
	tables   map[string]*table    // by type URL
	pushes   uint64

	streams map[*stream]struct{}
	nacks   map[string]uint64 // by type URL
	logged  map[string]string // the NACK message that was last logged, by type URL
}

func newProxy(name string) *proxy {
	p := &proxy{
		name:     name,
		ready:    make(chan struct{}),
		retained: map[string]time.Time{},
		tables:   map[string]*table{},
		streams:  map[*stream]struct{}{},
		nacks:    map[string]uint64{},
		logged:   map[string]string{},
	}
	for typeURL := range kinds {
		p.tables[typeURL] = &table{typeURL: typeURL, streams: p.streams, resources: map[string]versioned{}, watches: map[*stream]*watch{}}
	}
	return p
}

// A table has the resources of one type that a proxy serves.
type table struct {
	typeURL   string
	streams   map[*stream]struct{} // of the proxy
	resources map[string]versioned // by name
	updates   uint64
	watches   map[*stream]*watch // that wait for a change
}

// version returns the version of the table, which responses carry as system_version_info.
func (t *table) version() string { return strconv.FormatUint(t.updates, 10) }

// replace updates the table so that it has the resources in want.
func (t *table) replace(want map[string]versioned) {
	set, remove := map[string]versioned{}, []string(nil)
	for name, r := range want {
		if t.resources[name].version != r.version {
			set[name] = r
		}
	}
	for name := range t.resources {
		if _, ok := want[name]; !ok {
			remove = append(remove, name)
		}
	}
	t.update(set, remove)
}

// update sets and removes resources, and sends the changes to the streams that watch them.
func (t *table) update(set map[string]versioned, remove []string) {
	if len(set) == 0 && len(remove) == 0 {
		return
	}
	maps.Copy(t.resources, set)
	for _, name := range remove {
		delete(t.resources, name)
	}
	t.updates++
	changed := slices.AppendSeq(slices.Clone(remove), maps.Keys(set))
	for st := range t.streams {
		w, state := t.watches[st], st.types[t.typeURL]
		switch {
		case w != nil:
			if response := t.response(w, slices.Concat(changed, w.repeated()), false); response != nil {
				delete(t.watches, st)
				w.responses <- response
			}
		case state != nil:
			for _, name := range changed {
				state.missed[name] = struct{}{}
			}
		}
	}
}

// A watch waits for the first change of the resources that a stream has subscribed to.
type watch struct {
	stream    *stream
	request   *cache.DeltaRequest
	sub       cache.Subscription
	responses chan<- cache.DeltaResponse // never full
}

// watch responds immediately if the Envoy lacks a change. Otherwise the next update does, unless it is canceled.
func (t *table) watch(w *watch) (cancel func()) {
	state, names := w.stream.types[t.typeURL], w.repeated()
	names = slices.AppendSeq(names, maps.Keys(state.missed))
	clear(state.missed)
	if r := w.request; r.GetResponseNonce() == "" || len(r.GetResourceNamesSubscribe()) > 0 || len(r.GetResourceNamesUnsubscribe()) > 0 {
		names = slices.AppendSeq(names, maps.Keys(w.sub.ReturnedResources()))
		names = slices.AppendSeq(names, maps.Keys(w.sub.SubscribedResources()))
		if w.sub.IsWildcard() {
			names = slices.AppendSeq(names, maps.Keys(t.resources))
		}
	}
	// Envoy waits for a first response.
	if response := t.response(w, names, w.sub.IsWildcard() && w.request.GetResponseNonce() == ""); response != nil {
		w.responses <- response
		return nil
	}
	t.watches[w.stream] = w
	return func() {
		w.stream.server.mu.Lock()
		defer w.stream.server.mu.Unlock()
		if t.watches[w.stream] == w {
			delete(t.watches, w.stream)
		}
	}
}

// response returns a response with those of the named resources that the Envoy does not have, or nil if there is none
// and empty is false. Names may be repeated.
func (t *table) response(w *watch, names []string, empty bool) cache.DeltaResponse {
	known, subscribed, again := w.sub.ReturnedResources(), w.sub.SubscribedResources(), map[string]bool{}
	for _, name := range w.repeated() {
		again[name] = true
	}
	changed, removed := map[string]versioned{}, map[string]bool{}
	for _, name := range names {
		r, exists := t.resources[name]
		version, has := known[name]
		if _, ok := subscribed[name]; !exists || !ok && !w.sub.IsWildcard() {
			if has || again[name] {
				removed[name] = true
			}
		} else if !has || version != r.version || again[name] {
			changed[name] = r
		}
	}
	if len(changed) == 0 && len(removed) == 0 && !empty {
		return nil
	}
	next := maps.Clone(known)
	out := &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: w.request.GetTypeUrl(), SystemVersionInfo: t.version(), RemovedResources: slices.Collect(maps.Keys(removed)),
	}
	for name, r := range changed {
		out.Resources = append(out.Resources, &discoveryv3.Resource{
			Name: name, Version: r.version, Resource: &anypb.Any{TypeUrl: w.request.GetTypeUrl(), Value: r.wire},
		})
		next[name] = r.version
	}
	for name := range removed {
		delete(next, name)
	}
	return &cache.DeltaPassthroughResponse{DeltaRequest: w.request, DeltaDiscoveryResponse: out, NextVersionMap: next}
}

// setConfig sets the configuration, and retains the clusters that it no longer has until the given time.
func (p *proxy) setConfig(next *config, until time.Time) {
	clusters := next.resources[resource.ClusterType]
	if p.config != nil {
		for name := range p.config.resources[resource.ClusterType] {
			if _, ok := clusters[name]; !ok {
				p.retained[name] = until
			}
		}
	}
	for name := range clusters {
		delete(p.retained, name)
	}
	p.config = next
}

// push updates the tables to the configuration and the retained clusters, with the endpoints in assignments. An open
// watch gets the changes in this order: a cluster after its endpoints and before the listeners that use it, and a
// removed assignment after its cluster.
func (p *proxy) push(assignments map[string]versioned) {
	p.pushes++
	clusters, endpoints := p.config.resources[resource.ClusterType], p.tables[resource.EndpointType]
	if len(p.retained) > 0 {
		clusters = maps.Clone(clusters)
	}
	retained := map[string]bool{}
	for name := range p.retained {
		clusters[name] = p.tables[resource.ClusterType].resources[name]
		retained[endpointsOf(clusters[name].message)] = true
	}
	added, removed := map[string]versioned{}, []string(nil)
	for name, want := range p.config.empty {
		if a, ok := assignments[name]; ok {
			want = a
		}
		if endpoints.resources[name].version != want.version {
			added[name] = want
		}
	}
	for name := range endpoints.resources {
		if _, ok := p.config.empty[name]; !ok && !retained[name] {
			removed = append(removed, name)
		}
	}
	endpoints.update(added, nil)
	p.tables[resource.ClusterType].replace(clusters)
	p.tables[resource.ListenerType].replace(p.config.resources[resource.ListenerType])
	p.tables[resource.RouteType].replace(p.config.resources[resource.RouteType])
	endpoints.update(nil, removed)
}

// updateEndpoints sends the assignments in set that the clusters reference, and an empty assignment to each current
// cluster that references one in removed.
func (p *proxy) updateEndpoints(set map[string]versioned, removed []string) {
	t, changed := p.tables[resource.EndpointType], map[string]versioned{}
	for name, a := range set {
		if old, ok := t.resources[name]; ok && old.version != a.version {
			changed[name] = a
		}
	}
	for _, name := range removed {
		if p.config != nil && p.config.empty[name].message != nil {
			changed[name] = p.config.empty[name]
		}
	}
	t.update(changed, nil)
}
