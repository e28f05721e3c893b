package serve

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
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
	// NTP returns the endpoints of an upstream of NTP servers. After they have changed, call EndpointsChanged with its name.
	NTP func(upstream string) []netip.AddrPort

	store   *watch.Store
	server  *ads.Server
	options envoy.Options
	log     *slog.Logger
	changed chan struct{} // receives a value after a change to the fields below

	mu              sync.Mutex
	snapshotChanged bool
	services        map[string]bool             // Services and upstreams of NTP whose endpoints have changed; "" means all
	omitted         map[string][]envoy.Omission // by proxy; the slices are not changed

	// The fields below are used only by Run.
	synced  bool                // the last snapshot came from the API server, not from the snapshot file
	proxies map[string]*proxy   // by namespace/name
	targets map[string][]target // by Service, or name for upstreams of NTP, which contains more slashes
}

// A proxy is the state of a ProxyServer in the ADS server.
type proxy struct {
	translator *envoy.Translator
	served     *model.ProxyServer // of the last snapshot
}

// A target is an upstream of a proxy.
type target struct {
	proxy    string
	upstream *model.Upstream
}

// NewFeeder returns a Feeder. The options apply to all proxies.
func NewFeeder(store *watch.Store, server *ads.Server, options envoy.Options, log *slog.Logger) *Feeder {
	return &Feeder{
		store: store, server: server, options: options, log: log, changed: make(chan struct{}, 1),
		services: map[string]bool{}, omitted: map[string][]envoy.Omission{}, proxies: map[string]*proxy{},
	}
}

// Run updates the server until ctx is done. If the store has a snapshot from its file, Run serves that
// immediately. Without a snapshot it serves nothing, because an empty configuration would close all connections.
func (f *Feeder) Run(ctx context.Context) {
	defer f.store.Subscribe(f.onSnapshot)()
	defer f.store.SubscribeEndpoints(f.EndpointsChanged)()
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

// EndpointsChanged notifies Run that endpoints of a Service or an NTP upstream have changed, or of any Service if service is empty.
func (f *Feeder) EndpointsChanged(service string) {
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

// feed passes what changed in a snapshot to the server. If all is true, it also reads the endpoints of unchanged proxies.
// Invalid parts of a proxy are left out, and do not affect the others.
func (f *Feeder) feed(s *model.Snapshot, all bool) {
	if s == nil {
		return
	}
	f.targets = map[string][]target{}
	deleted := maps.Clone(f.proxies)
	for _, p := range s.ProxyServers {
		delete(deleted, p.Key())
		f.feedProxy(p, all)
		for _, u := range p.Upstreams {
			key := u.Service
			if u.Servers != nil {
				key = u.Name
			}
			if key != "" {
				f.targets[key] = append(f.targets[key], target{p.Key(), u})
			}
		}
	}
	for name := range deleted {
		f.server.Delete(name)
		delete(f.proxies, name)
		f.setOmitted(name, nil)
		f.log.Info("proxy deleted", "proxy", name)
	}
}

// feedProxy passes a proxy to the server, unless it is unchanged, with the endpoints of its new upstreams or, if all is
// true, of all.
func (f *Feeder) feedProxy(p *model.ProxyServer, all bool) {
	state := f.proxies[p.Key()]
	if state == nil {
		state = &proxy{translator: envoy.NewTranslator(f.options), served: &model.ProxyServer{}}
		f.proxies[p.Key()] = state
	}
	changed := state.served != p
	if !changed && !all {
		return
	}
	known := map[*model.Upstream]bool{}
	if !all {
		for _, u := range state.served.Upstreams {
			known[u] = true
		}
	}
	var endpoints []*endpointv3.ClusterLoadAssignment
	for _, u := range p.Upstreams {
		if !known[u] && (!u.Forward || u.Servers != nil) {
			endpoints = append(endpoints, f.endpointsOf(u))
		}
	}
	if !changed {
		f.server.UpdateEndpoints(p.Key(), endpoints)
		return
	}
	resources, omitted := state.translator.Translate(p)
	resources.Endpoints = endpoints
	f.setOmitted(p.Key(), omitted)
	f.server.Set(p.Key(), resources)
	state.served = p
	if !f.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	for _, l := range p.Listeners {
		for _, r := range l.Routes {
			f.log.Debug("route", "proxy", p.Key(), "generation", p.Generation, "port", l.Port, "host", r.Host, "cluster", r.Upstream,
				"owner", r.Owner, "source", r.Source)
		}
	}
}

// feedEndpoints passes the endpoints of some Services to the server.
func (f *Feeder) feedEndpoints(services map[string]bool) {
	changed := map[string][]*endpointv3.ClusterLoadAssignment{} // by proxy
	for service := range services {
		for _, t := range f.targets[service] {
			changed[t.proxy] = append(changed[t.proxy], f.endpointsOf(t.upstream))
		}
	}
	for proxy, list := range changed {
		f.server.UpdateEndpoints(proxy, list)
	}
}

func (f *Feeder) endpointsOf(u *model.Upstream) *endpointv3.ClusterLoadAssignment {
	switch {
	case u.Servers != nil && f.NTP != nil:
		return envoy.Assignment(u.Name, f.NTP(u.Name))
	case u.Service == "":
		return envoy.Endpoints(u, nil)
	}
	return envoy.Endpoints(u, f.store.EndpointSlices(u.Service))
}
