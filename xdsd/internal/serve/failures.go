package serve

import (
	"math"
	"slices"
	"time"
)

// recentFailures is how long failures are reported.
const recentFailures = 5 * time.Minute

// failureCounts are numbers of failed connections and failed health checks of a cluster.
type failureCounts struct{ connections, healthChecks int64 }

// since returns how many failures were counted after before. A counter that is less than before began at 0 again, because
// Envoy restarted.
func (c failureCounts) since(before failureCounts) failureCounts {
	difference := func(now, before int64) int64 {
		if now < before {
			return now
		}
		return now - before
	}
	return failureCounts{difference(c.connections, before.connections), difference(c.healthChecks, before.healthChecks)}
}

// failures are the recent failures of clusters, by envoy.StatName.
type failures struct {
	read   bool                     // the counters have been read before
	last   map[string]failureCounts // counters at the last reading
	recent map[string][]failure     // oldest first
}

// A failure is a number of failures that were found at one reading.
type failure struct {
	at time.Time
	failureCounts
}

// observe compares the counters of all clusters with those of the last reading. Failures before the first reading are not
// known.
func (f *failures) observe(clusters map[string]clusterStats, now time.Time) {
	last, recent := map[string]failureCounts{}, map[string][]failure{}
	for name, c := range clusters {
		last[name] = c.failures
		list := f.recent[name]
		if n := c.failures.since(f.last[name]); f.read && n != (failureCounts{}) {
			list = append(list, failure{now, n})
		}
		list = slices.DeleteFunc(list, func(old failure) bool { return now.Sub(old.at) > recentFailures })
		if len(list) > 0 {
			recent[name] = list
		}
	}
	f.read, f.last, f.recent = true, last, recent
}

// of returns the failures of a cluster that are recent now. The last reading may be older.
func (f *failures) of(cluster string, now time.Time) (connections, healthChecks int32) {
	var sum failureCounts
	for _, n := range f.recent[cluster] {
		if now.Sub(n.at) <= recentFailures {
			sum.connections += n.connections
			sum.healthChecks += n.healthChecks
		}
	}
	return int32(min(sum.connections, math.MaxInt32)), int32(min(sum.healthChecks, math.MaxInt32)) //nolint:gosec // limited
}
