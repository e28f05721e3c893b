package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
)

// comparison is how hcpviews did beside another server.
type comparison struct {
	clusters    int
	view, rival string
	target      target
	qps         [2]float64       // medians, of hcpviews and of the other
	cpu         [2]time.Duration // medians, for one query
	ratio       measure.Estimate // of hcpviews' queries a second to the other's
	cpuRatio    measure.Estimate // of the other's CPU time for a query to hcpviews'
	disturbed   float64          // the median of what else ran in a round, in CPUs
}

const (
	// warmUp goes before the first round.
	warmUp = 300 * time.Millisecond
	// calm is how much else may run in a round, in CPUs: a little more than an idle
	// API server and its etcd take.
	calm = 0.15
	// patience is how many times the rounds asked for are run, at most, to find as
	// many calm ones.
	patience = 2
	// maxLost is how many queries may be lost to those answered. Few ever are, unless
	// the machine stands still for seconds.
	maxLost = 0.01
)

// round is one slice of time for either side.
type round [2]sample

// others is what else ran, in CPUs.
func (r round) others() float64 { return max(r[0].others, r[1].others) }

// compare runs both in turn, round by round, and the first of a round is the second
// of the next: what else the machine does meets both alike, and the ratio is taken
// within a round. Rounds that much else ran in are run again.
func (b *bench) compare(ctx context.Context, n int, ours, other contender, target target) error {
	sides := [2]contender{ours, other}
	for _, side := range sides {
		if _, err := b.drive(ctx, side.server, side.load, min(warmUp, b.slice)); err != nil {
			return err
		}
	}
	var rounds []round
	var answered, lost, quiet int
	for run := 0; run < patience*b.rounds && quiet < b.rounds; run++ {
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
			continue // the machine stood still
		}
		rounds = append(rounds, r)
		if r.others() <= calm {
			quiet++
		}
	}
	if float64(lost) > maxLost*float64(answered) || len(rounds) < b.rounds {
		return fmt.Errorf("comparing with %s: %d queries lost beside %d answered", other.name, lost, answered)
	}
	// What else ran decides which rounds count, never how either side did in them.
	slices.SortStableFunc(rounds, func(a, b round) int { return cmp.Compare(a.others(), b.others()) })
	c := summary(rounds[:b.rounds])
	c.clusters, c.view, c.rival, c.target = n, ours.view, other.name, target
	b.report.comparisons = append(b.report.comparisons, c)
	progress("%d clusters, view %s: %.0f queries/s, %s %.0f; ratio %s; by CPU time %s; %.2f CPUs busy with other things",
		n, c.view, c.qps[0], c.rival, c.qps[1], c.ratio, c.cpuRatio, c.disturbed)
	return nil
}

// summary is what rounds amount to.
func summary(rounds []round) comparison {
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
		disturbed: measure.Quantile(of(round.others), 0.5),
	}
	for i := range c.qps {
		c.qps[i] = measure.Quantile(of(func(r round) float64 { return r[i].qps }), 0.5)
		c.cpu[i] = time.Duration(measure.Quantile(of(func(r round) float64 { return float64(r[i].cpu) }), 0.5))
	}
	return c
}
