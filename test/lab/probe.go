package lab

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

const (
	// ProbeInterval is the default interval of a Probe's requests.
	ProbeInterval = 100 * time.Millisecond
	// ProbeTimeout is the default bound of each request. It is less than the second after which TCP and ARP retransmit, so that each
	// request is independent.
	ProbeTimeout = 900 * time.Millisecond
	// requiredAnswers is the number of consecutive successful requests after which a service counts as available.
	requiredAnswers = 10
)

// A Probe sends a request at a constant rate, and records the results. It does not wait for the answer to the previous request.
type Probe struct {
	Name      string
	Component string // that responds
	Ask       func(context.Context) error
	// Every and Timeout replace ProbeInterval and ProbeTimeout, unless they are zero.
	Every, Timeout time.Duration

	mu       sync.Mutex
	requests []*Request
}

// A Request is a request of a Probe and its result.
type Request struct {
	At   time.Time
	Took time.Duration
	Err  error

	done bool // has a result
}

// run sends requests until the context is done, and returns when all have a result.
func (p *Probe) run(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(p.Every, ProbeInterval))
	defer tick.Stop()
	var open sync.WaitGroup
	defer open.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		q := &Request{At: time.Now()}
		p.mu.Lock()
		p.requests = append(p.requests, q)
		p.mu.Unlock()
		open.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(p.Timeout, ProbeTimeout)) // requests in flight are completed
			defer cancel()
			err := p.Ask(ctx)
			p.mu.Lock()
			q.done, q.Took, q.Err = true, time.Since(q.At), err
			p.mu.Unlock()
		})
	}
}

// Start runs the probe until stop is called, at the latest at the end of the test.
func (p *Probe) Start(tb testing.TB) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.run(ctx) }()
	stop = func() { cancel(); <-done }
	tb.Cleanup(stop)
	return stop
}

// Since returns copies of the requests sent since a time, up to the first one without a result.
func (p *Probe) Since(from time.Time) (list []Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.requests {
		if !q.done {
			break
		}
		if !q.At.Before(from) {
			list = append(list, *q)
		}
	}
	return list
}

// Problem returns why the service is not available, or "": the last requests since from must have succeeded.
func (p *Probe) Problem(from time.Time) string {
	list := p.Since(from)
	if len(list) < requiredAnswers {
		return fmt.Sprintf("%s: only %d requests", p.Name, len(list))
	}
	for _, q := range list[len(list)-requiredAnswers:] {
		if q.Err != nil {
			return fmt.Sprintf("%s: %v", p.Name, q.Err)
		}
	}
	return ""
}

// Outage returns for how long since a time the service was not available: the sum of the times from each failed request to the next
// successful one.
func (p *Probe) Outage(from time.Time) (total time.Duration) {
	var began time.Time
	for _, q := range p.Since(from) {
		switch {
		case q.Err != nil && began.IsZero():
			began = q.At
		case q.Err == nil && !began.IsZero():
			total += q.At.Sub(began)
			began = time.Time{}
		}
	}
	return total
}
