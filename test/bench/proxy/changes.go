package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

const (
	// maxChangePause is the longest pause between two changes. Pauses are random, so that some changes fall into the
	// time in which xdsd collects changes, and others do not.
	maxChangePause = 60 * time.Millisecond
	// changeDeadline limits the wait for one change, and for all routes.
	changeDeadline = 2 * time.Minute
	// pollPause is the pause between two connections that check for a change. hostPollPause is longer, because an added
	// host takes longer, and the connections use Envoy's CPU time.
	pollPause     = time.Millisecond
	hostPollPause = 5 * time.Millisecond
)

// delays are the times from each change in the API server to the first connection that follows it.
type delays struct {
	routes int
	kind   kind
	sent   []time.Duration // since the request was sent
	reply  []time.Duration // since the API server's reply
	cpu    time.Duration   // xdsd's CPU time per change
	envoy  time.Duration   // Envoy's CPU time per change, including the connections that check for it
}

// A kind is a kind of change.
type kind string

const (
	endpointMoved kind = "a Service's endpoint moves"
	hostAdded     kind = "a host is added"
)

// measureChanges makes changes one at a time, and measures the delay until a connection follows each. xdsd and Envoy
// may use every CPU.
func (b *bench) measureChanges(ctx context.Context, envoy *lab.Envoy, n int) error {
	changes := b.Changes
	if n > targetRoutes { // changes take longer with more routes
		changes = max(1, changes/3)
	}
	random := rand.New(rand.NewPCG(3, 4))
	moved := map[route]bool{}
	err := b.follow(ctx, envoy, n, changes, endpointMoved, func(int) (change, error) {
		r := route(random.IntN(n))
		moved[r] = !moved[r]
		return change{r.host(), r.endpoint(moved[r]), pollPause, func(ctx context.Context) error { return b.objects.move(ctx, r, moved[r]) }}, nil
	})
	if err != nil {
		return err
	}
	for r, isMoved := range moved {
		if isMoved {
			if err := b.objects.move(ctx, r, false); err != nil {
				return err
			}
		}
	}
	// An added host has the Service of an existing one, so that only a filter chain is added.
	added := func(i int) route { return route(MaxRoutes + i) }
	err = b.follow(ctx, envoy, n, changes, hostAdded, func(i int) (change, error) {
		to := route(random.IntN(n))
		return change{added(i).host(), to.endpoint(false), hostPollPause, func(ctx context.Context) error { return b.objects.add(ctx, added(i), to) }}, nil
	})
	if err != nil {
		return err
	}
	for i := range changes {
		if err := b.objects.remove(ctx, added(i)); err != nil {
			return err
		}
	}
	// All hosts are removed when the last one leads to the API server again.
	h, err := clientHello(added(changes - 1).host())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, changeDeadline)
	defer cancel()
	return retry(ctx, hostPollPause, func() error { return expect(ctx, port443(envoyAddress), h, kas) })
}

// A change routes a host to an endpoint.
type change struct {
	host  string
	to    netip.Addr
	poll  time.Duration // pause between two connections that check for it
	apply func(context.Context) error
}

// follow applies changes and adds the delays of all of them to the report.
func (b *bench) follow(ctx context.Context, envoy *lab.Envoy, n, changes int, kind kind, next func(i int) (change, error)) error {
	b.Progress("%d routes: %s, %d times", n, kind, changes)
	random := rand.New(rand.NewPCG(5, 6))
	d := delays{routes: n, kind: kind}
	before, err := processTimes(b.xdsd.PID(), envoy.PID())
	if err != nil {
		return err
	}
	for i := range changes {
		c, err := next(i)
		if err != nil {
			return err
		}
		if err := d.follow(ctx, c); err != nil {
			return fmt.Errorf("%s, %s: %w", kind, c.host, err)
		}
		time.Sleep(time.Duration(random.Int64N(int64(maxChangePause))))
	}
	after, err := processTimes(b.xdsd.PID(), envoy.PID())
	if err != nil {
		return err
	}
	d.cpu, d.envoy = (after[0]-before[0])/time.Duration(changes), (after[1]-before[1])/time.Duration(changes)
	b.report.delays = append(b.report.delays, d)
	b.Progress("p50 %s ms, p99 %s ms; CPU per change: xdsd %s ms, Envoy %s ms", measure.Milliseconds(measure.Quantile(d.reply, 0.5)),
		measure.Milliseconds(measure.Quantile(d.reply, 0.99)), measure.Milliseconds(d.cpu), measure.Milliseconds(d.envoy))
	return nil
}

func processTimes(xdsd, envoy int) (times [2]time.Duration, err error) {
	if times[0], err = measure.ProcessTime(xdsd); err == nil {
		times[1], err = measure.ProcessTime(envoy)
	}
	return times, err
}

// follow applies a change and adds its delay.
func (d *delays) follow(ctx context.Context, c change) error {
	ctx, cancel := context.WithTimeout(ctx, changeDeadline)
	defer cancel()
	h, err := clientHello(c.host)
	if err != nil {
		return err
	}
	type arrival struct {
		at  time.Time
		err error
	}
	arrived := make(chan arrival, 1)
	go func() {
		err := retry(ctx, c.poll, func() error { return expect(ctx, port443(envoyAddress), h, c.to) })
		arrived <- arrival{time.Now(), err}
	}()
	sent := time.Now()
	err = c.apply(ctx)
	replied := time.Now()
	if err != nil {
		cancel()
		<-arrived
		return err
	}
	a := <-arrived
	if a.err != nil {
		return a.err
	}
	d.sent = append(d.sent, a.at.Sub(sent))
	d.reply = append(d.reply, max(0, a.at.Sub(replied)))
	return nil
}

// idle is the CPU that xdsd and Envoy use while nothing changes and no client connects, as a share of one CPU.
type idle struct {
	routes      int
	xdsd, envoy float64
}

// Times of measureIdle, in multiples of Options.Settle. Envoy still works for about half a minute after hundreds of changes.
const (
	idleWait = 12
	idleTime = 6
)

// measureIdle waits until the proxy is idle, and measures for some health checks of each backend.
func (b *bench) measureIdle(ctx context.Context, envoy *lab.Envoy, n int) error {
	b.Progress("%d routes: idle for %s", n, (idleWait+idleTime)*b.Settle)
	wait := func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
	if err := wait(idleWait * b.Settle); err != nil {
		return err
	}
	before, err := processTimes(b.xdsd.PID(), envoy.PID())
	if err != nil {
		return err
	}
	from := time.Now()
	if err := wait(idleTime * b.Settle); err != nil {
		return err
	}
	after, err := processTimes(b.xdsd.PID(), envoy.PID())
	if err != nil {
		return err
	}
	took := time.Since(from)
	i := idle{n, float64(after[0]-before[0]) / float64(took), float64(after[1]-before[1]) / float64(took)}
	b.report.idle = append(b.report.idle, i)
	b.Progress("idle CPU: xdsd %.2f %%, Envoy %.2f %%", 100*i.xdsd, 100*i.envoy)
	return nil
}

// starts are the times from Envoy's start until every route works.
type starts struct {
	routes int
	took   []time.Duration
}

// measureStarts kills Envoy and starts it again repeatedly, while xdsd runs and has all routes.
func (b *bench) measureStarts(ctx context.Context, envoy *lab.Envoy, n int) error {
	b.Progress("%d routes: starting Envoy %d times", n, b.Starts)
	s := starts{routes: n}
	for range b.Starts {
		if err := envoy.Kill(); err != nil {
			return err
		}
		started := time.Now()
		failed := make(chan error, 1)
		go func() { failed <- envoy.Start(ctx) }()
		all, err := awaitAll(ctx, envoyAddress, n, ofRoute)
		if err := errors.Join(err, <-failed); err != nil {
			return err
		}
		s.took = append(s.took, all.Sub(started))
	}
	b.report.starts = append(b.report.starts, s)
	b.Progress("median %s ms, longest %s ms", measure.Milliseconds(measure.Quantile(s.took, 0.5)), measure.Milliseconds(measure.Quantile(s.took, 1)))
	return nil
}
