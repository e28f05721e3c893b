package leasedb

import (
	"testing"
	"time"
)

func TestSteadyClockNeverGoesBack(t *testing.T) {
	for name, tt := range map[string]struct {
		seen  time.Time
		ahead time.Duration
	}{
		"a new file":                 {time.Time{}, 0},
		"a file of before":           {time.Now().Add(-time.Hour), 0},
		"a file with a time to come": {time.Now().Add(1000 * time.Hour), 1000 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			c := newSteadyClock(tt.seen)
			if d := c.Now().Sub(time.Now().Add(tt.ahead)).Abs(); d > time.Minute {
				t.Errorf("it is off by %s", d)
			}
			before := c.Now()
			c.started = c.started.Add(-time.Second) // a second goes by
			if d := c.Now().Sub(before); d < time.Second || d > time.Minute {
				t.Errorf("a second takes %s", d)
			}
		})
	}
}
