package serve

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/envoy"
)

// A Feeder updates an ADS server with the proxies and endpoints of a store.
type Feeder struct {
	store   *watch.Store
	server  *ads.Server
	options envoy.Options
	log     *slog.Logger
	changed chan struct{} // receives a value after a change of the fields below

	mu              sync.Mutex
	snapshotChanged bool
	services        map[string]bool             // Services whose endpoints have changed; "" means all
	omitted         map[string][]envoy.Omission // by proxy; the slices are not changed

	// The fields below are used only by Run.
	synced    bool                         // the last snapshot came from the API server, not from the snapshot file
	upstreams map[string][]*model.Upstream // of all served proxies, by Service
	proxies   map[string]*proxy            // by namespace/name
	endpoints map[string]bool              // names of the upstreams of all served proxies
}

// A proxy is the state of a ProxyServer in the ADS server.
type proxy struct {
	translator *envoy.Translator
	latest     *model.ProxyServer // of the last snapshot
	served     *model.ProxyServer // the last one that was valid; nil for none
	failure    string             // why latest is not served; empty if it is
}

// NewFeeder returns a Feeder. The options apply to all proxies.
func NewFeeder(store *watch.Store, server *ads.Server, options envoy.Options, log *slog.Logger) *Feeder {
	return &Feeder{
		store: store, server: server, options: options, log: log, changed: make(chan struct{}, 1),
		services: map[string]bool{}, omitted: map[string][]envoy.Omission{}, proxies: map[string]*proxy{}, endpoints: map[string]bool{},
	}
}

// Run updates the server until the context ends. If the store has a snapshot from its file, Run serves that
// immediately. Without a snapshot it serves nothing, because an empty configuration would close all connections.
func (f *Feeder) Run(ctx context.Context) {
	defer f.store.Subscribe(f.onSnapshot)()
	defer f.store.SubscribeEndpoints(f.onEndpoints)()
	f.onSnapshot()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		}
		f.mu.Lock()
		snapshotChanged, services := f.snapshotChanged, f.services
		f.snapshotChanged, f.services = false, map[string]bool{}
		f.mu.Unlock()
		if snapshotChanged || services[""] {
			synced := f.store.Status().Synced
			f.feed(f.store.Snapshot(), services[""] || synced != f.synced) //nolint:contextcheck // its context is for the log level only
			f.synced = synced
		}
		f.feedEndpoints(services)
	}
}

// Omitted returns the parts of a proxy's configuration that are left out because Envoy would reject them. The caller must
// not change the result.
func (f *Feeder) Omitted(proxy string) []envoy.Omission {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.omitted[proxy]
}

// setOmitted sets the result of Omitted and logs it, if it has changed.
func (f *Feeder) setOmitted(proxy string, list []envoy.Omission) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Equal(f.omitted[proxy], list) {
		return
	}
	for _, o := range list {
		f.log.Error("a part of the configuration is left out: Envoy would reject it", "proxy", proxy, "part", o.Part, "reason", o.Reason)
	}
	f.omitted[proxy] = list
}

// onSnapshot notifies Run of a new snapshot.
func (f *Feeder) onSnapshot() {
	f.mu.Lock()
	f.snapshotChanged = true
	f.mu.Unlock()
	f.notify()
}

// onEndpoints notifies Run of changed endpoints of a Service, or of any Service if service is empty.
func (f *Feeder) onEndpoints(service string) {
	f.mu.Lock()
	f.services[service] = true
	f.mu.Unlock()
	f.notify()
}

func (f *Feeder) notify() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// feed passes the changes of a snapshot to the server. If all is true, it also reads the endpoints of unchanged proxies.
// Invalid parts of a proxy are left out, and do not affect the others.
func (f *Feeder) feed(s *model.Snapshot, all bool) {
	if s == nil {
		return
	}
	upstreams := map[string][]*model.Upstream{}
	names := map[string]bool{}
	var endpoints []*endpointv3.ClusterLoadAssignment
	deleted := maps.Clone(f.proxies)
	for _, p := range s.ProxyServers {
		delete(deleted, p.Key())
		read := f.feedProxy(p, all)
		served := f.proxies[p.Key()].served
		if served == nil {
			continue
		}
		for _, u := range served.Upstreams {
			if u.Service != "" {
				upstreams[u.Service] = append(upstreams[u.Service], u)
			}
			if all && !read && !names[u.Name] { // proxies can share an upstream
				endpoints = append(endpoints, f.endpointsOf(u))
			}
			names[u.Name] = true
		}
	}
	for name := range deleted {
		f.server.Delete(name)
		delete(f.proxies, name)
		f.setOmitted(name, nil)
		f.log.Info("proxy deleted", "proxy", name)
	}
	var removed []string
	for name := range f.endpoints {
		if !names[name] {
			removed = append(removed, name)
		}
	}
	f.upstreams, f.endpoints = upstreams, names
	f.updateEndpoints(endpoints, removed)
}

// feedProxy passes a proxy to the server, unless it is unchanged, with the endpoints of its new upstreams or, if all is
// true, of all. It reports whether the server has accepted them. If the proxy is invalid, the error is logged unless it is
// the same as before.
func (f *Feeder) feedProxy(p *model.ProxyServer, all bool) (accepted bool) {
	state := f.proxies[p.Key()]
	if state == nil {
		state = &proxy{translator: envoy.NewTranslator(f.options)}
		f.proxies[p.Key()] = state
	}
	if state.latest == p {
		return false
	}
	state.latest = p
	resources, omitted := state.translator.Translate(p)
	f.setOmitted(p.Key(), omitted)
	clusters := map[string]bool{}
	for _, c := range resources.Clusters {
		clusters[c.GetName()] = true
	}
	var known map[*model.Upstream]bool
	if state.served != nil && !all {
		known = make(map[*model.Upstream]bool, len(state.served.Upstreams))
		for _, u := range state.served.Upstreams {
			known[u] = true
		}
	}
	for _, u := range p.Upstreams {
		if clusters[u.Name] && !known[u] {
			resources.Endpoints = append(resources.Endpoints, f.endpointsOf(u))
		}
	}
	err := f.server.Set(p.Key(), resources)
	if err == nil {
		state.served, state.failure = p, ""
	} else if failure := err.Error(); failure != state.failure {
		state.failure = failure
		f.log.Error("invalid configuration; keeping the previous one", "proxy", p.Key(), "err", err)
	}
	if !f.log.Enabled(context.Background(), slog.LevelDebug) {
		return err == nil
	}
	for _, l := range p.Listeners {
		for _, r := range l.Routes {
			f.log.Debug("route", "proxy", p.Key(), "generation", p.Generation, "port", l.Port, "host", r.Host, "cluster", r.Upstream,
				"owner", r.Owner, "source", r.Source)
		}
	}
	return err == nil
}

// feedEndpoints passes the endpoints of some Services to the server.
func (f *Feeder) feedEndpoints(services map[string]bool) {
	set := map[string]*endpointv3.ClusterLoadAssignment{} // proxies can share an upstream
	for service := range services {
		for _, u := range f.upstreams[service] {
			set[u.Name] = f.endpointsOf(u)
		}
	}
	f.updateEndpoints(slices.Collect(maps.Values(set)), nil)
}

func (f *Feeder) updateEndpoints(set []*endpointv3.ClusterLoadAssignment, remove []string) {
	if err := f.server.UpdateEndpoints(set, remove); err != nil {
		f.log.Error("cannot update endpoints", "err", err)
	}
}

func (f *Feeder) endpointsOf(u *model.Upstream) *endpointv3.ClusterLoadAssignment {
	if u.Service == "" {
		return envoy.Endpoints(u, nil)
	}
	return envoy.Endpoints(u, f.store.EndpointSlices(u.Service))
}
