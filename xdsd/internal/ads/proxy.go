package ads

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
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
		p.tables[typeURL] = &table{cache: cache.NewLinearCache(typeURL), resources: map[string]versioned{}}
	}
	return p
}

// A table has the resources of one type that a proxy serves.
type table struct {
	cache     *cache.LinearCache
	resources map[string]versioned // in cache, by name
	updates   uint64               // of cache
}

// version returns the version of the table, which responses carry as system_version_info.
func (t *table) version() string { return strconv.FormatUint(t.updates, 10) }

// replace updates the table so that it has the resources in want.
func (t *table) replace(want map[string]versioned) error {
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
	return t.update(set, remove)
}

// update sets and removes resources, and sends the changes to the streams that watch them.
func (t *table) update(set map[string]versioned, remove []string) error {
	if len(set) == 0 && len(remove) == 0 {
		return nil
	}
	messages := make(map[string]types.Resource, len(set))
	for name, r := range set {
		messages[name], t.resources[name] = r.message, r
	}
	for _, name := range remove {
		delete(t.resources, name)
	}
	t.updates++
	if err := t.cache.UpdateResources(messages, remove); err != nil {
		return fmt.Errorf("updating the served resources: %w", err)
	}
	return nil
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
func (p *proxy) push(assignments map[string]versioned) error {
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
	return errors.Join(
		endpoints.update(added, nil),
		p.tables[resource.ClusterType].replace(clusters),
		p.tables[resource.ListenerType].replace(p.config.resources[resource.ListenerType]),
		p.tables[resource.RouteType].replace(p.config.resources[resource.RouteType]),
		endpoints.update(nil, removed),
	)
}

// updateEndpoints sends the assignments in set that the clusters reference, and an empty assignment to each current
// cluster that references one in removed.
func (p *proxy) updateEndpoints(set map[string]versioned, removed []string) error {
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
	return t.update(changed, nil)
}
