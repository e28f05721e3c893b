package bench

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// loopback is the address on which all DNS servers listen.
const loopback = "127.0.0.1"

// A dnsServer is a running CoreDNS, with the questions that it is asked.
type dnsServer struct {
	*lab.Daemon

	b      *bench
	name   string
	port   int
	source string // address of the clients
	list   []question
}

// startDNS starts CoreDNS with one server block on the servers' CPU, and checks its responses to all questions.
func (b *bench) startDNS(name, block, source string, list []question) *dnsServer {
	b.Helper()
	return b.startDNSOn(b.serverCPU, name, block, source, list)
}

// startDNSOn starts CoreDNS on one CPU, or on all if cpu is nil.
func (b *bench) startDNSOn(cpu *int, name, block, source string, list []question) *dnsServer {
	b.Helper()
	ports, err := lab.ReservePorts(b.Context(), loopback, 1)
	b.check(err)
	b.Cleanup(ports.Release)
	port := ports.Numbers[0]
	corefile := b.write(name+".Corefile", fmt.Sprintf(".:%d {\n\tbind %s\n%s}\n", port, loopback, block))
	s := &dnsServer{b.start(name, cpu, b.program(coredns), "-conf", corefile), b, name, port, source, list}
	return b.checked(s)
}

// checked waits for the first correct response and checks all responses.
func (b *bench) checked(s *dnsServer) *dnsServer {
	b.Helper()
	for i, q := range s.list {
		if i > 0 {
			b.check(s.ask(s.source, q))
			continue
		}
		lab.Await(b, "the first answer of "+s.name, func() string {
			if err := s.ask(s.source, q); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	return s
}

// with returns the server with the questions of another one.
func (s *dnsServer) with(other *dnsServer) *dnsServer {
	return &dnsServer{s.Daemon, s.b, s.name, s.port, other.source, other.list}
}

// side returns the server as a side of a comparison.
func (s *dnsServer) side(t target) side {
	return side{name: s.name, pid: s.PID(), drive: s.drive, target: t}
}

// ask sends one query, and returns an error unless the answer is right: one A record with the expected address.
func (s *dnsServer) ask(source string, q question) error {
	client := dns.Client{Timeout: 5 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(source)}}}
	reply, _, err := client.ExchangeContext(s.b.Context(), new(dns.Msg).SetQuestion(dns.Fqdn(q.name), dns.TypeA), net.JoinHostPort(loopback, strconv.Itoa(s.port)))
	if err != nil {
		return fmt.Errorf("querying %s for %s: %w", s.name, q.name, err)
	}
	if !rightAnswer(reply, q.want) {
		return fmt.Errorf("wrong answer of %s: want %s for %s, got\n%s", s.name, q.want, q.name, reply)
	}
	return nil
}

func rightAnswer(reply *dns.Msg, want netip.Addr) bool {
	if reply.Rcode != dns.RcodeSuccess || len(reply.Answer) != 1 {
		return false
	}
	a, ok := reply.Answer[0].(*dns.A)
	if !ok {
		return false
	}
	address, ok := netip.AddrFromSlice(a.A)
	return ok && address.Unmap() == want
}

const (
	// outstanding is the number of unanswered queries: enough to keep the server busy, and few enough for a socket's buffer.
	outstanding = 100
	sockets     = 8
)

// drive runs dnsperf for the given time, with as many queries as the server can answer.
func (s *dnsServer) drive(slice time.Duration) sample {
	b := s.b
	b.Helper()
	var list strings.Builder
	for _, q := range s.list {
		list.WriteString(q.name + " A\n")
	}
	args := []string{
		"-s", loopback, "-p", strconv.Itoa(s.port), "-a", s.source, "-d", b.write("queries", list.String()),
		"-l", strconv.FormatFloat(slice.Seconds(), 'f', 3, 64), "-c", strconv.Itoa(sockets), "-q", strconv.Itoa(outstanding), "-T", "1", "-t", "2",
	}
	command := "dnsperf"
	if b.loadCPU != nil {
		args = append([]string{"-c", strconv.Itoa(*b.loadCPU), command}, args...)
		command = "taskset"
	}
	cmd := exec.CommandContext(b.Context(), command, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%s: %v: %s", cmd, err, stderr.String())
	}
	result, err := parseDNSPerf(string(out))
	if err != nil {
		b.Fatalf("querying %s: %v", s.name, err)
	}
	return result
}

var dnsperfLine = regexp.MustCompile(`(?m)^\s*(Queries completed|Queries lost|Run time \(s\)|Response codes):.*?([\d.]+)(?: \(|$)`)

// maxLost is the maximum ratio of lost queries to answered ones. Queries are lost if the machine pauses for seconds.
const maxLost = 0.01

// parseDNSPerf parses dnsperf's statistics. It returns an error if an answer was not NOERROR or too many queries were lost.
func parseDNSPerf(text string) (sample, error) {
	number := map[string]float64{}
	for _, m := range dnsperfLine.FindAllStringSubmatch(text, -1) {
		value, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return sample{}, fmt.Errorf("dnsperf's %s: %w", m[1], err)
		}
		number[m[1]] = value
	}
	completed, took := number["Queries completed"], number["Run time (s)"]
	switch {
	case took == 0:
		return sample{}, fmt.Errorf("dnsperf's statistics are incomplete:\n%s", text)
	case !strings.Contains(text, fmt.Sprintf("NOERROR %.0f (100.00%%)", completed)):
		return sample{}, fmt.Errorf("not all %.0f answers are NOERROR:\n%s", completed, text)
	case number["Queries lost"] > maxLost*completed:
		return sample{}, fmt.Errorf("%.0f queries lost, %.0f answered", number["Queries lost"], completed)
	}
	return sample{operations: int(completed), took: time.Duration(took * float64(time.Second))}, nil
}

func TestParseDNSPerf(t *testing.T) {
	const output = `Statistics:

  Queries sent:         12205
  Queries completed:    12204 (99.99%)
  Queries lost:         1 (0.01%)

  Response codes:       NOERROR 12204 (100.00%)
  Average packet size:  request 45, response 75
  Run time (s):         0.200314
  Queries per second:   60924.348772
`
	if got, err := parseDNSPerf(output); err != nil || got != (sample{operations: 12204, took: 200314 * time.Microsecond}) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"SERVFAIL":   strings.Replace(output, "NOERROR 12204 (100.00%)", "NOERROR 12203 (99.99%), SERVFAIL 1 (0.01%)", 1),
		"lost":       strings.Replace(output, "lost:         1", "lost:         200", 1),
		"incomplete": output[:200],
	} {
		if got, err := parseDNSPerf(text); err == nil {
			t.Errorf("%s: %+v and no error", name, got)
		}
	}
}

// TestRightAnswer checks that a wrong answer of a server is found before the server is measured.
func TestRightAnswer(t *testing.T) {
	want := netip.MustParseAddr("192.0.2.1")
	a := func(address netip.Addr) dns.RR { return &dns.A{A: address.AsSlice()} }
	for name, tc := range map[string]struct {
		rcode  int
		answer []dns.RR
		right  bool
	}{
		"right":           {dns.RcodeSuccess, []dns.RR{a(want)}, true},
		"another address": {dns.RcodeSuccess, []dns.RR{a(want.Next())}, false},
		"no record":       {dns.RcodeSuccess, nil, false},
		"two records":     {dns.RcodeSuccess, []dns.RR{a(want), a(want)}, false},
		"SERVFAIL":        {dns.RcodeServerFailure, []dns.RR{a(want)}, false},
		"another type":    {dns.RcodeSuccess, []dns.RR{&dns.CNAME{Target: "a."}}, false},
	} {
		reply := &dns.Msg{MsgHdr: dns.MsgHdr{Rcode: tc.rcode}, Answer: tc.answer}
		if got := rightAnswer(reply, want); got != tc.right {
			t.Errorf("%s: %t", name, got)
		}
	}
}
