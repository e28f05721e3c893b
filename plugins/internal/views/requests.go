package views

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/plugins/internal/nametree"
)

// Requests counts a plugin's queries by server, view, zone and answer. The series of a zone are deleted with
// the zone.
type Requests struct {
	*prometheus.CounterVec

	// generation increases whenever series are deleted. Cached counters of an earlier generation are invalid.
	generation atomic.Uint64
	servers    sync.Map // servers that have series, by address
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
		Help:      "Number of queries by view, zone and answer (success, nodata, nxdomain, refused, servfail, passed).",
	}, []string{"server", "view", "zone", "answer"})}
}

// Values of the label answer for queries that no zone answers, besides "refused".
const (
	servfail = "servfail" // no objects are known yet
	passed   = "passed"   // passed to the next plugin
)

// countWithoutZone counts a query that no zone answers and that is not passed to the next plugin.
func (r *Requests) countWithoutZone(server, view, answer string) {
	r.WithLabelValues(server, view, "", answer).Inc()
}

// countAnswer counts an answer from a zone.
func (r *Requests) countAnswer(server, view string, zone *nametree.Zone, part nametree.Part, kind nametree.Kind) {
	cached := zone.Tally(part, kind)
	if !r.countCached(cached, server) {
		r.countAndCache(cached, server, view, zone.Origin, kind.String())
	}
}

// countPassed counts a query of a client of view v that is passed to the next plugin.
func (r *Requests) countPassed(server string, v *ClientView, part nametree.Part) {
	cached := &v.passed[part-1]
	if !r.countCached(cached, server) {
		r.countAndCache(cached, server, v.Name, "", passed)
	}
}

// countCached increments a cached counter, because a look-up by labels costs more than the answer. It reports
// whether the counter is valid and belongs to the server.
func (r *Requests) countCached(cached *atomic.Pointer[nametree.Tally], server string) bool {
	tally := cached.Load()
	if tally == nil || tally.Server != server || tally.Generation != r.generation.Load() {
		return false
	}
	tally.Counter.Inc()
	return true
}

// countAndCache looks a counter up by its labels, caches it and increments it.
func (r *Requests) countAndCache(cached *atomic.Pointer[nametree.Tally], server, view, zone, answer string) {
	r.servers.Store(server, true)
	generation := r.generation.Load() // read first, so that the deletion of a series after it invalidates the counter
	tally := &nametree.Tally{Server: server, Generation: generation, Counter: r.WithLabelValues(server, view, zone, answer)}
	cached.Store(tally)
	tally.Counter.Inc()
}

// drop deletes the series of removed zones.
func (r *Requests) drop(removed map[zoneInView]bool) {
	if len(removed) == 0 {
		return
	}
	// Delete each series by all of its labels: deletion by some of them would scan all series.
	for server := range r.servers.Range {
		for z := range removed {
			for kind := range nametree.Kinds() {
				r.Delete(prometheus.Labels{"server": fmt.Sprint(server), "view": z.view, "zone": z.origin, "answer": kind.String()})
			}
		}
	}
	r.generation.Add(1)
}

// Reset deletes all series.
func (r *Requests) Reset() {
	r.CounterVec.Reset()
	r.generation.Add(1)
}

// A zoneInView identifies a zone in a view.
type zoneInView struct{ view, origin string }
