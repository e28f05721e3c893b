package proxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
)

// haproxy is HAProxy's path in Debian, which is not in a user's PATH.
const haproxy = "/usr/sbin/haproxy"

// haproxyConfig configures HAProxy as xdsd configures Envoy: one backend per SNI, retries, TCP keepalive and health
// checks.
const haproxyConfig = `
global
	nbthread 1
	maxconn 4000
	stats socket %[1]s/haproxy.sock
defaults
	mode tcp
	timeout connect 5s
	timeout client 24h
	timeout server 24h
	retries 3
	option clitcpka
	option srvtcpka
	balance leastconn
	default-server inter 5s fall 2 rise 1
frontend tls
	bind %[2]s:443
	tcp-request inspect-delay 15s
	tcp-request content accept if { req_ssl_hello_type 1 }
	use_backend %%[req_ssl_sni,lower,map(%[1]s/hosts.map)] if { req_ssl_sni,lower,map(%[1]s/hosts.map) -m found }
	default_backend kas
backend kas
	server one %[3]s:%[4]d check
`

// startHAProxy starts HAProxy with n routes.
func (b *bench) startHAProxy(ctx context.Context, n int) (*measure.Process, error) {
	var config, hosts strings.Builder
	fmt.Fprintf(&config, haproxyConfig, b.Dir, haproxyAddress, kas, backendPort)
	for r := range route(n) {
		fmt.Fprintf(&hosts, "%s %s\n", r.host(), r.name())
		fmt.Fprintf(&config, "backend %s\n\tserver one %s:%d check\n", r.name(), r.endpoint(false), backendPort)
	}
	path := filepath.Join(b.Dir, "haproxy.cfg")
	for path, text := range map[string]string{path: config.String(), filepath.Join(b.Dir, "hosts.map"): hosts.String()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("writing HAProxy's configuration: %w", err)
		}
	}
	p, err := b.start(ctx, "haproxy", b.proxyCPU, haproxy, "-db", "-f", path)
	if err != nil {
		return nil, err
	}
	h, err := clientHello(route(0).host())
	if err == nil {
		err = p.Await(ctx, func(ctx context.Context) error {
			return expect(ctx, port443(haproxyAddress), h, route(0).endpoint(false))
		})
	}
	if err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// compareHAProxy compares Envoy with HAProxy, each with one thread on one CPU.
func (b *bench) compareHAProxy(ctx context.Context, n int) (err error) {
	envoy, err := b.startEnvoy(ctx, b.proxyCPU)
	if err != nil {
		return err
	}
	defer func() { _ = envoy.Stop() }() // the measurement is complete
	other, err := b.startHAProxy(ctx, n)
	if err != nil {
		return err
	}
	defer other.Stop()
	for _, address := range []string{envoyAddress, haproxyAddress} {
		if _, err := awaitAll(ctx, address, n); err != nil {
			return err
		}
	}
	restore, err := pinSelf(b.loadCPU)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	l, err := newLoad(n)
	if err != nil {
		return err
	}
	sides := [2]side{{envoyAddress, envoy.PID()}, {haproxyAddress, other.PID()}}
	for _, clients := range []int{32, 1} {
		if err := b.compare(ctx, n, clients, l, sides); err != nil {
			return err
		}
	}
	return nil
}

// A side is one of the two compared proxies.
type side struct {
	address string
	pid     int
}

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
				errs[i] = expect(ctx, port443(s.address), l.hellos[r], r.endpoint(false))
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

// A comparison is the result of comparing Envoy with HAProxy.
type comparison struct {
	routes, clients int
	rate            [2]float64       // medians of Envoy and of HAProxy
	cpu, latency    [2]time.Duration // medians
	// A ratio above 1 is in favour of Envoy.
	rateRatio, cpuRatio, latencyRatio measure.Estimate
}

// compare measures both sides alternately in rounds, each time in the reverse order, so that other load affects both
// alike.
func (b *bench) compare(ctx context.Context, n, clients int, l *load, sides [2]side) error {
	b.Progress("%d routes: Envoy and HAProxy with %d clients, %d rounds", n, clients, b.Rounds)
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
	c.routes, c.clients = n, clients
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
