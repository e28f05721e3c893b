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

// Resources are the configuration of one proxy, in any order. The Server keeps the messages; the caller must not change
// them after Set.
type Resources struct {
	Listeners []*listenerv3.Listener
	Clusters  []*clusterv3.Cluster
	Routes    []*routev3.RouteConfiguration
	// Endpoints are the endpoints to set with the other resources, see Server.UpdateEndpoints.
	Endpoints []*endpointv3.ClusterLoadAssignment
}

// kind returns the name of a served type in metrics, /state and messages, or "" for a type that is not served.
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

// A collection holds all resources of one type, by name. It is immutable.
type collection struct {
	version   string // hash of all names and versions
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

// digest returns the first 128 bits of a hash in hex: unique enough for a version, and short enough for a status.
func digest(sum []byte) string { return hex.EncodeToString(sum[:16]) }

// A config is a validated set of resources. It is immutable.
type config struct {
	version                     string
	listeners, clusters, routes collection
	endpoints                   map[string]bool // names of the assignments that clusters reference
}

// newConfig validates and hashes resources. It does not validate those again that old has with the same version, and
// returns old if all are equal.
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

// message is implemented by the generated types of all served resources.
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
			errs = append(errs, fmt.Errorf("duplicate %s %q", kind, name))
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

// versionOf returns the version of a resource. It must equal the one that go-control-plane's caches send, because
// acknowledged versions are compared with it.
func versionOf(m types.Resource) (string, error) {
	wire, err := cache.MarshalResource(m)
	if err != nil {
		return "", fmt.Errorf("encoding the resource: %w", err)
	}
	return cache.HashResource(wire), nil
}

// endpointsOf returns the name of the assignment that an EDS cluster references, or "" for other types of clusters.
func endpointsOf(c *clusterv3.Cluster) string {
	if c.GetType() != clusterv3.Cluster_EDS {
		return ""
	}
	if name := c.GetEdsClusterConfig().GetServiceName(); name != "" {
		return name
	}
	return c.GetName()
}

// checkRoutes returns an error unless listeners reference exactly the route configurations of c. A listener whose
// routes are never sent stays in Envoy's warming state, and the previous listener stays active.
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
				errs = append(errs, fmt.Errorf("listener %q references route configuration %q, which does not exist", name, route))
			}
		}
	}
	for _, route := range slices.Sorted(maps.Keys(c.routes.resources)) {
		if !named[route] {
			errs = append(errs, fmt.Errorf("route configuration %q is not referenced by any listener", route))
		}
	}
	return errors.Join(errs...)
}

// An assignment is a validated ClusterLoadAssignment.
type assignment struct {
	message *endpointv3.ClusterLoadAssignment
	version string
	count   int // number of endpoints
}

func newAssignment(m *endpointv3.ClusterLoadAssignment) (assignment, error) {
	if err := m.ValidateAll(); err != nil {
		return assignment{}, fmt.Errorf("endpoints %q: %w", m.GetClusterName(), err)
	}
	version, err := versionOf(m)
	if err != nil {
		return assignment{}, fmt.Errorf("endpoints %q: %w", m.GetClusterName(), err)
	}
	a := assignment{message: m, version: version}
	for _, locality := range m.GetEndpoints() {
		a.count += len(locality.GetLbEndpoints())
	}
	return a, nil
}

// A snapshot is what a proxy's snapshot cache serves: the listeners, routes and clusters of a config, and the retained
// clusters. It implements cache.ResourceSnapshot and is immutable.
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

// GetVersion implements cache.ResourceSnapshot.
func (s *snapshot) GetVersion(typeURL string) string { return s.collection(typeURL).version }

// GetResources implements cache.ResourceSnapshot.
func (s *snapshot) GetResources(typeURL string) map[string]types.Resource {
	return s.collection(typeURL).resources
}

// GetVersionMap implements cache.ResourceSnapshot.
func (s *snapshot) GetVersionMap(typeURL string) map[string]string {
	return s.collection(typeURL).versions
}

// ConstructVersionMap implements cache.ResourceSnapshot. It does nothing: newConfig has computed the versions.
func (s *snapshot) ConstructVersionMap() error { return nil }

// GetResourcesAndTTL implements cache.ResourceSnapshot. Only the state-of-the-world protocol uses it, which is not
// served.
func (s *snapshot) GetResourcesAndTTL(string) map[string]types.ResourceWithTTL { return nil }
