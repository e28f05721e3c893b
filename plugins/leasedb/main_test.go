package leasedb

import (
	"os"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

var plane = lab.Shared{Config: lab.Config{Name: "leasedb"}}

func TestMain(m *testing.M) {
	probe = nil
	if file := os.Getenv(childFile); file != "" {
		runServer(file)
		return
	}
	lab.Main(m, &plane)
}

func TestSteadyClockNeverGoesBack(t *testing.T) {
	for name, tt := range map[string]struct {
		earliest time.Time
		ahead    time.Duration
	}{
		"new file":                {time.Time{}, 0},
		"file with a past time":   {time.Now().Add(-time.Hour), 0},
		"file with a future time": {time.Now().Add(1000 * time.Hour), 1000 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			c := newSteadyClock(tt.earliest)
			if d := c.Now().Sub(time.Now().Add(tt.ahead)).Abs(); d > time.Minute {
				t.Errorf("the clock is off by %s", d)
			}
			before := c.Now()
			c.started = c.started.Add(-time.Second) // simulate a second
			if d := c.Now().Sub(before); d < time.Second || d > time.Minute {
				t.Errorf("after a second the clock has advanced by %s", d)
			}
		})
	}
}
