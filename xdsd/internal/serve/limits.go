package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
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

// recentLimit is how long a limit is reported after it was found to be reached.
const recentLimit = 10 * time.Minute

// maxLimits is the maximum number of limits in a report: a proxy may have thousands of backends.
const maxLimits = 32

// maxSources is the maximum number of sources of a limit in a report.
const maxSources = 8

// A limit identifies a limit of a proxy. It has a port, or envoy.StatName of an upstream, or neither.
type limit struct {
	name     v1alpha1.LimitName
	port     int32
	upstream string
}

// Limits finds out which limits of an Envoy its clients reach. It implements prometheus.Collector, and all methods are
// safe for concurrent use.
type Limits struct {
	admin   *Admin
	options envoy.Options
	holder  string

	mu                    sync.Mutex
	readEnvoy, readHolder bool                // their counters have been read
	refused               map[limit]int64     // connections refused, by the last reading
	reached               map[limit]time.Time // when a limit was last found to be reached
}

// NewLimits returns the Limits of the Envoy with the admin interface, which is configured with the options. holder is the
// URL of the state of the xdsd hold that limits its clients; empty for none.
func NewLimits(admin *Admin, options envoy.Options, holder string) *Limits {
	return &Limits{admin: admin, options: options, holder: holder, refused: map[limit]int64{}, reached: map[limit]time.Time{}}
}

// Read reads the counters of Envoy and of xdsd hold, and returns the limits that were reached within the last ten minutes,
// sorted, and why the limits of sources do not apply; empty if they do. A limit that was reached before the first call is
// not known. With an error, it returns what it could read.
func (l *Limits) Read(ctx context.Context, p *model.ProxyServer, now time.Time) (reached []v1alpha1.LimitStatus, failure string, err error) {
	refused, err := l.admin.refused(ctx)
	var held sources
	var heldErr error
	type reachedLimit struct {
		limit   limit
		refused int64
		at      time.Time
	}
	var found []reachedLimit
	if l.holder != "" {
		held, heldErr = readSources(ctx, l.holder)
	}
	l.mu.Lock()
	if err == nil {
		l.observe(refused, l.readEnvoy, now)
		l.readEnvoy = true
	}
	if l.holder != "" && heldErr == nil {
		l.observe(held.refused(), l.readHolder, now)
		l.readHolder = true
	}
	maps.DeleteFunc(l.reached, func(_ limit, at time.Time) bool { return now.Sub(at) > recentLimit })
	for of, at := range l.reached {
		found = append(found, reachedLimit{of, l.refused[of], at})
	}
	l.mu.Unlock()
	var values map[string]int64
	var valuesErr error
	if len(found) > 0 {
		values, valuesErr = l.admin.runtimeNumbers(ctx)
	}
	for _, f := range found {
		status := l.status(f.limit, p, values, held)
		status.Refused, status.LastTime = f.refused, metav1.NewTime(f.at)
		reached = append(reached, status)
	}
	slices.SortFunc(reached, func(a, b v1alpha1.LimitStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Backend, b.Backend))
	})
	return reached[:min(len(reached), maxLimits)], held.Failure, errors.Join(err, valuesErr, heldErr)
}

// sources has the fields of sources in the state of xdsd hold that are used here.
type sources struct {
	sourcelimit.Limits
	sourcelimit.State

	Exceptions bool   `json:"exceptions"`
	Failure    string `json:"failure"`
}

// refused returns the number of refused connections.
func (s *sources) refused() map[limit]int64 {
	all := map[limit]int64{}
	for kind, n := range s.Refused {
		all[limit{name: sourceLimits[kind]}] = n
	}
	return all
}

// sourceLimits are the names of the limits of sources.
var sourceLimits = map[sourcelimit.Kind]v1alpha1.LimitName{
	sourcelimit.Connections: v1alpha1.LimitSourceConnections, sourcelimit.Rate: v1alpha1.LimitSourceConnectionRate,
}

// holderTimeout limits the request to xdsd hold.
const holderTimeout = 2 * time.Second

// readSources reads the limits of sources from the state of xdsd hold.
func readSources(ctx context.Context, holder string) (sources, error) {
	ctx, cancel := context.WithTimeout(ctx, holderTimeout)
	defer cancel()
	var state struct {
		Sources sources `json:"sources"`
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, holder, http.NoBody)
	if err != nil {
		return sources{}, fmt.Errorf("reading limits of sources: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return sources{}, fmt.Errorf("reading limits of sources: %w", err)
	}
	err = json.NewDecoder(response.Body).Decode(&state)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return sources{}, fmt.Errorf("reading limits of sources from %s: %w", holder, err)
	}
	return state.Sources, nil
}

// observe compares counters with the previous ones, if there are any. A counter of -1 is a limit that is reached now,
// without refused connections.
func (l *Limits) observe(refused map[limit]int64, again bool, now time.Time) {
	for of, n := range refused {
		if n < 0 || again && n > 0 && n != l.refused[of] { // less after a restart of Envoy
			l.reached[of] = now
		}
		l.refused[of] = max(n, 0)
	}
}

// status returns a limit with its value and the field that raises it.
func (l *Limits) status(of limit, p *model.ProxyServer, values map[string]int64, from sources) v1alpha1.LimitStatus {
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
		s.Value, s.Field = int64(l.options.ConnectionRateOf(port)), "limits.connectionsPerSecond"
		if _, own := l.options.PortConnectionRates[port]; own {
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
				s.Value = int64(l.options.UDPSessionsOf(p, u))
			}
			if u.UDP && s.Value < int64(u.MaxConnections) {
				s.Field = "" // the file descriptors limit it
			}
		}
	}
	return s
}

// refused returns the number of connections that were refused at each limit since Envoy started, and -1 for the limit of
// its heap while it accepts no connections.
func (a *Admin) refused(ctx context.Context) (map[limit]int64, error) {
	const stopped = "overload.envoy.overload_actions.stop_accepting_connections.active"
	filter := `^(listener\..*\.downstream_(global_)?cx_overflow|listener_local_ratelimit\..*\.rate_limited|` +
		`cluster\..*\.(upstream_cx_overflow|` + message.PendingOverflowStat + `)|` + stopped + `)$`
	stats, err := a.stats(ctx, "usedonly", filter) // there is one for each backend
	if err != nil {
		return nil, fmt.Errorf("reading refused connections from Envoy: %w", err)
	}
	refused := map[limit]int64{}
	for _, s := range stats {
		if s.Name == stopped {
			if s.Value > 0 {
				refused[limit{name: v1alpha1.LimitHeap}] = -1
			}
			continue
		}
		kind, rest, _ := strings.Cut(s.Name, ".")
		last := strings.LastIndex(rest, ".")
		subject, stat := rest[:last], rest[last+1:]
		if kind == "cluster" {
			name := v1alpha1.LimitBackendConnections
			if stat == message.PendingOverflowStat {
				name = v1alpha1.LimitBackendPendingConnections
			}
			refused[limit{name: name, upstream: subject}] = s.Value
			continue
		}
		// ADDRESS_PORT of listeners, port-PORT of their rate limits; the listeners of metrics and admin have no port.
		number, err := strconv.ParseUint(subject[strings.LastIndexAny(subject, "_-")+1:], 10, 16)
		port := int32(number)
		switch {
		case err != nil:
		case stat == "rate_limited":
			refused[limit{name: v1alpha1.LimitConnectionRate, port: port}] = s.Value
		case stat == "downstream_cx_overflow":
			refused[limit{name: v1alpha1.LimitPortConnections, port: port}] = s.Value
		default:
			refused[limit{name: v1alpha1.LimitConnections}] += s.Value
		}
	}
	return refused, nil
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

// Labels of the metrics by the name of a limit.
var limitLabels = map[v1alpha1.LimitName]string{
	v1alpha1.LimitConnections: "connections", v1alpha1.LimitPortConnections: "port_connections", v1alpha1.LimitConnectionRate: "connection_rate",
	v1alpha1.LimitBackendConnections: "backend_connections", v1alpha1.LimitBackendPendingConnections: "backend_pending_connections", v1alpha1.LimitHeap: "heap",
	v1alpha1.LimitSourceConnections: "source_connections", v1alpha1.LimitSourceConnectionRate: "source_connection_rate",
}

var (
	refusedDesc = desc("limit_refused_total", "Connections refused at a limit since Envoy started, as last read from Envoy.", "limit", "port")
	reachedDesc = desc("limit_reached", "Whether a limit was reached within the last ten minutes.", "limit", "port")
)

// Describe implements prometheus.Collector.
func (*Limits) Describe(ch chan<- *prometheus.Desc) {
	ch <- refusedDesc
	ch <- reachedDesc
}

// Collect implements prometheus.Collector. It has a series for each limit without a port, and for each port one of each
// limit that was reached; the series of backends are added up.
func (l *Limits) Collect(ch chan<- prometheus.Metric) {
	type series struct{ limit, port string }
	refused, reached := map[series]int64{}, map[series]float64{}
	for _, name := range []v1alpha1.LimitName{v1alpha1.LimitConnections, v1alpha1.LimitBackendConnections,
		v1alpha1.LimitBackendPendingConnections, v1alpha1.LimitHeap} {
		refused[series{limitLabels[name], ""}] = 0
	}
	of := func(x limit) series {
		s := series{limit: limitLabels[x.name]}
		if x.port != 0 {
			s.port = strconv.Itoa(int(x.port))
		}
		return s
	}
	l.mu.Lock()
	for x, n := range l.refused {
		refused[of(x)] += n
	}
	for x := range l.reached {
		reached[of(x)] = 1
	}
	l.mu.Unlock()
	for s, n := range refused {
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(n), s.limit, s.port)
		ch <- prometheus.MustNewConstMetric(reachedDesc, prometheus.GaugeValue, reached[s], s.limit, s.port)
	}
}
