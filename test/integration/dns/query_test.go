package dns_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
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

// answerTimeout bounds each query. A missing reply counts as a wrong answer.
const answerTimeout = 10 * time.Second

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

func (q question) message() *dns.Msg {
	name := strings.ReplaceAll(q.name, "#", strconv.FormatInt(number.Add(1), 10))
	return new(dns.Msg).SetQuestion(dns.Fqdn(name), q.rrtype())
}

// answerText returns the answer of a reply in the format of question.want.
func answerText(reply *dns.Msg) string {
	var addresses []string
	for _, rr := range reply.Answer {
		addresses = append(addresses, dns.Field(rr, 1))
	}
	if reply.Rcode != dns.RcodeSuccess || len(addresses) == 0 {
		addresses = append(addresses, dns.RcodeToString[reply.Rcode])
	}
	slices.Sort(addresses)
	return strings.Join(addresses, " ")
}

// connect opens a UDP socket from one address to the server at another.
func connect(from, to string, port int) (*dns.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}, Timeout: answerTimeout}
	conn, err := dialer.Dial("udp", net.JoinHostPort(to, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return &dns.Conn{Conn: conn}, nil
}

// exchange sends a message as the client of a question.
func (c *coredns) exchange(ctx context.Context, q question, m *dns.Msg) (*dns.Msg, error) {
	conn, err := connect(q.from, q.listener(), c.port)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	client := dns.Client{Timeout: answerTimeout}
	reply, _, err := client.ExchangeWithConnContext(ctx, m, conn)
	return reply, err
}

// ask returns the answer to a question, or the error text if there is no reply.
func (c *coredns) ask(t *testing.T, q question) string {
	t.Helper()
	reply, err := c.exchange(t.Context(), q, q.message())
	if err != nil {
		return err.Error()
	}
	return answerText(reply)
}

// expect asks each question once.
func (c *coredns) expect(t *testing.T, questions ...question) {
	t.Helper()
	for _, q := range questions {
		if got := c.ask(t, q); got != q.want {
			t.Errorf("%s: got %s, want %s", q, got, q.want)
		}
	}
}

// await asks each question until the answer is the expected one.
func (c *coredns) await(t *testing.T, questions ...question) {
	t.Helper()
	for _, q := range questions {
		lab.Await(t, q.want+" as the answer to "+q.String(), func() string {
			if got := c.ask(t, q); got != q.want {
				return "the answer is " + got
			}
			return ""
		})
	}
}

// load asks questions at a constant rate from several sockets until it is stopped.
type load struct {
	cancel  context.CancelFunc
	started time.Time
	group   sync.WaitGroup

	mu      sync.Mutex
	count   int
	slowest time.Duration
	wrong   map[string]int
}

const (
	loadWorkers = 8
	loadRate    = 1300 // queries per second of all workers
	loadWanted  = 1000
	loadTooLow  = 500 // the test fails at a lower rate
)

// startLoad starts the workers, each with a different first question.
func startLoad(t *testing.T, c *coredns, questions []question) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel, started: time.Now(), wrong: map[string]int{}}
	for worker := range loadWorkers {
		l.group.Go(func() { l.work(ctx, c, questions, worker*len(questions)/loadWorkers) })
	}
	t.Cleanup(func() { cancel(); l.group.Wait() })
	return l
}

func (l *load) work(ctx context.Context, c *coredns, questions []question, first int) {
	conns := map[string]*dns.Conn{}
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	client := dns.Client{Timeout: answerTimeout}
	for n := 0; ctx.Err() == nil; n++ {
		// A worker that is behind schedule does not sleep.
		if early := time.Until(l.started.Add(time.Duration(n) * loadWorkers * time.Second / loadRate)); early > 0 {
			time.Sleep(early)
		}
		q := questions[(first+n)%len(questions)]
		key := q.from + " " + q.listener()
		if conns[key] == nil {
			conn, err := connect(q.from, q.listener(), c.port)
			if err != nil {
				l.record(q, 0, err.Error())
				continue
			}
			conns[key] = conn
		}
		reply, took, err := client.ExchangeWithConnContext(ctx, q.message(), conns[key])
		switch {
		case errors.Is(ctx.Err(), context.Canceled): // the query was canceled
		case err != nil:
			l.record(q, took, err.Error())
		default:
			l.record(q, took, answerText(reply))
		}
	}
}

func (l *load) record(q question, took time.Duration, got string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	l.slowest = max(l.slowest, took)
	if got != q.want {
		l.wrong[fmt.Sprintf("%s: got %s, want %s", q, got, q.want)]++
	}
}

// asked returns the number of questions so far.
func (l *load) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// stop stops the load, and fails the test for every wrong answer.
func (l *load) stop(t *testing.T) {
	t.Helper()
	elapsed := time.Since(l.started)
	count := l.asked()
	l.cancel()
	l.group.Wait()
	rate := float64(count) / elapsed.Seconds()
	t.Logf("%d queries in %.1f s: %.0f per second, %d kinds of wrong answers, slowest answer after %s",
		count, elapsed.Seconds(), rate, len(l.wrong), l.slowest.Round(time.Microsecond))
	for _, what := range slices.Sorted(maps.Keys(l.wrong)) {
		t.Errorf("%d times: %s", l.wrong[what], what)
	}
	switch {
	case rate < loadTooLow:
		t.Fatalf("only %.0f queries per second: this machine is too slow or too busy for the test", rate)
	case rate < loadWanted:
		t.Logf("fewer than %d queries per second, this machine is busy", loadWanted)
	}
}
