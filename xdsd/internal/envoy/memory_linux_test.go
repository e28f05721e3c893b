package envoy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

// TestMemoryOfRoutes checks that 1,000 routes, each with a separate backend, cost Envoy less than 100 MB, and that the
// number of series depends on the routes as documented in docs/reference/metrics.md.
func TestMemoryOfRoutes(t *testing.T) {
	p := startProxy(t, 4)
	p.send(t, mustTranslate(t, routes(0), Options{}))
	before, series, scrape := p.heap(t), p.series(t), len(p.scrape(t))
	for _, n := range lab.Length([]int{1000}, []int{1000, 5000}) {
		p.send(t, mustTranslate(t, routes(n), Options{}))
		used, more := p.heap(t)-before, p.series(t)-series
		t.Logf("%d routes take %d bytes of memory, %d series and %d bytes of a scrape", n, used, more, len(p.scrape(t))-scrape)
		if limit := n * 100_000; used > limit {
			t.Errorf("%d routes take %d bytes, more than %d", n, used, limit)
		}
		if want := n * (seriesOfName + seriesOfBackend); more != want {
			t.Errorf("%d routes have %d series, want %d", n, more, want)
		}
	}
}

// Series of each name on each port, and of each backend.
const seriesOfName, seriesOfBackend = 3, 9

// routes returns a proxy with a listener and n names, each with its own upstream.
func routes(n int) *model.ProxyServer {
	infra := model.Ref{Kind: "Infra", Namespace: proxyName.Namespace, Name: proxyName.Name}
	p := &model.ProxyServer{Ref: owner, Infra: &infra}
	l := &model.Listener{Port: 443}
	for i := range n {
		u := upstream(fmt.Sprintf("clusters-demo/r%05d/443", i), netip.MustParseAddrPort("10.128.0.1:8443"))
		u.Owner = infra
		p.Upstreams = append(p.Upstreams, u)
		l.Routes = append(l.Routes, model.Route{Host: fmt.Sprintf("r%05d.apps.mgmt.example.com", i), Upstream: u.Name, Owner: infra})
	}
	p.Listeners = []*model.Listener{l}
	return p
}

// heap returns the bytes that Envoy has allocated.
func (p *proxy) heap(t *testing.T) int {
	t.Helper()
	text, err := p.envoy.Get(t.Context(), "/memory")
	lab.Must(t, err)
	var memory struct {
		Allocated int `json:"allocated,string"`
	}
	lab.Must(t, json.Unmarshal(text, &memory))
	return memory.Allocated
}

// series returns the number of series that Prometheus reads.
func (p *proxy) series(t *testing.T) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(p.scrape(t)) {
		if strings.HasPrefix(line, "envoy_cluster_upstream") || strings.HasPrefix(line, "envoy_cluster_membership") || strings.HasPrefix(line, "envoy_tcp_") {
			n++
		}
	}
	return n
}

// scrape returns the page that Prometheus reads.
func (p *proxy) scrape(t *testing.T) string {
	t.Helper()
	text, err := p.envoy.Get(t.Context(), "/stats/prometheus")
	lab.Must(t, err)
	return string(text)
}
