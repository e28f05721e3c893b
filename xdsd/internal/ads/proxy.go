package ads

import (
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/log"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// proxy is what is served to all Envoys of one node.cluster. Its fields are written
// with Server.update and Server.mu held, so either is enough to read them, but for
// streams, nacks and logged, which are Server.mu's alone.
type proxy struct {
	name string

	caches    cache.MuxCache
	snapshots cache.SnapshotCache
	endpoints *cache.LinearCache

	config   *config            // the latest Set; nil before the first
	retained map[string]retired // clusters that config no longer has
	assigned map[string]string  // what is in endpoints: version by name
	pushes   uint64

	streams map[*stream]struct{}
	nacks   map[string]uint64 // by type
	logged  map[string]string // the text that was last logged, by type

	// Read by the caches while they hold their own locks.
	served  atomic.Pointer[snapshot]
	updates atomic.Uint64 // of endpoints; the linear cache counts the same way
}

// retired is a cluster that is served until connections had time to move.
type retired struct {
	message   types.Resource
	version   string
	endpoints string
	until     time.Time
}

// oneNode files everything under one key: a proxy's cache holds that proxy only,
// whatever its Envoys call themselves.
type oneNode struct{}

// ID is cache.NodeHash's.
func (oneNode) ID(*corev3.Node) string { return "" }

func newProxy(name string, logger *slog.Logger) *proxy {
	complain := log.LoggerFuncs{
		WarnFunc:  func(format string, args ...any) { logger.Warn(fmt.Sprintf(format, args...), "proxy", name) },
		ErrorFunc: func(format string, args ...any) { logger.Error(fmt.Sprintf(format, args...), "proxy", name) },
	}
	p := &proxy{
		name:      name,
		snapshots: cache.NewSnapshotCache(true, oneNode{}, complain),
		endpoints: cache.NewLinearCache(resource.EndpointType, cache.WithLogger(complain)),
		retained:  map[string]retired{},
		assigned:  map[string]string{},
		streams:   map[*stream]struct{}{},
		nacks:     map[string]uint64{},
		logged:    map[string]string{},
	}
	p.caches = cache.MuxCache{
		ClassifyDelta: func(r *cache.DeltaRequest) string { return r.GetTypeUrl() },
		Caches: map[string]cache.Cache{
			resource.ListenerType: p.snapshots,
			resource.ClusterType:  p.snapshots,
			resource.RouteType:    p.snapshots,
			resource.EndpointType: p.endpoints,
		},
	}
	return p
}

// typeVersion is the version of all resources of a type that are served now, as
// responses carry it.
func (p *proxy) typeVersion(typeURL string) string {
	if typeURL == resource.EndpointType {
		return strconv.FormatUint(p.updates.Load(), 10)
	}
	if served := p.served.Load(); served != nil {
		return served.GetVersion(typeURL)
	}
	return ""
}

// retire keeps the clusters that next lacks until the given time.
func (p *proxy) retire(next *config, until time.Time) {
	if p.config != nil {
		for name, m := range p.config.clusters.resources {
			if c, ok := m.(*clusterv3.Cluster); ok && next.clusters.resources[name] == nil {
				p.retained[name] = retired{m, p.config.clusters.versions[name], endpointsOf(c), until}
			}
		}
	}
	for name := range next.clusters.resources {
		delete(p.retained, name)
	}
}

// snapshot joins config and the retained clusters.
func (p *proxy) snapshot() *snapshot {
	s := &snapshot{config: p.config, clusters: p.config.clusters}
	if len(p.retained) == 0 {
		return s
	}
	resources, versions := maps.Clone(s.clusters.resources), maps.Clone(s.clusters.versions)
	for name, c := range p.retained {
		resources[name], versions[name] = c.message, c.version
	}
	s.clusters = newCollection(resources, versions)
	return s
}

// names are the assignments that served clusters ask for.
func (p *proxy) names() map[string]bool {
	names := maps.Clone(p.config.endpoints)
	for _, c := range p.retained {
		if c.endpoints != "" {
			names[c.endpoints] = true
		}
	}
	return names
}

// update changes assignments. Streams that watch them are sent what changed.
func (p *proxy) update(set map[string]assignment, remove []string) error {
	if len(set) == 0 && len(remove) == 0 {
		return nil
	}
	messages := make(map[string]types.Resource, len(set))
	for name, a := range set {
		messages[name] = a.message
	}
	p.updates.Add(1)
	if err := p.endpoints.UpdateResources(messages, remove); err != nil {
		return fmt.Errorf("serving endpoints to %s: %w", p.name, err)
	}
	return nil
}

// none is an assignment without endpoints: Envoy waits for one before it uses a
// cluster, so that there must always be one.
func none(name string) (assignment, error) {
	return newAssignment(name, &endpointv3.ClusterLoadAssignment{ClusterName: name})
}

// affected picks what a change of endpoints means for this proxy.
func (p *proxy) affected(changed map[string]assignment, removed []string) (map[string]assignment, error) {
	var u map[string]assignment
	add := func(name string, a assignment) {
		if u == nil {
			u = map[string]assignment{}
		}
		u[name] = a
	}
	for name, a := range changed {
		if version, ok := p.assigned[name]; ok && version != a.version {
			add(name, a)
		}
	}
	for _, name := range removed {
		if p.config == nil || !p.config.endpoints[name] {
			continue
		}
		a, err := none(name)
		if err != nil {
			return nil, err
		}
		add(name, a)
	}
	return u, nil
}
