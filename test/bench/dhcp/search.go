package dhcp

import (
	"fmt"
	"math"
	"time"
)

// kind is one of load.
type kind string

const (
	newClients kind = "new clients"
	renewals   kind = "renewals"
)

var kinds = []kind{newClients, renewals}

const (
	// One of so many questions may stay unanswered, and all may take that much longer than
	// the clients did: what a server only queues it does not keep up with.
	oneLostOf = 1000
	behind    = 0.05
	// Steps between rates: the first, the largest one down, and where the search ends.
	firstStep = 1.4
	maxStep   = 4.0
	lastStep  = 1.04
)

// result is that of a try.
type result struct {
	offered float64       // a second
	rate    float64       // that came to their end, a second
	asked   int           // exchanges that were begun
	done    int           // and came to their end
	delay   time.Duration // from a question to its answer, the mean
	cpu     time.Duration // of the server, for one exchange
	others  float64       // what other programs took meanwhile, of one CPU
}

func (r result) lost() float64 { return 1 - float64(r.done)/float64(r.asked) }

// kept reports whether a server kept up.
func (r result) kept() bool {
	return (r.asked-r.done)*oneLostOf <= r.asked && r.rate >= (1-behind)*r.offered
}

// String is for the progress.
func (r result) String() string {
	verdict := "too much"
	if r.kept() {
		verdict = "kept up"
	}
	return fmt.Sprintf("%.0f/s offered, %.0f/s done, %.2f %% lost, %.2f ms, %.1f us of CPU each, else ran %.0f %%: %s",
		r.offered, r.rate, 100*r.lost(), r.delay.Seconds()*1e3, r.cpu.Seconds()*1e6, 100*r.others, verdict)
}

// search finds the highest rate at which a server keeps up. One bad try may be the machine's
// fault; what is too much is so twice.
type search struct {
	next      float64 // to try
	high      float64 // that is too much; 0 while there is none
	best      result  // that was kept
	worst     result  // of those that were too much the slowest; for the report
	failed    bool    // the last try, of next
	attempted int
	again     int // tries that may be made again because much else ran
}

// mostOthers is how much of one CPU others may take in a try that says that it was too much.
const mostOthers = 0.25

func newSearch(guess float64, again int) search { return search{next: guess, again: again} }

// take takes the result of a try at next.
func (s *search) take(r result) {
	s.attempted++
	if r.kept() {
		s.failed = false
		if r.offered > s.best.offered {
			s.best = r
		}
	} else {
		if r.others > mostOthers && s.again > 0 {
			s.again--
			return
		}
		if !s.failed {
			s.failed = true
			return
		}
		s.failed = false
		s.high, s.worst = r.offered, r
	}
	switch {
	case s.high == 0:
		s.next = s.best.offered * firstStep
	case s.best.offered == 0: // what came to its end says how far it is
		s.next = max(min(s.high/firstStep, r.rate), s.high/maxStep)
	default:
		s.next = math.Sqrt(s.best.offered * s.high)
	}
}

// disturbed reports whether it was perhaps the machine for which it was too much.
func (s *search) disturbed() bool { return s.high > 0 && s.worst.others > mostOthers }

// done reports whether the limit is known.
func (s *search) done() bool {
	return s.high > 0 && s.best.offered > 0 && s.high/s.best.offered < lastStep
}

// limit is what a server can do.
type limit struct {
	server server
	search search
}
