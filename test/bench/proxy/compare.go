package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
)

// A contender is a proxy with which Envoy, as oooi configures it, is compared.
type contender struct {
	name     string
	address  string
	endpoint func(route) netip.Addr
	start    func(ctx context.Context, n int) (pid int, stop func(), err error)
}

func (b *bench) contenders() []contender {
	return []contender{
		{"HAProxy", haproxyAddress, ofRoute, b.startHAProxy},
		{minimalEnvoy, minimalAddress, func(route) netip.Addr { return kas }, b.startMinimal},
	}
}

// compareAll compares Envoy with all contenders, each with one thread on one CPU.
func (b *bench) compareAll(ctx context.Context, n int) error {
	envoy, err := b.startEnvoy(ctx, b.proxyCPU)
	if err != nil {
		return err
	}
	defer func() { _ = envoy.Stop() }() // the measurement is complete
	if _, err := awaitAll(ctx, envoyAddress, n, ofRoute); err != nil {
		return err
	}
	l, err := newLoad(n)
	if err != nil {
		return err
	}
	for _, c := range b.contenders() {
		if err := b.compareWith(ctx, c, n, l, side{envoyAddress, envoy.PID(), ofRoute}); err != nil {
			return fmt.Errorf("comparing Envoy with %s: %w", c.name, err)
		}
	}
	return nil
}

// compareWith compares Envoy with one contender.
func (b *bench) compareWith(ctx context.Context, c contender, n int, l *load, envoy side) (err error) {
	pid, stop, err := c.start(ctx, n)
	if err != nil {
		return err
	}
	defer stop()
	if _, err := awaitAll(ctx, c.address, n, c.endpoint); err != nil {
		return err
	}
	restore, err := pinSelf(b.loadCPU)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	for _, clients := range []int{32, 1} {
		if err := b.compare(ctx, c.name, n, clients, l, [2]side{envoy, {c.address, pid, c.endpoint}}); err != nil {
			return err
		}
	}
	return nil
}

// A side is one of the two compared proxies.
type side struct {
	address  string
	pid      int
	endpoint func(route) netip.Addr // that replies to a client of a route
}

// ofRoute is the endpoint of a proxy with all routes.
func ofRoute(r route) netip.Addr { return r.endpoint(false) }

// A load connects to the routes in turn.
type load struct {
	hellos [][]byte // ClientHellos by route
}

func newLoad(n int) (*load, error) {
	l := &load{}
	for r := range route(n) {
		h, err := clientHello(r.host())
		if err != nil {
			return nil, err
		}
		l.hellos = append(l.hellos, h)
	}
	return l, nil
}

// A sample is the result of one slice of time with one side.
type sample struct {
	rate    float64       // connections per second
	cpu     time.Duration // the proxy's CPU time per connection
	latency time.Duration // median time from connecting to the endpoint's reply
}

// drive runs clients for the given time, each with one connection after the other.
func (l *load) drive(ctx context.Context, s side, clients int, slice time.Duration) (sample, error) {
	before, err := measure.ProcessTime(s.pid)
	if err != nil {
		return sample{}, err
	}
	started := time.Now()
	end := started.Add(slice)
	times, errs := make([][]time.Duration, clients), make([]error, clients+1)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for next := i * len(l.hellos) / clients; time.Now().Before(end) && errs[i] == nil; next++ {
				r := route(next % len(l.hellos))
				began := time.Now()
				errs[i] = expect(ctx, port443(s.address), l.hellos[r], s.endpoint(r))
				times[i] = append(times[i], time.Since(began))
			}
		})
	}
	group.Wait()
	took := time.Since(started)
	after, err := measure.ProcessTime(s.pid)
	errs[clients] = err
	if err := errors.Join(errs...); err != nil {
		return sample{}, fmt.Errorf("connecting through %s: %w", s.address, err)
	}
	var all []time.Duration
	for _, list := range times {
		all = append(all, list...)
	}
	return sample{
		rate: float64(len(all)) / took.Seconds(), cpu: (after - before) / time.Duration(len(all)), latency: measure.Quantile(all, 0.5),
	}, nil
}

// A comparison is the result of comparing Envoy with a contender.
type comparison struct {
	contender       string
	routes, clients int
	rate            [2]float64       // medians of Envoy and of the contender
	cpu, latency    [2]time.Duration // medians
	// A ratio above 1 is in favour of Envoy.
	rateRatio, cpuRatio, latencyRatio measure.Estimate
}

// compare measures both sides alternately in rounds, each time in the reverse order, so that other load affects both
// alike.
func (b *bench) compare(ctx context.Context, contender string, n, clients int, l *load, sides [2]side) error {
	b.Progress("%d routes: Envoy and %s with %d clients, %d rounds", n, contender, clients, b.Rounds)
	for _, s := range sides { // warm-up
		if _, err := l.drive(ctx, s, clients, b.Slice); err != nil {
			return err
		}
	}
	rounds := make([][2]sample, b.Rounds)
	for run := range rounds {
		for turn := range sides {
			i := (run + turn) % 2
			var err error
			if rounds[run][i], err = l.drive(ctx, sides[i], clients, b.Slice); err != nil {
				return err
			}
		}
	}
	c := summarize(rounds)
	c.contender, c.routes, c.clients = contender, n, clients
	b.report.comparisons = append(b.report.comparisons, c)
	b.Progress("%.0f and %.0f connections/s, ratio %s; by CPU time %s; by latency %s", c.rate[0], c.rate[1], c.rateRatio, c.cpuRatio, c.latencyRatio)
	return nil
}

// summarize returns the medians and ratios of rounds.
func summarize(rounds [][2]sample) comparison {
	of := func(value func([2]sample) float64) []float64 {
		values := make([]float64, len(rounds))
		for i, r := range rounds {
			values[i] = value(r)
		}
		return values
	}
	c := comparison{
		rateRatio:    measure.EstimateOf(of(func(r [2]sample) float64 { return r[0].rate / r[1].rate })),
		cpuRatio:     measure.EstimateOf(of(func(r [2]sample) float64 { return float64(r[1].cpu) / float64(r[0].cpu) })),
		latencyRatio: measure.EstimateOf(of(func(r [2]sample) float64 { return float64(r[1].latency) / float64(r[0].latency) })),
	}
	for i := range c.rate {
		c.rate[i] = measure.Quantile(of(func(r [2]sample) float64 { return r[i].rate }), 0.5)
		c.cpu[i] = time.Duration(measure.Quantile(of(func(r [2]sample) float64 { return float64(r[i].cpu) }), 0.5))
		c.latency[i] = time.Duration(measure.Quantile(of(func(r [2]sample) float64 { return float64(r[i].latency) }), 0.5))
	}
	return c
}
