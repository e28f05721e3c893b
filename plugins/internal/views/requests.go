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
	r := &Requests{CounterVec: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: plugin.Namespace,
		Subsystem: name,
		Name:      "requests_total",
		Help:      "Number of queries, by the client's view, the zone and what became of them: success, nodata, nxdomain, refused, servfail, passed.",
	}, []string{"server", "view", "zone", "answer"})}
	prometheus.MustRegister(r.CounterVec)
	return r
}

// What becomes of a query that no zone answers, beside being refused.
const (
	servfail = "servfail" // nothing known yet
	passed   = "passed"   // not ours: the next plugin answers
)

// other counts a query that no zone answers.
func (r *Requests) other(server, view, answer string) {
	r.WithLabelValues(server, view, "", answer).Inc()
}

// answered counts an answer out of a zone. Finding a counter by its labels costs more
// than finding the answer, so the zone keeps it.
func (r *Requests) answered(server, view string, zone *nametree.Zone, part nametree.Part, kind nametree.Kind) {
	kept, generation := zone.Tally(part, kind), r.generation.Load()
	tally := kept.Load()
	if tally == nil || tally.Server != server || tally.Generation != generation {
		r.servers.Store(server, true)
		tally = &nametree.Tally{
			Server: server, Generation: generation, Counter: r.WithLabelValues(server, view, zone.Origin, kind.String()),
		}
		kept.Store(tally)
	}
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
