package ads

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// kinds are the names of the served types in metrics, /state and messages, by type URL.
var kinds = map[string]string{
	resource.ListenerType: "listener",
	resource.ClusterType:  "cluster",
	resource.RouteType:    "route",
	resource.EndpointType: "endpoint",
}

// proxy holds the resources of all Envoys with the same node.cluster. Server.mu guards it.
type proxy struct {
	name     string
	log      *slog.Logger
	ready    chan struct{}                   // closed after the first Set
	version  string                          // of the latest Set; empty before the first
	served   map[string]map[string]versioned // by type URL and name
	retained map[string]time.Time            // clusters that were removed, and until when they are served
	streams  map[*stream]struct{}
	logged   map[string]string // the NACK message that was last logged, by type URL
}

// A versioned is a resource with its encoding and its version, a hash of that.
type versioned struct {
	message types.Resource
	wire    []byte
	version string
}

func newProxy(name string, log *slog.Logger) *proxy {
	p := &proxy{
		name: name, log: log, ready: make(chan struct{}), served: map[string]map[string]versioned{},
		retained: map[string]time.Time{}, streams: map[*stream]struct{}{}, logged: map[string]string{},
	}
	for typeURL := range kinds {
		p.served[typeURL] = map[string]versioned{}
	}
	return p
}

// set sets the configuration, and retains the clusters that it no longer has until the given time. It reports whether
// listeners, clusters or routes have changed. An Envoy that waits for changes gets them in this order: a cluster after its
// endpoints and before the listeners that use it.
func (p *proxy) set(r Resources, until time.Time) bool {
	clusters := encode(p, resource.ClusterType, r.Clusters)
	listeners := encode(p, resource.ListenerType, r.Listeners)
	routes := encode(p, resource.RouteType, r.Routes)
	before := p.version
	p.version = hashOf(clusters, listeners, routes)
	for name := range p.served[resource.ClusterType] {
		_, retained := p.retained[name]
		if _, exists := clusters[name]; exists {
			delete(p.retained, name)
		} else if !retained {
			p.retained[name] = until
		}
	}
	endpoints := encode(p, resource.EndpointType, r.Endpoints)
	for _, c := range r.Clusters {
		name := c.GetName()
		_, given := endpoints[name]
		if _, known := p.served[resource.EndpointType][name]; c.GetEdsClusterConfig() != nil && !known && !given {
			// Envoy keeps a cluster in warming state until it receives an assignment.
			maps.Copy(endpoints, encode(p, resource.EndpointType, []*endpointv3.ClusterLoadAssignment{{ClusterName: name}}))
		}
	}
	maps.DeleteFunc(endpoints, func(name string, _ versioned) bool { return clusters[name].message == nil })
	p.updateEndpoints(endpoints)
	p.update(resource.ClusterType, clusters, nil)
	p.replace(resource.ListenerType, listeners)
	p.replace(resource.RouteType, routes)
	p.acknowledge()
	return p.version != before
}

// hashOf returns a hash of the names and versions of resources.
func hashOf(all ...map[string]versioned) string {
	h := sha256.New()
	for _, resources := range all {
		for _, name := range slices.Sorted(maps.Keys(resources)) {
			fmt.Fprintf(h, "%s\x00%s\n", name, resources[name].version)
		}
		fmt.Fprintln(h)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]) // unique enough, and short enough for a status
}

// setEndpoints sets the assignments of current clusters, and reports whether any has changed.
func (p *proxy) setEndpoints(list []*endpointv3.ClusterLoadAssignment) bool {
	endpoints := encode(p, resource.EndpointType, list)
	maps.DeleteFunc(endpoints, func(name string, _ versioned) bool {
		_, retained := p.retained[name]
		return p.served[resource.ClusterType][name].message == nil || retained
	})
	return p.updateEndpoints(endpoints)
}

func (p *proxy) updateEndpoints(endpoints map[string]versioned) bool {
	changed := p.update(resource.EndpointType, endpoints, nil)
	for _, name := range slices.Sorted(slices.Values(changed)) {
		p.log.Info("endpoints changed", "proxy", p.name, "cluster", name, "version", endpoints[name].version,
			"endpoints", countEndpoints(endpoints[name].message))
	}
	return len(changed) > 0
}

// expire removes retained clusters after their time, with their endpoints. It reports whether there are any.
func (p *proxy) expire(now time.Time) bool {
	var expired []string
	for name, until := range p.retained {
		if !until.After(now) {
			expired = append(expired, name)
			delete(p.retained, name)
		}
	}
	p.update(resource.ClusterType, nil, expired)
	p.update(resource.EndpointType, nil, expired)
	return len(expired) > 0
}

// replace replaces a type's resources by want.
func (p *proxy) replace(typeURL string, want map[string]versioned) {
	var remove []string
	for name := range p.served[typeURL] {
		if _, ok := want[name]; !ok {
			remove = append(remove, name)
		}
	}
	p.update(typeURL, want, remove)
}

// update sets and removes resources, and sends the changes to the Envoys that wait for them, with what they rejected
// before. It returns the names of the changed and removed resources.
func (p *proxy) update(typeURL string, set map[string]versioned, remove []string) []string {
	changed := slices.Clone(remove)
	for name, r := range set {
		if p.served[typeURL][name].version != r.version {
			changed = append(changed, name)
		}
		p.served[typeURL][name] = r
	}
	for _, name := range remove {
		delete(p.served[typeURL], name)
	}
	if len(changed) == 0 {
		return nil
	}
	for st := range p.streams {
		t := st.types[typeURL]
		t.markStale(slices.Values(changed), false)
		t.markStale(maps.Keys(t.rejected), true)
		t.respond(p, false)
	}
	return changed
}

// acknowledge records the current version for the Envoys that have acknowledged all of its resources.
func (p *proxy) acknowledge() {
	for st := range p.streams {
		if st.isCurrent(resource.ListenerType) && st.isCurrent(resource.ClusterType) && st.isCurrent(resource.RouteType) {
			st.version = p.version
		}
	}
}

// encode returns resources by name. It does not encode messages again that are served. Equal messages have the same version,
// in any process.
func encode[M types.Resource](p *proxy, typeURL string, list []M) map[string]versioned {
	all := make(map[string]versioned, len(list))
	for _, m := range list {
		name := cache.GetResourceName(m)
		r := p.served[typeURL][name]
		if r.message != types.Resource(m) {
			wire, err := cache.MarshalResource(m)
			if err != nil {
				p.log.Error("cannot encode a resource", "proxy", p.name, "type", kinds[typeURL], "name", name, "err", err)
				continue
			}
			r = versioned{m, wire, cache.HashResource(wire)}
		}
		all[name] = r
	}
	return all
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
