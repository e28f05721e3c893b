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

// proxy holds the resources of all Envoys with the same node.cluster. Its fields are written with both Server.update
// and Server.mu held, so that holding either is enough to read them. Server.mu alone guards streams, nacks and logged.
type proxy struct {
	name string

	caches    cache.MuxCache
	snapshots cache.SnapshotCache
	endpoints *cache.LinearCache

	config   *config                    // of the latest Set; nil before the first
	retained map[string]retainedCluster // clusters that config no longer has
	assigned map[string]string          // versions of the assignments in endpoints, by name
	pushes   uint64

	streams map[*stream]struct{}
	nacks   map[string]uint64 // by type URL
	logged  map[string]string // the NACK message that was last logged, by type URL

	// The caches read these while they hold their own locks.
	served  atomic.Pointer[snapshot]
	updates atomic.Uint64 // updates of endpoints; equal to the linear cache's version
}

// A retainedCluster was removed from the configuration, and is served until the listeners that used it have drained.
type retainedCluster struct {
	message   types.Resource
	version   string
	endpoints string
	until     time.Time
}

// oneNode maps all nodes to the same key: each proxy has its own cache, and all its Envoys get the same resources.
type oneNode struct{}

// ID implements cache.NodeHash.
func (oneNode) ID(*corev3.Node) string { return "" }

func newProxy(name string, logger *slog.Logger) *proxy {
	cacheLogger := log.LoggerFuncs{
		WarnFunc:  func(format string, args ...any) { logger.Warn(fmt.Sprintf(format, args...), "proxy", name) },
		ErrorFunc: func(format string, args ...any) { logger.Error(fmt.Sprintf(format, args...), "proxy", name) },
	}
	p := &proxy{
		name:      name,
		snapshots: cache.NewSnapshotCache(true, oneNode{}, cacheLogger),
		endpoints: cache.NewLinearCache(resource.EndpointType, cache.WithLogger(cacheLogger)),
		retained:  map[string]retainedCluster{},
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

// typeVersion returns the current version of a type, which responses carry as system_version_info.
func (p *proxy) typeVersion(typeURL string) string {
	if typeURL == resource.EndpointType {
		return strconv.FormatUint(p.updates.Load(), 10)
	}
	if served := p.served.Load(); served != nil {
		return served.GetVersion(typeURL)
	}
	return ""
}

// retainRemoved retains the clusters that next no longer has until the given time.
func (p *proxy) retainRemoved(next *config, until time.Time) {
	if p.config != nil {
		for name, m := range p.config.clusters.resources {
			if c, ok := m.(*clusterv3.Cluster); ok && next.clusters.resources[name] == nil {
				p.retained[name] = retainedCluster{m, p.config.clusters.versions[name], endpointsOf(c), until}
			}
		}
	}
	for name := range next.clusters.resources {
		delete(p.retained, name)
	}
}

// snapshot returns a snapshot of config and the retained clusters.
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

// assignmentNames returns the names of the assignments that the served clusters reference.
func (p *proxy) assignmentNames() map[string]bool {
	names := maps.Clone(p.config.endpoints)
	for _, c := range p.retained {
		if c.endpoints != "" {
			names[c.endpoints] = true
		}
	}
	return names
}

// update sets and removes assignments in the linear cache, which sends the changes to the streams that watch them.
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
		return fmt.Errorf("updating the endpoints of proxy %s: %w", p.name, err)
	}
	return nil
}

// emptyAssignment returns an assignment without endpoints. Envoy keeps an EDS cluster in warming state until it
// receives an assignment, so every cluster needs one.
func emptyAssignment(name string) (assignment, error) {
	return newAssignment(&endpointv3.ClusterLoadAssignment{ClusterName: name})
}

// affectedAssignments returns the assignments that this proxy must be sent after a change of endpoints: the changed
// ones that its clusters reference, and an empty one for each that was removed.
func (p *proxy) affectedAssignments(changed map[string]assignment, removed []string) (map[string]assignment, error) {
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
		a, err := emptyAssignment(name)
		if err != nil {
			return nil, err
		}
		add(name, a)
	}
	return u, nil
}
