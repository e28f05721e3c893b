package leasedb

import (
	"time"

	"k8s.io/utils/clock"
)

// steadyClock goes by elapsed time alone: it never jumps, whatever is done to the system's clock.
type steadyClock struct {
	clock.RealClock

	base, started time.Time
}

// newSteadyClock returns one that starts with the system's time, or a later one that was seen before.
func newSteadyClock(seen time.Time) steadyClock {
	now := time.Now()
	c := steadyClock{base: now, started: now}
	if seen.After(now) {
		c.base = seen
	}
	return c
}

// Now is clock.PassiveClock's. Only the monotonic reading of the time is used.
func (c steadyClock) Now() time.Time { return c.base.Add(time.Since(c.started)) }
