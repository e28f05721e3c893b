// Package backends probes, from the pod of a proxy and without Envoy, whether the endpoints of its backends complete TLS
// handshakes. Envoy's health checks end with the TCP connection, which the
// kernel accepts even for a process that hangs.
package backends

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/envoy"
	tlsprobe "github.com/densityops/oooi/xdsd/internal/probe"
)

const (
	// interval is the time between two probes of the same target, and tick that between rounds, and between two probes of a target
	// with a fault.
	interval = 30 * time.Second
	tick     = 15 * time.Second
	// maxTargets limits the targets of one round, and maxHealthy those without a fault that were probed before: a proxy may have
	// thousands. With more, each round probes the least recently probed ones.
	maxTargets = 8
	maxHealthy = 4
	// connectTimeout limits one connection.
	connectTimeout = 2 * time.Second
	// maxNames limits the names for which one backend is probed, since a server may have a certificate for each.
	maxNames = 4
	// appsLabel is the label of the probed name in an apps domain. The router lacks a route for it.
	appsLabel = "oooi-probe"
)

// A Prober probes the backends of one proxy periodically.
type Prober struct {
	Store *watch.Store
	// Proxy is the ProxyServer, "namespace/name".
	Proxy string

	mu sync.Mutex
	// results has a result for each target, in the order of upstreams. They are replaced, not changed.
	results []*result
	// empty contains the upstreams whose Service exists and lacks a ready endpoint, by name, with the time of the first such round.
	empty map[string]time.Time
}

// result is the last result of a target.
type result struct {
	probe.Backend

	target target
	// at is the time of the probe; zero for none yet. fault is its fault, empty for none, and since the time of the first of the successive probes with it.
	at, since time.Time
	fault     problem.Code
}

// target is an endpoint of an upstream, and a name that the proxy routes to it.
type target struct {
	upstream, name string
	address        netip.AddrPort
	proxyProtocol  v1alpha1.ProxyProtocol
}

// Run probes until ctx is done.
func (p *Prober) Run(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		p.round(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Results returns the last result of each target that was probed.
func (p *Prober) Results() []probe.Backend {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := []probe.Backend{}
	for _, r := range p.results {
		if !r.at.IsZero() {
			list = append(list, r.Backend)
		}
	}
	return list
}

// round probes the targets that are due, and drops targets that no longer exist.
func (p *Prober) round(ctx context.Context, now time.Time) {
	proxy := &model.ProxyServer{}
	if s := p.Store.Snapshot(); s != nil {
		proxy = cmp.Or(s.ProxyServer(p.Proxy), proxy)
	}
	targets, empty := p.targets(proxy)
	known := map[target]*result{}
	for _, r := range p.results { // only this goroutine writes it
		known[r.target] = r
	}
	results := make([]*result, len(targets))
	var due, healthy []int // indices of results
	for i, t := range targets {
		r := known[t]
		if r == nil {
			r = &result{target: t}
		}
		results[i] = r
		switch {
		case r.fault != "" || r.at.IsZero():
			due = append(due, i)
		case now.Sub(r.at) >= interval:
			healthy = append(healthy, i)
		}
	}
	oldest := func(a, b int) int { return results[a].at.Compare(results[b].at) }
	slices.SortStableFunc(due, oldest)
	slices.SortStableFunc(healthy, oldest)
	due = append(due, healthy[:min(len(healthy), maxHealthy)]...)
	var group sync.WaitGroup
	for _, i := range due[:min(len(due), maxTargets)] {
		group.Go(func() { results[i] = results[i].next(ask(ctx, results[i].target), now) })
	}
	group.Wait()
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for upstream := range empty {
		if first, known := p.empty[upstream]; known {
			empty[upstream] = first
		} else {
			empty[upstream] = now
		}
	}
	p.results, p.empty = results, empty
}

// targets returns the targets of a proxy, and its upstreams whose Service exists without a ready endpoint. It omits
// backends whose protocol may not be TLS. For applications, the target is the router that terminates their TLS
// connections.
func (p *Prober) targets(proxy *model.ProxyServer) (list []target, empty map[string]time.Time) {
	byUpstream := names(proxy)
	empty = map[string]time.Time{}
	for _, u := range proxy.Upstreams {
		if u.Missing != "" {
			continue
		}
		addresses := envoy.Targets(u, p.Store.EndpointSlices(u.Service))
		if u.Service != "" && len(addresses) == 0 {
			empty[u.Name] = time.Time{}
		}
		for _, address := range addresses {
			for _, name := range byUpstream[u.Name] {
				list = append(list, target{u.Name, name, address, u.ProxyProtocol})
			}
		}
	}
	return list, empty
}

// names returns the names that a proxy routes to each upstream over TLS: names that objects define, or else one that
// clients use by convention. For apps, it is one in the domain: whether the router has certificates for other names
// is a matter of the hosted cluster.
func names(p *model.ProxyServer) map[string][]string {
	defined, conventional := map[string][]string{}, map[string][]string{}
	apps := map[string]bool{}
	for _, u := range p.Upstreams {
		apps[u.Name] = u.FromVLAN
	}
	for _, l := range p.Listeners {
		for _, r := range l.Routes {
			domain, wildcard := strings.CutPrefix(r.Host, "*")
			switch {
			case l.HTTP || l.UDP || r.Plain || wildcard != apps[r.Upstream]:
			case wildcard:
				conventional[r.Upstream] = append(conventional[r.Upstream], appsLabel+domain)
			case r.Conventional():
				conventional[r.Upstream] = append(conventional[r.Upstream], r.Host)
			default:
				defined[r.Upstream] = append(defined[r.Upstream], r.Host)
			}
		}
	}
	for upstream, list := range defined {
		slices.Sort(list)
		list = slices.Compact(list)
		defined[upstream] = list[:min(len(list), maxNames)]
	}
	for upstream, list := range conventional {
		if defined[upstream] == nil {
			defined[upstream] = []string{slices.Min(list)}
		}
	}
	return defined
}

// ask probes one target.
func ask(ctx context.Context, t target) *probe.Backend {
	b := &probe.Backend{Upstream: t.upstream, Handshake: probe.Handshake{Name: t.name, Address: t.address}}
	conn := tlsprobe.Handshake(ctx, &net.Dialer{Timeout: connectTimeout}, t.proxyProtocol, &b.Handshake)
	if conn == nil {
		if !b.Connected {
			b.Interface = interfaceTo(t.address.Addr())
		}
		return b
	}
	_ = conn.Close() // no data was sent
	return b
}
