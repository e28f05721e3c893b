package serve

import (
	"context"
	"log/slog"
	"maps"
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
	services        map[string]bool // Services whose endpoints have changed; "" means all

	// The fields below are used only by Run.
	synced    bool                         // the last snapshot came from the API server, not from the snapshot file
	upstreams map[string][]*model.Upstream // by Service
	proxies   map[string]servedProxy       // by namespace/name
	endpoints map[string]bool              // names of the upstreams of all served proxies
}

// A servedProxy is the last state of a proxy that was passed to the ADS server.
type servedProxy struct {
	*model.ProxyServer
	failure string // why the ADS server still serves the previous state; empty if it does not
}

// NewFeeder returns a Feeder. The options apply to all proxies.
func NewFeeder(store *watch.Store, server *ads.Server, options envoy.Options, log *slog.Logger) *Feeder {
	return &Feeder{
		store: store, server: server, options: options, log: log, changed: make(chan struct{}, 1),
		services: map[string]bool{}, proxies: map[string]servedProxy{}, endpoints: map[string]bool{},
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
			f.feed(f.store.Snapshot(), services[""] || synced != f.synced) //nolint:contextcheck // an update is completed even if the context ends during it
			f.synced = synced
		}
		f.feedEndpoints(services)
	}
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

// feed passes the changes of a snapshot to the server: first endpoints, then the clusters that use them, and removals
// last. If all is true, it also reads the endpoints of unchanged proxies. An invalid proxy does not affect the others.
func (f *Feeder) feed(s *model.Snapshot, all bool) {
	if s == nil {
		return
	}
	upstreams := map[string][]*model.Upstream{}
	endpoints := map[string]*endpointv3.ClusterLoadAssignment{}
	names := map[string]bool{}
	for _, p := range s.ProxyServers {
		unchanged := f.proxies[p.Key()].ProxyServer == p
		for _, u := range p.Upstreams {
			if u.Service != "" {
				upstreams[u.Service] = append(upstreams[u.Service], u)
			}
			names[u.Name] = true
			if (all || !unchanged) && endpoints[u.Name] == nil { // proxies can share an upstream
				endpoints[u.Name] = f.endpointsOf(u)
			}
		}
	}
	f.upstreams = upstreams
	if err := f.server.UpdateEndpoints(endpoints, nil); err != nil {
		f.log.Error("cannot update endpoints", "err", err)
	}
	deleted := maps.Clone(f.proxies)
	for _, p := range s.ProxyServers {
		delete(deleted, p.Key())
		if f.proxies[p.Key()].ProxyServer != p {
			f.feedProxy(p)
		}
	}
	for name := range deleted {
		f.server.Delete(name)
		delete(f.proxies, name)
		f.log.Info("proxy deleted", "proxy", name)
	}
	var removed []string
	for name := range f.endpoints {
		if !names[name] {
			removed = append(removed, name)
		}
	}
	f.endpoints = names
	if err := f.server.UpdateEndpoints(nil, removed); err != nil {
		f.log.Error("cannot remove endpoints", "err", err)
	}
}

// feedProxy passes one proxy to the server. If it is invalid, the server keeps the previous configuration, and the
// error is logged unless it is the same as before.
func (f *Feeder) feedProxy(p *model.ProxyServer) {
	resources, err := envoy.Translate(p, f.options)
	if err == nil {
		err = f.server.Set(p.Key(), resources)
	}
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	previous := f.proxies[p.Key()]
	f.proxies[p.Key()] = servedProxy{p, failure}
	if failure != "" && failure != previous.failure {
		f.log.Error("invalid configuration; keeping the previous one", "proxy", p.Key(), "err", err)
	}
	for _, l := range p.Listeners {
		for _, r := range l.Routes {
			f.log.Debug("route", "proxy", p.Key(), "generation", p.Generation, "port", l.Port, "host", r.Host, "cluster", r.Upstream, "owner", r.Owner, "source", r.Source)
		}
	}
}

// feedEndpoints passes the endpoints of some Services to the server.
func (f *Feeder) feedEndpoints(services map[string]bool) {
	set := map[string]*endpointv3.ClusterLoadAssignment{}
	for service := range services {
		for _, u := range f.upstreams[service] {
			set[u.Name] = f.endpointsOf(u)
		}
	}
	if len(set) == 0 {
		return
	}
	if err := f.server.UpdateEndpoints(set, nil); err != nil {
		f.log.Error("cannot update endpoints", "err", err)
	}
}

func (f *Feeder) endpointsOf(u *model.Upstream) *endpointv3.ClusterLoadAssignment {
	if u.Service == "" {
		return envoy.Endpoints(u, nil)
	}
	return envoy.Endpoints(u, f.store.EndpointSlices(u.Service))
}
