package control

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/neighbours"
)

// A SilentService is a cluster IP of a proxy's Service that accepts no connections of this replica. kube-proxy or the network
// plugin forwards them on each node.
type SilentService struct {
	// Infra is "namespace/name" of the Infra.
	Infra   string         `json:"infra"`
	Address netip.AddrPort `json:"address"`
	// Error is the error of the last connection, and Since the time of the first one that failed.
	Error string    `json:"error"`
	Since time.Time `json:"since"`
}

// minFailures is the number of failed connections in a row from which a Service counts as silent.
const minFailures = 2

// Services is the set of the cluster IPs of all proxies, with the results of the last connections. The zero value is empty
// and ready for use. It is safe for concurrent use.
type Services struct {
	mu  sync.Mutex
	all map[string]map[netip.AddrPort]serviceResult // failed connections, by Infra
}

type serviceResult struct {
	failures int
	since    time.Time
	err      error
}

// record replaces the results of an Infra.
func (s *Services) record(infra string, results map[netip.AddrPort]error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := map[netip.AddrPort]serviceResult{}
	for address, err := range results {
		if err == nil {
			continue
		}
		r, known := s.all[infra][address]
		if !known {
			r.since = now
		}
		failed[address] = serviceResult{r.failures + 1, r.since, err}
	}
	if s.all == nil {
		s.all = map[string]map[netip.AddrPort]serviceResult{}
	}
	if s.all[infra] = failed; len(failed) == 0 {
		delete(s.all, infra)
	}
}

// List returns the silent Services, sorted by Infra and address.
func (s *Services) List() []SilentService {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []SilentService{}
	for infra, results := range s.all {
		for address, r := range results {
			if r.failures >= minFailures {
				list = append(list, SilentService{infra, address, r.err.Error(), r.since})
			}
		}
	}
	slices.SortFunc(list, func(a, b SilentService) int {
		return cmp.Or(cmp.Compare(a.Infra, b.Infra), a.Address.Compare(b.Address))
	})
	return list
}

// probeServices connects to the cluster IPs of the Service of an Infra's proxy, at its first TCP port, if the proxy is ready.
func (r *infraReconciler) probeServices(ctx context.Context, f *infraFacts, x *index) {
	results := map[netip.AddrPort]error{}
	if port := proxyPort(f, x); port != 0 && f.proxy.ready() && f.infra.Proxy != nil && f.infra.Proxy.Service == f.infra.Key()+"-"+v1alpha1.ComponentProxy {
		for _, a := range f.infra.Proxy.ClusterIPs {
			at := netip.AddrPortFrom(a, port)
			if err := r.probe.connect(ctx, at); !neighbours.Local(err) {
				results[at] = err
			}
		}
	}
	if ctx.Err() == nil {
		r.services.record(f.infra.Key(), results, time.Now().UTC())
	}
}

// proxyPort returns the first TCP port of the proxies of an Infra, 0 if there is none.
func proxyPort(f *infraFacts, x *index) uint16 {
	for _, name := range f.proxies {
		p := x.proxies[name]
		if p == nil {
			continue
		}
		for _, l := range p.Listeners {
			if !l.UDP {
				return uint16(l.Port) //nolint:gosec // a port
			}
		}
	}
	return 0
}
