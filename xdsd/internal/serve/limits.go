package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/envoy"
	"github.com/densityops/oooi/xdsd/internal/message"
	"github.com/densityops/oooi/xdsd/internal/sourcelimit"
)

// maxLimits is the maximum number of limits in a report: a proxy may have thousands of backends.
const maxLimits = 32

// maxSources is the maximum number of sources of a limit in a report.
const maxSources = 8

// limits returns the limits that were reached within the last ten minutes, sorted, and why the source limits do not apply; empty
// if they do. It reads xdsd hold's counters; Envoy's were read before. A limit that was reached before the first
// reading is not known. With an error, it returns what it could read.
func (r *Reporter) limits(ctx context.Context, p *model.ProxyServer, now time.Time) (reached []v1alpha1.LimitStatus, failure string, err error) {
	var from sources
	if r.Holder != "" {
		if from, err = readSources(ctx, r.Holder); err == nil {
			r.held.observe(from.refused(), now)
		}
	}
	values := sync.OnceValue(func() map[string]int64 {
		numbers, unknown := r.Admin.runtimeNumbers(ctx)
		err = errors.Join(err, unknown)
		return numbers
	})
	for _, g := range []*growth{&r.counted, &r.held} {
		for c, list := range g.recent {
			if c.isFailure() {
				continue
			}
			s := r.limit(c, p, values(), from)
			s.Refused, s.LastTime = max(0, g.totals[c]), metav1.NewTime(list[len(list)-1].at)
			reached = append(reached, s)
		}
	}
	slices.SortFunc(reached, func(a, b v1alpha1.LimitStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Backend, b.Backend))
	})
	return reached[:min(len(reached), maxLimits)], from.Failure, err
}

// sources has the fields of sources in the state of xdsd hold that are used here.
type sources struct {
	sourcelimit.Limits
	sourcelimit.State

	Exceptions bool   `json:"exceptions"`
	Failure    string `json:"failure"`
}

// refused returns the number of refused connections.
func (s *sources) refused() map[counter]int64 {
	all := map[counter]int64{}
	for kind, n := range s.Refused {
		all[counter{name: sourceLimits[kind]}] = n
	}
	return all
}

// sourceLimits are the names of the source limits.
var sourceLimits = map[sourcelimit.Kind]v1alpha1.LimitName{
	sourcelimit.Connections: v1alpha1.LimitSourceConnections, sourcelimit.Rate: v1alpha1.LimitSourceConnectionRate,
}

// holderTimeout limits the request to xdsd hold.
const holderTimeout = 2 * time.Second

// readSources reads the source limits from the state of xdsd hold.
func readSources(ctx context.Context, holder string) (sources, error) {
	ctx, cancel := context.WithTimeout(ctx, holderTimeout)
	defer cancel()
	var state struct {
		Sources sources `json:"sources"`
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, holder, http.NoBody)
	if err != nil {
		return sources{}, fmt.Errorf("reading source limits: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return sources{}, fmt.Errorf("reading source limits: %w", err)
	}
	err = json.NewDecoder(response.Body).Decode(&state)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return sources{}, fmt.Errorf("reading source limits from %s: %w", holder, err)
	}
	return state.Sources, nil
}

// limit returns a limit with its value and the field that raises it.
func (r *Reporter) limit(of counter, p *model.ProxyServer, values map[string]int64, from sources) v1alpha1.LimitStatus {
	s := v1alpha1.LimitStatus{Name: of.name, Port: of.port}
	field := fmt.Sprintf("limits.ports[%d]", of.port)
	total := values[message.MaxConnectionsKey]
	switch of.name {
	case v1alpha1.LimitConnections:
		s.Value, s.Field = total, "limits.maxConnections"
		for _, r := range message.Reserved {
			s.Value -= r.Of(total)
		}
	case v1alpha1.LimitPortConnections:
		s.Value, s.Field = values[message.ConnectionLimitKey(of.port)], field+".maxConnections"
		for _, r := range message.Reserved {
			if r.Port == of.port && s.Value == r.Of(total) {
				s.Field = "limits.maxConnections"
			}
		}
	case v1alpha1.LimitConnectionRate:
		port := uint16(of.port) //nolint:gosec // a port
		s.Value, s.Field = int64(r.Options.ConnectionRateOf(port)), "limits.connectionsPerSecond"
		if _, own := r.Options.PortConnectionRates[port]; own {
			s.Field = field + ".connectionsPerSecond"
		}
	case v1alpha1.LimitHeap:
		s.Value, s.Field = values[message.MaxHeapKey], "resources.limits.memory, or limits.maxHeap"
	case v1alpha1.LimitSourceConnections, v1alpha1.LimitSourceConnectionRate:
		kind := sourcelimit.Connections
		s.Value, s.Field = int64(from.Connections), "limits.perSource.maxConnections"
		if of.name == v1alpha1.LimitSourceConnectionRate {
			kind = sourcelimit.Rate
			s.Value, s.Field = int64(from.PerSecond), "limits.perSource.connectionsPerSecond"
		}
		if from.Exceptions {
			s.Value, s.Field = 0, s.Field+" or limits.perSource.networks"
		}
		s.Sources = from.Sources[kind][:min(len(from.Sources[kind]), maxSources)]
	case v1alpha1.LimitBackendConnections, v1alpha1.LimitBackendPendingConnections:
		s.Backend = of.upstream
		if at := slices.IndexFunc(p.Upstreams, func(u *model.Upstream) bool { return envoy.StatName(u.Name) == of.upstream }); at >= 0 {
			u := p.Upstreams[at]
			s.Value, s.Backend, s.Field = int64(u.MaxConnections), cmp.Or(u.Backend, u.Name), "maxConnections"
			if u.Backend != "" {
				s.Field = "backends[" + u.Backend + "].maxConnections"
			}
			if of.name == v1alpha1.LimitBackendPendingConnections {
				s.Value, s.Field = int64(u.MaxPending), "backends["+u.Backend+"].maxPendingConnections"
			}
			if u.UDP {
				s.Value = int64(r.Options.UDPSessionsOf(p, u))
			}
			if u.UDP && (s.Value < int64(u.MaxConnections) || u.Forward) {
				s.Field = "" // the file descriptors limit it, or no field does
			}
		}
	}
	return s
}

// runtimeNumbers returns the numeric values of Envoy's runtime keys.
func (a *Admin) runtimeNumbers(ctx context.Context) (map[string]int64, error) {
	body, err := a.request(ctx, http.MethodGet, "/runtime")
	if err != nil {
		return nil, fmt.Errorf("reading limits from Envoy: %w", err)
	}
	var all struct {
		Entries map[string]struct {
			Value string `json:"final_value"`
		} `json:"entries"`
	}
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("decoding limits from Envoy: %w", err)
	}
	values := map[string]int64{}
	for key, e := range all.Entries {
		if n, err := strconv.ParseFloat(e.Value, 64); err == nil { // such as 5e+08
			values[key] = int64(n)
		}
	}
	return values, nil
}

// limitLabels are the labels of limits in metrics.
var limitLabels = map[v1alpha1.LimitName]string{
	v1alpha1.LimitConnections: "connections", v1alpha1.LimitPortConnections: "port_connections", v1alpha1.LimitConnectionRate: "connection_rate",
	v1alpha1.LimitBackendConnections: "backend_connections", v1alpha1.LimitBackendPendingConnections: "backend_pending_connections", v1alpha1.LimitHeap: "heap",
	v1alpha1.LimitSourceConnections: "source_connections", v1alpha1.LimitSourceConnectionRate: "source_connection_rate",
}

var reachedDesc = desc("xdsd_limit_reached", "Whether a limit was reached within the last ten minutes.", "limit", "port")

// Describe implements prometheus.Collector.
func (*Reporter) Describe(ch chan<- *prometheus.Desc) { ch <- reachedDesc }

// Collect implements prometheus.Collector. It has a series for each reached limit; backends' limits share one.
func (r *Reporter) Collect(ch chan<- prometheus.Metric) {
	reached := map[[2]string]bool{}
	if list := r.reached.Load(); list != nil {
		for _, l := range *list {
			port := ""
			if l.Port != 0 {
				port = strconv.Itoa(int(l.Port))
			}
			reached[[2]string{limitLabels[l.Name], port}] = true
		}
	}
	for labels := range reached {
		ch <- prometheus.MustNewConstMetric(reachedDesc, prometheus.GaugeValue, 1, labels[:]...)
	}
}
