package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
)

// A comparison is the result of comparing hcpviews with another server.
type comparison struct {
	clusters    int
	view, other string
	target      target
	qps         [2]float64       // median queries per second of hcpviews and of the other server
	cpu         [2]time.Duration // median CPU time per query of both
	ratio       measure.Estimate // of hcpviews' queries per second to the other's
	cpuRatio    measure.Estimate // of the other's CPU time per query to hcpviews'
	otherLoad   float64          // median CPU use of other programs in a round, in CPUs
}

const (
	// warmUp is the duration of the load before the first round.
	warmUp = 300 * time.Millisecond
	// maxOtherLoad is the CPU use of other programs up to which a round counts as undisturbed, in CPUs: a little more
	// than an idle API server and its etcd use.
	maxOtherLoad = 0.15
	// maxRepeat limits the number of rounds that are run to find enough undisturbed ones, as a multiple of them.
	maxRepeat = 2
	// maxLost is the maximum ratio of lost queries to answered ones. Queries are lost if the machine pauses for
	// seconds.
	maxLost = 0.01
)

// A round has a sample of each side.
type round [2]sample

// otherLoad returns the CPU use of other programs, in CPUs.
func (r round) otherLoad() float64 { return max(r[0].otherLoad, r[1].otherLoad) }

// compare measures both servers alternately in rounds, each time in the reverse order, and computes the ratio within a
// round, so that other load affects both alike. It runs additional rounds if other load disturbs some of them, and
// reports those with the least other load.
func (b *bench) compare(ctx context.Context, n int, ours, other contender, target target) error {
	sides := [2]contender{ours, other}
	for _, side := range sides {
		if _, err := b.drive(ctx, side.server, side.load, min(warmUp, b.slice)); err != nil {
			return err
		}
	}
	var rounds []round
	var answered, lost, undisturbed int
	for run := 0; run < maxRepeat*b.rounds && undisturbed < b.rounds; run++ {
		var r round
		for turn := range sides {
			i := (run + turn) % 2
			var err error
			if r[i], err = b.drive(ctx, sides[i].server, sides[i].load, b.slice); err != nil {
				return err
			}
			answered, lost = answered+r[i].answered, lost+r[i].lost
		}
		if r[0].answered == 0 || r[1].answered == 0 {
			continue // the machine paused
		}
		rounds = append(rounds, r)
		if r.otherLoad() <= maxOtherLoad {
			undisturbed++
		}
	}
	if float64(lost) > maxLost*float64(answered) || len(rounds) < b.rounds {
		return fmt.Errorf("comparing with %s: %d queries lost, %d answered", other.name, lost, answered)
	}
	// Rounds are selected only by other load, never by their results.
	slices.SortStableFunc(rounds, func(a, b round) int { return cmp.Compare(a.otherLoad(), b.otherLoad()) })
	c := summarize(rounds[:b.rounds])
	c.clusters, c.view, c.other, c.target = n, ours.view, other.name, target
	b.report.comparisons = append(b.report.comparisons, c)
	progress("%d clusters, view %s: %.0f queries/s, %s %.0f; ratio %s; by CPU time %s; other load %.2f CPUs",
		n, c.view, c.qps[0], c.other, c.qps[1], c.ratio, c.cpuRatio, c.otherLoad)
	return nil
}

// summarize returns the medians and ratios of rounds.
func summarize(rounds []round) comparison {
	of := func(value func(round) float64) []float64 {
		values := make([]float64, len(rounds))
		for i, r := range rounds {
			values[i] = value(r)
		}
		return values
	}
	c := comparison{
		ratio:     measure.EstimateOf(of(func(r round) float64 { return r[0].qps / r[1].qps })),
		cpuRatio:  measure.EstimateOf(of(func(r round) float64 { return float64(r[1].cpu) / float64(r[0].cpu) })),
		otherLoad: measure.Quantile(of(round.otherLoad), 0.5),
	}
	for i := range c.qps {
		c.qps[i] = measure.Quantile(of(func(r round) float64 { return r[i].qps }), 0.5)
		c.cpu[i] = time.Duration(measure.Quantile(of(func(r round) float64 { return float64(r[i].cpu) }), 0.5))
	}
	return c
}
