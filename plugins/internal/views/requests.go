package views

import (
	"sync/atomic"

	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/plugins/internal/nametree"
)

// Requests counts a plugin's queries by server, view and answer.
type Requests struct {
	*prometheus.CounterVec
}

// NewRequests creates the counters of the named plugin and registers them with Prometheus's default registry. It
// panics if they are registered already.
func NewRequests(name string) *Requests {
	r := newRequests(name)
	prometheus.MustRegister(r.CounterVec)
	return r
}

func newRequests(name string) *Requests {
	return &Requests{CounterVec: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: plugin.Namespace,
		Subsystem: name,
		Name:      "requests_total",
		Help:      "Number of queries by view and answer (success, nodata, nxdomain, refused, servfail, passed).",
	}, []string{"server", "view", "answer"})}
}

// Values of the label answer for queries that no zone answers, besides "refused".
const (
	servfail = "servfail" // no objects are known yet
	passed   = "passed"   // passed to the next plugin
)

// counters are the cached counters of one view and one part: one for each kind of answer, and one for passed queries.
// The cache saves a lookup by labels for each query.
type counters [nametree.Kinds + 1]atomic.Pointer[counter]

// viewCounters are the counters of one view of a server block, by part. Successive tables share them.
type viewCounters [nametree.Apps]counters

// A counter is the counter of one series of a server.
type counter struct {
	prometheus.Counter

	server string
}

// countAnswer counts an answer to a client of view v.
func (r *Requests) countAnswer(server string, v *ClientView, part nametree.Part, kind nametree.Kind) {
	r.count(&v.counters[part-1][kind], server, v.Name, kind.String())
}

// countPassed counts a query of a client of view v that is passed to the next plugin.
func (r *Requests) countPassed(server string, v *ClientView, part nametree.Part) {
	r.count(&v.counters[part-1][nametree.Kinds], server, v.Name, passed)
}

// countWithoutView counts a query of a client without a view.
func (r *Requests) countWithoutView(server, answer string) {
	r.WithLabelValues(server, "", answer).Inc()
}

func (r *Requests) count(cached *atomic.Pointer[counter], server, view, answer string) {
	c := cached.Load()
	if c == nil || c.server != server {
		c = &counter{Counter: r.WithLabelValues(server, view, answer), server: server}
		cached.Store(c)
	}
	c.Inc()
}
