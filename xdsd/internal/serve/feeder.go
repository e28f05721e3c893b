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

// Feeder feeds an ADS server from a store.
type Feeder struct {
	store   *watch.Store
	server  *ads.Server
	options envoy.Options
	log     *slog.Logger
	wake    chan struct{}

	mu       sync.Mutex
	snapshot bool            // there is a new one
	services map[string]bool // whose endpoints have changed; "" for any

	// What Run alone uses.
	live      bool                         // what was fed last was made from the API server
	upstreams map[string][]*model.Upstream // by Service
	proxies   map[string]fed               // what is served
	endpoints map[string]bool              // names of what was handed over
}

// fed is a proxy as it was handed over last.
type fed struct {
	*model.ProxyServer
	wrong string // why it is not what is served
}

// NewFeeder makes a Feeder. The options are for all proxies.
func NewFeeder(store *watch.Store, server *ads.Server, options envoy.Options, log *slog.Logger) *Feeder {
	return &Feeder{
		store: store, server: server, options: options, log: log, wake: make(chan struct{}, 1),
		services: map[string]bool{}, proxies: map[string]fed{}, endpoints: map[string]bool{},
	}
}

// Run feeds the server until the context ends. What the store knows from its file is
// served at once, and until it knows anything nothing is: an empty configuration would
// end every connection.
func (f *Feeder) Run(ctx context.Context) {
	defer f.store.Subscribe(f.noteSnapshot)()
	defer f.store.SubscribeEndpoints(f.noteEndpoints)()
	f.noteSnapshot()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		f.mu.Lock()
		snapshot, services := f.snapshot, f.services
		f.snapshot, f.services = false, map[string]bool{}
		f.mu.Unlock()
		if snapshot || services[""] {
			live := f.store.Status().Synced
			f.feed(f.store.Snapshot(), services[""] || live != f.live) //nolint:contextcheck // what is handed over is whole, also while we end
			f.live = live
		}
		f.feedEndpoints(services)
	}
}

func (f *Feeder) noteSnapshot() {
	f.mu.Lock()
	f.snapshot = true
	f.mu.Unlock()
	f.rouse()
}

// noteEndpoints takes down that the endpoints of a Service have changed, or with "" any.
func (f *Feeder) noteEndpoints(service string) {
	f.mu.Lock()
	f.services[service] = true
	f.mu.Unlock()
	f.rouse()
}

func (f *Feeder) rouse() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// feed hands over what is new in a snapshot: endpoints before the clusters that need them,
// and what is gone last. With all, endpoints are read again that nothing else is new about.
// One proxy's fault keeps nothing from the others.
func (f *Feeder) feed(s *model.Snapshot, all bool) {
	if s == nil {
		return
	}
	upstreams := map[string][]*model.Upstream{}
	endpoints := map[string]*endpointv3.ClusterLoadAssignment{}
	names := map[string]bool{}
	for _, p := range s.ProxyServers {
		same := f.proxies[p.Key()].ProxyServer == p
		for _, u := range p.Upstreams {
			if u.Service != "" {
				upstreams[u.Service] = append(upstreams[u.Service], u)
			}
			names[u.Name] = true
			if (all || !same) && endpoints[u.Name] == nil { // else another proxy has it, too
				endpoints[u.Name] = f.endpointsOf(u)
			}
		}
	}
	f.upstreams = upstreams
	if err := f.server.UpdateEndpoints(endpoints, nil); err != nil {
		f.log.Error("endpoints are not served", "err", err)
	}
	gone := maps.Clone(f.proxies)
	for _, p := range s.ProxyServers {
		delete(gone, p.Key())
		if f.proxies[p.Key()].ProxyServer != p {
			f.feedProxy(p)
		}
	}
	for name := range gone {
		f.server.Delete(name)
		delete(f.proxies, name)
		f.log.Info("proxy is gone", "proxy", name)
	}
	var removed []string
	for name := range f.endpoints {
		if !names[name] {
			removed = append(removed, name)
		}
	}
	f.endpoints = names
	if err := f.server.UpdateEndpoints(nil, removed); err != nil {
		f.log.Error("endpoints are not removed", "err", err)
	}
}

// feedProxy hands over one proxy. What cannot be served is logged when that is news,
// and the configuration of before stays.
func (f *Feeder) feedProxy(p *model.ProxyServer) {
	resources, err := envoy.Translate(p, f.options)
	if err == nil {
		err = f.server.Set(p.Key(), resources)
	}
	wrong := ""
	if err != nil {
		wrong = err.Error()
	}
	before := f.proxies[p.Key()]
	f.proxies[p.Key()] = fed{p, wrong}
	if wrong != "" && wrong != before.wrong {
		f.log.Error("invalid configuration; keeping the previous one", "proxy", p.Key(), "err", err)
	}
	for _, l := range p.Listeners {
		for _, r := range l.Routes {
			f.log.Debug("route", "proxy", p.Key(), "generation", p.Generation, "port", l.Port, "host", r.Host, "cluster", r.Upstream, "owner", r.Owner, "source", r.Source)
		}
	}
}

// feedEndpoints hands over the endpoints of some Services.
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
		f.log.Error("endpoints are not served", "err", err)
	}
}

func (f *Feeder) endpointsOf(u *model.Upstream) *endpointv3.ClusterLoadAssignment {
	if u.Service == "" {
		return envoy.Endpoints(u, nil)
	}
	return envoy.Endpoints(u, f.store.EndpointSlices(u.Service))
}
