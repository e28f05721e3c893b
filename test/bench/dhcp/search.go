package dhcp

import (
	"fmt"
	"math"
	"time"
)

// A kind is a kind of load.
type kind string

const (
	newClients kind = "new clients"
	renewals   kind = "renewals"
)

var kinds = []kind{newClients, renewals}

const (
	// A server keeps up with a rate if at most one of oneLostOf exchanges fails, and its own rate is at most maxLag
	// lower: a server that only queues requests does not keep up.
	oneLostOf = 1000
	maxLag    = 0.05
	// Ratios of consecutive rates: upwards at first, downwards at most, and at the end of the search.
	firstStep = 1.4
	maxStep   = 4.0
	lastStep  = 1.04
)

// A result is the result of a try.
type result struct {
	offered   float64       // exchanges started per second
	rate      float64       // exchanges completed per second
	started   int           // number of exchanges started
	done      int           // number of exchanges completed
	delay     time.Duration // mean time from a request to its reply
	cpu       time.Duration // the server's CPU time per exchange
	otherLoad float64       // CPU use of other programs, in CPUs
}

// lost returns the share of exchanges that were not completed.
func (r result) lost() float64 { return 1 - float64(r.done)/float64(r.started) }

// keptUp reports whether the server kept up with the offered rate.
func (r result) keptUp() bool {
	return (r.started-r.done)*oneLostOf <= r.started && r.rate >= (1-maxLag)*r.offered
}

// String formats the result for progress messages.
func (r result) String() string {
	verdict := "lossy"
	if r.keptUp() {
		verdict = "lossless"
	}
	return fmt.Sprintf("%.0f/s offered, %.0f/s done, %.2f %% lost, %.2f ms, %.1f us of CPU per exchange, other load %.0f %%: %s",
		r.offered, r.rate, 100*r.lost(), r.delay.Seconds()*1e3, r.cpu.Seconds()*1e6, 100*r.otherLoad, verdict)
}

// A search finds the highest lossless rate of a server. A rate counts as lossy only after two tries, because the
// machine may have disturbed one.
type search struct {
	next      float64 // next rate to try
	high      float64 // lowest rate known to be lossy; 0 if there is none
	best      result  // lossless result with the highest rate
	worst     result  // result at high
	failed    bool    // the last try at next was lossy
	attempted int     // number of tries
	repeats   int     // how many more lossy tries may be ignored because of other load
}

// maxOtherLoad is the CPU use of other programs, in CPUs, up to which a lossy try counts.
const maxOtherLoad = 0.25

func newSearch(guess float64, repeats int) search { return search{next: guess, repeats: repeats} }

// add adds the result of a try at next, and sets the next rate.
func (s *search) add(r result) {
	s.attempted++
	if r.keptUp() {
		s.failed = false
		if r.offered > s.best.offered {
			s.best = r
		}
	} else {
		if r.otherLoad > maxOtherLoad && s.repeats > 0 {
			s.repeats--
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
	case s.best.offered == 0: // the rate of completed exchanges is an estimate of the limit
		s.next = max(min(s.high/firstStep, r.rate), s.high/maxStep)
	default:
		s.next = math.Sqrt(s.best.offered * s.high)
	}
}

// disturbed reports whether other load may have caused the losses at high.
func (s *search) disturbed() bool { return s.high > 0 && s.worst.otherLoad > maxOtherLoad }

// done reports whether the limit is known precisely enough.
func (s *search) done() bool {
	return s.high > 0 && s.best.offered > 0 && s.high/s.best.offered < lastStep
}

// A limit is the search for a server's highest lossless rate.
type limit struct {
	server server
	search search
}
