// Package backends probes, from the pod of a proxy and without Envoy, whether the endpoints of its backends complete TLS
// handshakes, and whether the hosted API server is ready. Envoy's health checks end with the TCP connection, which the
// kernel accepts even for a process that hangs.
package backends

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
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
	// interval is the time between two probes of the same target.
	interval = 15 * time.Second
	// maxTargets limits the targets of one round, up to the endpoints of one upstream. With more, each round continues where the
	// previous one ended.
	maxTargets = 16
	// maxConcurrent limits concurrent probes, and connectTimeout one connection.
	maxConcurrent  = 8
	connectTimeout = 2 * time.Second
	// maxNames limits the names for which one backend is probed, since a server may have a certificate for each.
	maxNames = 4
	// appsLabel is the label of the probed name in an apps domain, which the router has no route for.
	appsLabel = "oooi-probe"
	// apiServer is the Service of a hosted API server.
	apiServer = "kube-apiserver"
)

// A Prober probes the backends of one proxy periodically.
type Prober struct {
	Store *watch.Store
	// Proxy is the ProxyServer, "namespace/name".
	Proxy string

	mu      sync.Mutex
	results map[target]result
	// empty has the upstreams whose Service has no ready endpoint, by name, with the time of the first such round.
	empty map[string]time.Time
	next  int // index of the first upstream of the next round, modulo their number
}

// result is the last result of a target.
type result struct {
	probe.Backend

	// at is the time of the last probe, and since, for each of its faults, that of the first of the successive probes with it.
	at    time.Time
	since map[problem.Code]time.Time
}

// target is an endpoint of an upstream, and a name that the proxy routes to it.
type target struct {
	upstream, name string
	address        netip.AddrPort
	api            bool
	proxyProtocol  v1alpha1.ProxyProtocol
}

func compareTargets(a, b target) int {
	return cmp.Or(strings.Compare(a.upstream, b.upstream), a.address.Compare(b.address), strings.Compare(a.name, b.name))
}

// Run probes until ctx is done.
func (p *Prober) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		p.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Results returns the last result of each target, sorted by upstream, address and name.
func (p *Prober) Results() []probe.Backend {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := []probe.Backend{}
	for _, r := range p.results {
		list = append(list, r.Backend)
	}
	slices.SortFunc(list, compareBackends)
	return list
}

func compareBackends(a, b probe.Backend) int {
	return compareTargets(target{upstream: a.Upstream, name: a.Name, address: a.Address}, target{upstream: b.Upstream, name: b.Name, address: b.Address})
}

// round probes the endpoints of the next upstreams, and forgets those that no longer exist.
func (p *Prober) round(ctx context.Context) {
	proxy := &model.ProxyServer{}
	if s := p.Store.Snapshot(); s != nil {
		proxy = cmp.Or(s.ProxyServer(p.Proxy), proxy)
	}
	all, visited := p.nextTargets(proxy)
	var group sync.WaitGroup
	semaphore := make(chan struct{}, maxConcurrent)
	for _, t := range all {
		group.Go(func() {
			semaphore <- struct{}{}
			defer func() { <-semaphore }()
			if b := ask(ctx, t); ctx.Err() == nil {
				p.mu.Lock()
				defer p.mu.Unlock()
				if p.results == nil {
					p.results = map[target]result{}
				}
				p.results[t] = p.results[t].next(&b, time.Now())
			}
		})
	}
	group.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	exists := map[string]bool{}
	for _, u := range proxy.Upstreams {
		exists[u.Name] = true
	}
	maps.DeleteFunc(p.empty, func(upstream string, _ time.Time) bool { return !exists[upstream] })
	maps.DeleteFunc(p.results, func(t target, _ result) bool {
		_, visits := visited[t.upstream]
		return !exists[t.upstream] || visits && !slices.Contains(all, t)
	})
	for upstream, isEmpty := range visited {
		_, known := p.empty[upstream]
		switch {
		case !isEmpty:
			delete(p.empty, upstream)
		case !known:
			if p.empty == nil {
				p.empty = map[string]time.Time{}
			}
			p.empty[upstream] = time.Now()
		}
	}
}

// nextTargets returns the targets of the next upstreams that together have about maxTargets, and for each of these upstreams whether
// its Service exists and has no ready endpoint. It omits backends whose protocol may not be TLS. Of applications, the router that
// terminates their TLS connections is a target.
func (p *Prober) nextTargets(proxy *model.ProxyServer) (list []target, visited map[string]bool) {
	byUpstream := names(proxy)
	visited = map[string]bool{}
	for range proxy.Upstreams {
		u := proxy.Upstreams[p.next%len(proxy.Upstreams)]
		p.next++
		visited[u.Name] = false
		if u.Missing == "" {
			addresses := envoy.Targets(u, p.Store.EndpointSlices(u.Service))
			visited[u.Name] = u.Service != "" && len(addresses) == 0
			_, service, _ := strings.Cut(u.Service, "/")
			for _, address := range addresses {
				for _, name := range byUpstream[u.Name] {
					list = append(list, target{u.Name, name, address, u.Backend == "" && service == apiServer, u.ProxyProtocol})
				}
			}
		}
		if len(list) >= maxTargets {
			break
		}
	}
	return list, visited
}

// names returns the names that a proxy routes to each upstream over TLS: those that objects define, or if there are none,
// one that clients use by convention. For apps, it is one in the domain: whether the router has certificates for other names
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
func ask(ctx context.Context, t target) probe.Backend {
	b := probe.Backend{Upstream: t.upstream, Handshake: probe.Handshake{Name: t.name, Address: t.address}}
	conn := tlsprobe.Handshake(ctx, &net.Dialer{Timeout: connectTimeout}, t.proxyProtocol, &b.Handshake)
	if conn == nil {
		if !b.Connected {
			b.Interface = interfaceTo(t.address.Addr())
		}
		return b
	}
	defer func() { _ = conn.Close() }() // nothing that was sent is of use later
	if t.api {
		askReady(ctx, t, conn, &b)
	}
	return b
}

// askReady requests /readyz of an API server, without credentials. A response that is not HTTP, or a connection that is
// closed, is not a fault of an API server: another server is there, or it restarts.
func askReady(ctx context.Context, t target, conn *tls.Conn, b *probe.Backend) {
	response, err := tlsprobe.Get(ctx, conn, &probe.Target{Name: t.name, Address: t.address, Path: "/readyz"})
	switch {
	case errors.Is(err, tlsprobe.ErrNoResponse):
		b.ReadyError = fmt.Sprintf("no response to GET /readyz within %s", tlsprobe.ResponseTimeout)
	case err == nil:
		failed := response.FailedChecks()
		b.Status, b.Failed = response.Status, failed[:min(len(failed), maxFailed)]
	}
}

// maxFailed limits the failed checks that are kept of a response of /readyz.
const maxFailed = 5
