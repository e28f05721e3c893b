package bench

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A side is a server that is compared with others.
type side struct {
	name string
	pid  int // 0 for none
	// drive loads the server with as many operations as it completes.
	drive func(time.Duration) sample
	// target is the required ratio of the first side's rate to this side's rate.
	target target
}

// A sample is the result of one slice of one side.
type sample struct {
	operations    int
	took, latency time.Duration // the latency is the median, or 0

	cpu time.Duration // the server's CPU time
}

func (s sample) rate() float64 { return float64(s.operations) / s.took.Seconds() }
func (s sample) cost() float64 { return s.cpu.Seconds() * 1e6 / float64(s.operations) }

// compare measures all sides in turn in rounds, every second time in the reverse order, and compares the first side with each
// other one within a round, so that other load affects all alike.
func (b *bench) compare(what string, sides ...side) {
	b.Helper()
	b.Logf("%s: %d rounds of %s for each of %d sides", what, b.rounds, b.slice, len(sides))
	b.round(sides, false) // warm-up
	var rounds [][]sample
	for run := range b.rounds {
		rounds = append(rounds, b.round(sides, run%2 > 0))
	}
	b.compareRounds(what, sides, rounds)
}

func (b *bench) compareRounds(what string, sides []side, rounds [][]sample) {
	for i := 1; i < len(sides); i++ {
		b.comparisons = append(b.comparisons, comparison{what, [2]string{sides[0].name, sides[i].name}, sides[i].target, pairs(rounds, i)})
	}
}

// pairs returns the samples of the first side, and of another one.
func pairs(rounds [][]sample, other int) [][2]sample {
	var list [][2]sample
	for _, r := range rounds {
		list = append(list, [2]sample{r[0], r[other]})
	}
	return list
}

func (b *bench) round(sides []side, reverse bool) []sample {
	b.Helper()
	samples := make([]sample, len(sides))
	for turn := range sides {
		i := turn
		if reverse {
			i = len(sides) - 1 - turn
		}
		before := b.cpuTime(sides[i].pid)
		samples[i] = sides[i].drive(b.slice)
		samples[i].cpu = b.cpuTime(sides[i].pid) - before
		if samples[i].operations == 0 {
			b.Fatalf("%s completed nothing in %s", sides[i].name, b.slice)
		}
	}
	return samples
}

// A comparison has the samples of two sides.
type comparison struct {
	what   string
	names  [2]string
	target target
	rounds [][2]sample
}

// row returns the medians of both sides and the ratios within the rounds. A ratio above 1 is in favour of the first side.
func (c comparison) row() string {
	of := func(value func([2]sample) float64) []float64 {
		values := make([]float64, len(c.rounds))
		for i, r := range c.rounds {
			values[i] = value(r)
		}
		return values
	}
	median := func(side int, value func(sample) float64) float64 {
		return quantile(of(func(r [2]sample) float64 { return value(r[side]) }), 0.5)
	}
	rate := estimateOf(of(func(r [2]sample) float64 { return r[0].rate() / r[1].rate() }))
	cost := estimateOf(of(func(r [2]sample) float64 { return r[1].cost() / r[0].cost() }))
	row := fmt.Sprintf("| %s | %s | %s | %.0f | %.0f | %s | %.1f | %.1f | %s |", c.what, c.names[0], c.names[1],
		median(0, sample.rate), median(1, sample.rate), rate, median(0, sample.cost), median(1, sample.cost), cost)
	latency := func(s sample) float64 { return milliseconds(s.latency) }
	if median(0, latency) > 0 {
		row += fmt.Sprintf(" %.2f | %.2f |", median(0, latency), median(1, latency))
	} else {
		row += " | |"
	}
	return row + c.target.cells(rate.median)
}

// An estimate is the median of measurements, and the interval from low to high that contains the true median with the given
// confidence.
type estimate struct{ median, low, high, confidence float64 }

// estimateOf returns the median and the smallest interval with a confidence of 95 % or, with fewer than six measurements, their
// range. It uses order statistics, which need no assumption about the distribution: the true median lies between the k-th
// smallest and the k-th largest of n independent values unless fewer than k of them are on one side of it, and each value is on
// either side with probability 1/2.
func estimateOf(values []float64) estimate {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	e := estimate{median: (sorted[(n-1)/2] + sorted[n/2]) / 2}
	combinations, fewer, all := 1.0, 0.0, 1.0
	for range n {
		all *= 2
	}
	for k := 1; k <= (n+1)/2; k++ {
		fewer += combinations / all // probability that fewer than k values are on one side
		combinations *= float64(n-k+1) / float64(k)
		if confidence := 1 - 2*fewer; k == 1 || confidence >= 0.95 {
			e.low, e.high, e.confidence = sorted[k-1], sorted[n-k], max(0, confidence)
		}
	}
	return e
}

// String returns the median and the interval: "MEDIAN (LOW-HIGH)".
func (e estimate) String() string { return fmt.Sprintf("%.3f (%.3f-%.3f)", e.median, e.low, e.high) }

// quantile returns the smallest value such that at least the fraction q of all values do not exceed it.
// values must not be empty.
func quantile[T cmp.Ordered](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	rank := int(q * float64(len(sorted)))
	if float64(rank) < q*float64(len(sorted)) {
		rank++
	}
	return sorted[max(rank, 1)-1]
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }
