package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
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
)

// recentLimit is how long a limit is reported after it was found to be reached.
const recentLimit = 10 * time.Minute

// maxLimits is the maximum number of limits in a report: a proxy may have thousands of backends.
const maxLimits = 32

// A limit identifies a limit of a proxy. It has a port, or the name of an upstream, or neither.
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

	mu      sync.Mutex
	read    bool                // Envoy's counters have been read
	refused map[limit]int64     // connections refused since Envoy started
	reached map[limit]time.Time // when a limit was last found to be reached
}

// NewLimits returns the Limits of the Envoy with the admin interface, which is configured with the options.
func NewLimits(admin *Admin, options envoy.Options) *Limits {
	return &Limits{admin: admin, options: options, refused: map[limit]int64{}, reached: map[limit]time.Time{}}
}

// Read reads Envoy's counters and returns the limits that were reached within the last ten minutes, sorted. A limit that
// was reached before the first call is not known.
func (l *Limits) Read(ctx context.Context, p *model.ProxyServer, now time.Time) ([]v1alpha1.LimitStatus, error) {
	refused, err := l.admin.refused(ctx)
	if err != nil {
		return nil, err
	}
	values, err := l.admin.runtimeNumbers(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.observe(refused, now)
	var list []v1alpha1.LimitStatus
	for of, at := range l.reached {
		status := l.status(of, p, values)
		status.Refused, status.LastTime = l.refused[of], metav1.NewTime(at)
		list = append(list, status)
	}
	slices.SortFunc(list, func(a, b v1alpha1.LimitStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Backend, b.Backend))
	})
	return list[:min(len(list), maxLimits)], nil
}

// observe compares counters with the previous ones. A counter of -1 is a limit that is reached now, without refused
// connections.
func (l *Limits) observe(refused map[limit]int64, now time.Time) {
	for of, n := range refused {
		if n < 0 || l.read && n > 0 && n != l.refused[of] { // less after a restart of Envoy
			l.reached[of] = now
		}
		refused[of] = max(n, 0)
	}
	l.read, l.refused = true, refused
	maps.DeleteFunc(l.reached, func(_ limit, at time.Time) bool { return now.Sub(at) > recentLimit })
}

// status returns a limit with its value and the field that raises it.
func (l *Limits) status(of limit, p *model.ProxyServer, values map[string]int64) v1alpha1.LimitStatus {
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
	case v1alpha1.LimitBackendConnections:
		s.Backend = of.upstream
		if at := slices.IndexFunc(p.Upstreams, func(u *model.Upstream) bool { return u.Name == of.upstream }); at >= 0 {
			u := p.Upstreams[at]
			s.Value, s.Backend, s.Field = int64(u.MaxConnections), cmp.Or(u.Backend, u.Name), "maxConnections"
			if u.Backend != "" {
				s.Field = "backends[" + u.Backend + "].maxConnections"
			}
		}
	}
	return s
}

// refused returns the number of connections that were refused at each limit since Envoy started, and -1 for the limit of
// its heap while it accepts no connections.
func (a *Admin) refused(ctx context.Context) (map[limit]int64, error) {
	const stopped = "overload.envoy.overload_actions.stop_accepting_connections.active"
	filter := `^(listener\..*\.downstream_(global_)?cx_overflow|listener_local_ratelimit\..*\.rate_limited|cluster\..*\.upstream_cx_overflow|` + stopped + `)$`
	// Only those that were used: there is one for each backend.
	body, err := a.request(ctx, http.MethodGet, "/stats?format=json&usedonly&filter="+url.QueryEscape(filter))
	if err != nil {
		return nil, fmt.Errorf("reading refused connections from Envoy: %w", err)
	}
	var all struct {
		Stats []struct {
			Name  string `json:"name"`
			Value int64  `json:"value"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("decoding refused connections from Envoy: %w", err)
	}
	refused := map[limit]int64{}
	for _, s := range all.Stats {
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
			refused[limit{name: v1alpha1.LimitBackendConnections, upstream: subject}] = s.Value
			continue
		}
		// ADDRESS_PORT of listeners, port-PORT of their rate limits; the listeners of metrics and admin have no port.
		number, err := strconv.ParseUint(subject[strings.LastIndexAny(subject, "_-")+1:], 10, 16)
		port := int32(number) //nolint:gosec // 16 bits
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
	v1alpha1.LimitBackendConnections: "backend_connections", v1alpha1.LimitHeap: "heap",
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
	for _, name := range []v1alpha1.LimitName{v1alpha1.LimitConnections, v1alpha1.LimitBackendConnections, v1alpha1.LimitHeap} {
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
