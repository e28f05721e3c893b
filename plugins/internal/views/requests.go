package views

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/plugins/internal/nametree"
)

// Requests counts a plugin's queries by server, view, zone and what became of them.
// The series of a zone end with the zone.
type Requests struct {
	*prometheus.CounterVec

	// generation changes whenever series are dropped: whoever kept a counter must look
	// it up again.
	generation atomic.Uint64
	servers    sync.Map // the servers counted for, by address
}

// NewRequests makes the counters of the plugin of that name and registers them.
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
		Help:      "Number of queries, by the client's view, the zone and what became of them: success, nodata, nxdomain, refused, servfail, passed.",
	}, []string{"server", "view", "zone", "answer"})}
}

// What becomes of a query that no zone answers, beside being refused.
const (
	servfail = "servfail" // nothing known yet
	passed   = "passed"   // not ours: the next plugin answers
)

// other counts a query that no zone answers, and that is not passed on either.
func (r *Requests) other(server, view, answer string) {
	r.WithLabelValues(server, view, "", answer).Inc()
}

// answered counts an answer out of a zone.
func (r *Requests) answered(server, view string, zone *nametree.Zone, part nametree.Part, kind nametree.Kind) {
	kept := zone.Tally(part, kind)
	if !r.count(kept, server) {
		r.keep(kept, server, view, zone.Origin, kind.String())
	}
}

// passedOn counts a query of a client that sees s, which the next plugin answers.
func (r *Requests) passedOn(server string, s *Sight, part nametree.Part) {
	kept := &s.passed[part-1]
	if !r.count(kept, server) {
		r.keep(kept, server, s.View, "", passed)
	}
}

// count counts by a counter that was kept: finding one by its labels costs more than
// finding the answer. It reports whether there is one for the server.
func (r *Requests) count(kept *atomic.Pointer[nametree.Tally], server string) bool {
	tally := kept.Load()
	if tally == nil || tally.Server != server || tally.Generation != r.generation.Load() {
		return false
	}
	tally.Counter.Inc()
	return true
}

// keep finds a counter by its labels, keeps it and counts.
func (r *Requests) keep(kept *atomic.Pointer[nametree.Tally], server, view, zone, answer string) {
	r.servers.Store(server, true)
	generation := r.generation.Load() // before the counter: what is dropped meanwhile is found out
	tally := &nametree.Tally{Server: server, Generation: generation, Counter: r.WithLabelValues(server, view, zone, answer)}
	kept.Store(tally)
	tally.Counter.Inc()
}

// drop ends the series of zones that a view has no more.
func (r *Requests) drop(gone map[zoneInView]bool) {
	if len(gone) == 0 {
		return
	}
	// One series at a time, for deleting by a part of the labels would go through all.
	for server := range r.servers.Range {
		for z := range gone {
			for kind := range nametree.Kinds() {
				r.Delete(prometheus.Labels{"server": fmt.Sprint(server), "view": z.view, "zone": z.origin, "answer": kind.String()})
			}
		}
	}
	r.generation.Add(1)
}

// Reset ends all series.
func (r *Requests) Reset() {
	r.CounterVec.Reset()
	r.generation.Add(1)
}

// zoneInView is a zone as one view has it.
type zoneInView struct{ view, origin string }
