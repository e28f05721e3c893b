package ads

import (
	"cmp"
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
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"github.com/densityops/oooi/xdsd/internal/message"
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

// kinds are the names of the served types in metrics, /state and messages, by type URL.
var kinds = map[string]string{
	resource.ListenerType: "listener",
	resource.ClusterType:  "cluster",
	resource.RouteType:    "route",
	resource.EndpointType: "endpoint",
}

// A versioned is a validated resource with its encoding and its version, a hash of that.
type versioned struct {
	message types.Resource
	wire    []byte
	version string
}

// A config is a validated set of listeners, clusters and routes. It is immutable.
type config struct {
	version   string                          // hash of all names and versions
	resources map[string]map[string]versioned // by type URL and name
	empty     map[string]versioned            // assignments without endpoints, by the name that clusters reference
}

// newConfig validates and hashes resources. It does not validate those again that old has with the same version, and
// returns old if all are equal.
func newConfig(old *config, r Resources) (*config, error) {
	if old == nil {
		old = &config{}
	}
	var errs [3]error
	c := &config{resources: map[string]map[string]versioned{}, empty: map[string]versioned{}}
	c.resources[resource.ListenerType], errs[0] = collect("listener", old.resources[resource.ListenerType], r.Listeners, (*listenerv3.Listener).GetName)
	c.resources[resource.ClusterType], errs[1] = collect("cluster", old.resources[resource.ClusterType], r.Clusters, (*clusterv3.Cluster).GetName)
	c.resources[resource.RouteType], errs[2] = collect("route configuration", old.resources[resource.RouteType], r.Routes, (*routev3.RouteConfiguration).GetName)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	h := sha256.New()
	for _, typeURL := range slices.Sorted(maps.Keys(c.resources)) {
		fmt.Fprintln(h, typeURL)
		for _, name := range slices.Sorted(maps.Keys(c.resources[typeURL])) {
			fmt.Fprintf(h, "%s\x00%s\n", name, c.resources[typeURL][name].version)
		}
	}
	c.version = hex.EncodeToString(h.Sum(nil)[:16]) // unique enough, and short enough for a status
	if c.version == old.version {
		return old, nil
	}
	for _, cluster := range r.Clusters {
		name := endpointsOf(cluster)
		if name == "" {
			continue
		}
		// Envoy keeps an EDS cluster in warming state until it receives an assignment, so every cluster needs one.
		e, ok := old.empty[name]
		if !ok {
			var err error
			if e, err = newVersioned(&endpointv3.ClusterLoadAssignment{ClusterName: name}); err != nil {
				return nil, fmt.Errorf("endpoints %q: %w", name, err)
			}
		}
		c.empty[name] = e
	}
	if err := c.checkRoutes(); err != nil {
		return nil, err
	}
	return c, nil
}

// collect returns the valid messages by name, and an error that names all others. It does not encode the messages again
// that old has, and does not validate those that old has with the same version.
func collect[M message.Validated](kind string, old map[string]versioned, messages []M, nameOf func(M) string) (map[string]versioned, error) {
	valid := make(map[string]versioned, len(messages))
	var errs []error
	for _, m := range messages {
		name := nameOf(m)
		if name == "" {
			errs = append(errs, fmt.Errorf("%s without a name", kind))
			continue
		}
		if _, twice := valid[name]; twice {
			errs = append(errs, fmt.Errorf("duplicate %s %q", kind, name))
			continue
		}
		if v, ok := old[name]; ok && v.message == types.Resource(m) {
			valid[name] = v
			continue
		}
		v, err := newVersioned(m)
		if err == nil && old[name].version == v.version {
			v = old[name]
		} else if err == nil {
			err = m.ValidateAll()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", kind, name, err))
			continue
		}
		valid[name] = v
	}
	return valid, errors.Join(errs...)
}

// newVersioned encodes a message. Equal messages have the same version, in any process.
func newVersioned(m types.Resource) (versioned, error) {
	wire, err := cache.MarshalResource(m)
	if err != nil {
		return versioned{}, fmt.Errorf("encoding the resource: %w", err)
	}
	return versioned{m, wire, cache.HashResource(wire)}, nil
}

// endpointsOf returns the name of the assignment that an EDS cluster references, or "" for any other message.
func endpointsOf(m types.Resource) string {
	c, ok := m.(*clusterv3.Cluster)
	if !ok || c.GetType() != clusterv3.Cluster_EDS {
		return ""
	}
	return cmp.Or(c.GetEdsClusterConfig().GetServiceName(), c.GetName())
}

// countEndpoints returns the number of endpoints in an assignment.
func countEndpoints(m types.Resource) (n int) {
	if a, ok := m.(*endpointv3.ClusterLoadAssignment); ok {
		for _, locality := range a.GetEndpoints() {
			n += len(locality.GetLbEndpoints())
		}
	}
	return n
}

// routesOf returns the names of the route configurations that a listener references.
func routesOf(m types.Resource) (names []string) {
	l, ok := m.(*listenerv3.Listener)
	if !ok {
		return nil
	}
	for _, chain := range append(slices.Clip(l.GetFilterChains()), l.GetDefaultFilterChain()) {
		for _, f := range chain.GetFilters() {
			if !f.GetTypedConfig().MessageIs((*hcmv3.HttpConnectionManager)(nil)) {
				continue
			}
			if name := resource.GetHTTPConnectionManager(f).GetRds().GetRouteConfigName(); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// checkRoutes returns an error unless listeners reference exactly the route configurations of c. A listener whose
// routes are never sent stays in Envoy's warming state, and the previous listener stays active.
func (c *config) checkRoutes() error {
	named := map[string]bool{}
	var errs []error
	listeners, routes := c.resources[resource.ListenerType], c.resources[resource.RouteType]
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		for _, route := range routesOf(listeners[name].message) {
			named[route] = true
			if _, ok := routes[route]; !ok {
				errs = append(errs, fmt.Errorf("listener %q references route configuration %q, which does not exist", name, route))
			}
		}
	}
	for _, route := range slices.Sorted(maps.Keys(routes)) {
		if !named[route] {
			errs = append(errs, fmt.Errorf("route configuration %q is not referenced by any listener", route))
		}
	}
	return errors.Join(errs...)
}
