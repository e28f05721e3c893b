package dns_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// Client addresses. The tests' VLANs are loopback networks.
const (
	blueVM  = "127.50.0.10"
	greenVM = "127.60.0.10"
	pod     = "127.0.0.1"
)

// Expected results of questions other than addresses.
const (
	noData   = "NOERROR"
	nxDomain = "NXDOMAIN"
	servFail = "SERVFAIL"
	refused  = "REFUSED"
)

// question is a query of a client, with the expected answer: addresses, or the rcode.
type question struct {
	from string // source address
	name string // each # is replaced by a unique number
	want string

	to    string // address of the listener; default 127.0.0.1
	qtype uint16 // default A
}

func (q question) String() string {
	return fmt.Sprintf("%s %s from %s at %s", q.name, dns.TypeToString[q.rrtype()], q.from, q.listener())
}

func (q question) listener() string {
	if q.to == "" {
		return "127.0.0.1"
	}
	return q.to
}

func (q question) rrtype() uint16 {
	if q.qtype == 0 {
		return dns.TypeA
	}
	return q.qtype
}

var number atomic.Int64

// uniqueName returns the name with a unique number.
func (q question) uniqueName() string {
	return strings.ReplaceAll(q.name, "#", strconv.FormatInt(number.Add(1), 10))
}

// ask returns the answer to a question, as lab.Resolve.
func (c *coredns) ask(ctx context.Context, q question) string {
	return lab.Resolve(ctx, q.from, net.JoinHostPort(q.listener(), strconv.Itoa(c.port)), q.uniqueName(), q.rrtype())
}

// expect asks each question once.
func (c *coredns) expect(t *testing.T, questions ...question) {
	t.Helper()
	for _, q := range questions {
		if got := c.ask(t.Context(), q); got != q.want {
			t.Errorf("%s: got %s, want %s", q, got, q.want)
		}
	}
}

// await asks each question until the answer is the expected one.
func (c *coredns) await(t *testing.T, questions ...question) {
	t.Helper()
	for _, q := range questions {
		lab.Await(t, q.want+" as the answer to "+q.String(), func() string {
			if got := c.ask(t.Context(), q); got != q.want {
				return "the answer is " + got
			}
			return ""
		})
	}
}

// startLoad asks each question 50 times a second, and waits for each answer, until stop is called, which fails the test for every wrong
// answer.
func startLoad(t *testing.T, c *coredns, questions []question) (stop func()) {
	t.Helper()
	const rate, tooLow = 50, 20 // for each question and second; at a lower rate the test fails
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	t.Cleanup(workers.Wait)
	var mu sync.Mutex // guards the next line
	count, slowest, wrong := 0, time.Duration(0), map[string]int{}
	started := time.Now()
	for _, q := range questions {
		workers.Go(func() {
			tick := time.NewTicker(time.Second / rate)
			defer tick.Stop()
			for ; ctx.Err() == nil; <-tick.C {
				asked := time.Now()
				got := c.ask(context.WithoutCancel(ctx), q)
				mu.Lock()
				count, slowest = count+1, max(slowest, time.Since(asked))
				if got != q.want {
					wrong[fmt.Sprintf("%s: got %s, want %s", q, got, q.want)]++
				}
				mu.Unlock()
			}
		})
	}
	return func() {
		t.Helper()
		elapsed := time.Since(started)
		cancel()
		workers.Wait()
		t.Logf("%d queries in %.1f s, slowest answer after %s", count, elapsed.Seconds(), slowest.Round(time.Microsecond))
		for what, n := range wrong {
			t.Errorf("%d times: %s", n, what)
		}
		if float64(count) < tooLow*float64(len(questions))*elapsed.Seconds() {
			t.Fatalf("only %d queries: this machine is too slow or too busy for the test", count)
		}
	}
}
