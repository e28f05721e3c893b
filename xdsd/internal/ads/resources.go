package ads

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// Resources are what one proxy is to have, in any order. Their messages belong to
// the Server once they were handed over and must not be changed.
type Resources struct {
	Listeners []*listenerv3.Listener
	Clusters  []*clusterv3.Cluster
	Routes    []*routev3.RouteConfiguration
}

// kind is the word for a served type in metrics, states and messages; empty for a
// type that is not served.
func kind(typeURL string) string {
	switch typeURL {
	case resource.ListenerType:
		return "listener"
	case resource.ClusterType:
		return "cluster"
	case resource.RouteType:
		return "route"
	case resource.EndpointType:
		return "endpoint"
	}
	return ""
}

// collection is all resources of one type, by name. It is immutable.
type collection struct {
	version   string // of the names and versions below
	resources map[string]types.Resource
	versions  map[string]string
}

func newCollection(resources map[string]types.Resource, versions map[string]string) collection {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		fmt.Fprintf(h, "%s\x00%s\n", name, versions[name])
	}
	return collection{version: digest(h.Sum(nil)), resources: resources, versions: versions}
}

// digest is 128 bits, enough to tell versions apart and short enough for a status.
func digest(sum []byte) string { return hex.EncodeToString(sum[:16]) }

// config is a checked set of resources. It is immutable.
type config struct {
	version                     string
	listeners, clusters, routes collection
	endpoints                   map[string]bool // the assignments that clusters name
}

// newConfig checks resources and hashes them. What old has, too, is not checked
// again; where they are equal, the result is old.
func newConfig(old *config, r Resources) (*config, error) {
	if old == nil {
		old = &config{}
	}
	var c config
	var errs [3]error
	c.listeners, errs[0] = collect("listener", old.listeners, r.Listeners)
	c.clusters, errs[1] = collect("cluster", old.clusters, r.Clusters)
	c.routes, errs[2] = collect("route configuration", old.routes, r.Routes)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(c.listeners.version + c.clusters.version + c.routes.version))
	c.version = digest(sum[:])
	if c.version == old.version {
		return old, nil
	}
	c.endpoints = map[string]bool{}
	for _, cluster := range r.Clusters {
		if name := endpointsOf(cluster); name != "" {
			c.endpoints[name] = true
		}
	}
	if err := c.checkRoutes(); err != nil {
		return nil, err
	}
	return &c, nil
}

// message is what the generated types of all served kinds have in common.
type message interface {
	types.Resource
	ValidateAll() error
}

func collect[M interface {
	message
	GetName() string
}](kind string, old collection, messages []M) (collection, error) {
	resources := make(map[string]types.Resource, len(messages))
	versions := make(map[string]string, len(messages))
	var errs []error
	for _, m := range messages {
		name := m.GetName()
		if name == "" {
			errs = append(errs, fmt.Errorf("a %s has no name", kind))
			continue
		}
		if _, twice := resources[name]; twice {
			errs = append(errs, fmt.Errorf("%s %q is there twice", kind, name))
			continue
		}
		version, err := versionOf(m)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", kind, name, err))
			continue
		}
		resources[name], versions[name] = m, version
		if old.versions[name] == version {
			resources[name] = old.resources[name]
			continue
		}
		if err := m.ValidateAll(); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", kind, name, err))
		}
	}
	if len(errs) > 0 {
		return collection{}, errors.Join(errs...)
	}
	return newCollection(resources, versions), nil
}

// versionOf is the version that the caches of go-control-plane put on the wire:
// what we hold against an acknowledgement must be the same.
func versionOf(m types.Resource) (string, error) {
	wire, err := cache.MarshalResource(m)
	if err != nil {
		return "", fmt.Errorf("marshaling: %w", err)
	}
	return cache.HashResource(wire), nil
}

// endpointsOf names the assignment that an EDS cluster asks for; empty for clusters
// of other types.
func endpointsOf(c *clusterv3.Cluster) string {
	if c.GetType() != clusterv3.Cluster_EDS {
		return ""
	}
	if name := c.GetEdsClusterConfig().GetServiceName(); name != "" {
		return name
	}
	return c.GetName()
}

// checkRoutes holds routes against the listeners that name them. A listener whose
// routes never come stays in Envoy's antechamber, and its predecessor in service.
func (c *config) checkRoutes() error {
	named := map[string]bool{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.listeners.resources)) {
		references := cache.GetResourceReferences(map[string]types.ResourceWithTTL{
			name: {Resource: c.listeners.resources[name]},
		})
		for _, route := range slices.Sorted(maps.Keys(references[resource.RouteType])) {
			named[route] = true
			if _, ok := c.routes.resources[route]; !ok {
				errs = append(errs, fmt.Errorf("listener %q names route configuration %q, which is missing", name, route))
			}
		}
	}
	for _, route := range slices.Sorted(maps.Keys(c.routes.resources)) {
		if !named[route] {
			errs = append(errs, fmt.Errorf("route configuration %q is named by no listener", route))
		}
	}
	return errors.Join(errs...)
}

// assignment is the checked endpoints of one name.
type assignment struct {
	message *endpointv3.ClusterLoadAssignment
	version string
	count   int // endpoints in it
}

func newAssignment(name string, m *endpointv3.ClusterLoadAssignment) (assignment, error) {
	if m.GetClusterName() != name {
		return assignment{}, fmt.Errorf("endpoints %q are called %q in the message", name, m.GetClusterName())
	}
	if err := m.ValidateAll(); err != nil {
		return assignment{}, fmt.Errorf("endpoints %q: %w", name, err)
	}
	version, err := versionOf(m)
	if err != nil {
		return assignment{}, fmt.Errorf("endpoints %q: %w", name, err)
	}
	a := assignment{message: m, version: version}
	for _, locality := range m.GetEndpoints() {
		a.count += len(locality.GetLbEndpoints())
	}
	return a, nil
}

// snapshot is what the snapshot cache of a proxy serves: a config's listeners and
// routes, and its clusters with those that are retained. It is immutable.
type snapshot struct {
	config   *config
	clusters collection
}

func (s *snapshot) collection(typeURL string) collection {
	switch typeURL {
	case resource.ListenerType:
		return s.config.listeners
	case resource.ClusterType:
		return s.clusters
	case resource.RouteType:
		return s.config.routes
	}
	return collection{}
}

// GetVersion is cache.ResourceSnapshot's.
func (s *snapshot) GetVersion(typeURL string) string { return s.collection(typeURL).version }

// GetResources is cache.ResourceSnapshot's.
func (s *snapshot) GetResources(typeURL string) map[string]types.Resource {
	return s.collection(typeURL).resources
}

// GetVersionMap is cache.ResourceSnapshot's.
func (s *snapshot) GetVersionMap(typeURL string) map[string]string {
	return s.collection(typeURL).versions
}

// ConstructVersionMap is cache.ResourceSnapshot's; the versions are there already.
func (s *snapshot) ConstructVersionMap() error { return nil }

// GetResourcesAndTTL is cache.ResourceSnapshot's, for state of the world alone,
// which is not served.
func (s *snapshot) GetResourcesAndTTL(string) map[string]types.ResourceWithTTL { return nil }
