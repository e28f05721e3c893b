package leasedb

import (
	"time"

	"k8s.io/utils/clock"
)

// steadyClock is a monotonic clock. It does not jump with the system clock.
type steadyClock struct {
	clock.RealClock

	base, started time.Time
}

// newSteadyClock returns a clock that starts with the system time, or with earliest if that is later.
func newSteadyClock(earliest time.Time) steadyClock {
	now := time.Now()
	c := steadyClock{base: now, started: now}
	if earliest.After(now) {
		c.base = earliest
	}
	return c
}

// Now implements clock.PassiveClock. It uses only the monotonic clock reading of the time.
func (c steadyClock) Now() time.Time { return c.base.Add(time.Since(c.started)) }
