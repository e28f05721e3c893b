package serve

import (
	"math"
	"slices"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
)

// A counter identifies a count of connections refused at a limit, or of a cluster's failures. It has a port, or
// envoy.StatName of an upstream, or neither.
type counter struct {
	name     v1alpha1.LimitName // or failedConnections, or failedHealthChecks
	port     int32
	upstream string
}

// Counters of failures.
const (
	failedConnections  v1alpha1.LimitName = "FailedConnections"
	failedHealthChecks v1alpha1.LimitName = "FailedHealthChecks"
)

// isFailure reports whether failures are counted.
func (c counter) isFailure() bool { return c.name == failedConnections || c.name == failedHealthChecks }

const (
	// recentFailures is how long failures are reported.
	recentFailures = 5 * time.Minute
	// recentLimit is how long a limit is reported after it was found to be reached.
	recentLimit = 10 * time.Minute
)

// growth are recent increases of counters. The zero value has read none yet.
type growth struct {
	totals map[counter]int64 // as of the last reading; nil before the first one
	recent map[counter][]increase
}

// An increase is how much a counter grew between two readings, of which the second one was at this time.
type increase struct {
	at time.Time
	by int64
}

// observe compares counters with the last reading. What they counted before the first one is not known. A counter
// that is less than before began at 0 again, because Envoy restarted. A counter of -1 is a limit that is reached, at
// which nothing is refused.
func (g *growth) observe(totals map[counter]int64, now time.Time) {
	if g.recent == nil {
		g.recent = map[counter][]increase{}
	}
	for c, total := range totals {
		before := g.totals[c]
		if total < before {
			before = 0
		}
		if total < 0 || g.totals != nil && total > before {
			g.recent[c] = append(g.recent[c], increase{now, max(0, total-before)})
		}
	}
	g.totals = totals
	for c, list := range g.recent {
		list = slices.DeleteFunc(list, func(i increase) bool { return now.Sub(i.at) > recentLimit })
		if g.recent[c] = list; len(list) == 0 {
			delete(g.recent, c)
		}
	}
}

// since returns how much a counter has grown since a time.
func (g *growth) since(c counter, from time.Time) int32 {
	sum := int64(0)
	for _, i := range g.recent[c] {
		if !i.at.Before(from) {
			sum += i.by
		}
	}
	return int32(min(sum, math.MaxInt32))
}
