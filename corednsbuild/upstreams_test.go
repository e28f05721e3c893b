package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/test/lab"
)

// TestAnswersAreRecent queries through a server whose upstream resolver becomes slow, and stops, after many fast answers.
func TestAnswersAreRecent(t *testing.T) {
	conn, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	lab.Must(t, err)
	const delay = 300 * time.Millisecond
	resolver := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		reply := new(dns.Msg).SetReply(query)
		switch name, _, _ := strings.Cut(query.Question[0].Name, "."); name {
		case "slow":
			time.Sleep(delay)
		case "broken":
			reply.Rcode = dns.RcodeServerFailure
		}
		_ = w.WriteMsg(reply)
	})}
	started, ended := make(chan struct{}), make(chan error, 1)
	resolver.NotifyStartedFunc = func() { close(started) }
	go func() { ended <- resolver.ActivateAndServe() }()
	<-started
	to := conn.LocalAddr().String()
	server := address(t, start(t, ".:0 {\n bind 127.0.0.1\n forward . "+to+"\n}"), 0)
	observed := &upstreams{}
	query := func(names ...string) {
		t.Helper()
		for _, name := range names {
			exchange(t, server, pod, new(dns.Msg).SetQuestion(name, dns.TypeA))
		}
		lab.Must(t, observed.observe(prometheus.DefaultGatherer))
	}
	expect := func(when string, want func(last upstreamCounts) bool, problems int) {
		t.Helper()
		rounds := observed.rounds()[to]
		if last := rounds[len(rounds)-1]; !want(last) {
			t.Errorf("%s: %+v", when, last)
		}
		if list := upstreamProblems(map[string][]upstreamCounts{to: rounds}, nil); len(list) != problems {
			t.Errorf("%s: %+v", when, list)
		}
	}
	query()
	query("fast.test.", "fast.test.", "broken.test.")
	expect("while it is fast", func(c upstreamCounts) bool {
		return c.answers == 3 && c.servfail == 1 && c.seconds < 3*delay.Seconds()
	}, 0)
	query("slow.test.", "slow.test.")
	expect("after it has become slow", func(c upstreamCounts) bool { return c.answers == 2 && c.seconds >= 2*delay.Seconds() }, 0)
	lab.Must(t, errors.Join(resolver.Shutdown(), <-ended))
	// A socket that is connected elsewhere holds the port: otherwise the kernel may give it to the forwarder, which would then query itself.
	holder, err := (&net.Dialer{LocalAddr: conn.LocalAddr()}).DialContext(t.Context(), "udp4", "127.0.0.1:9")
	lab.Must(t, err)
	defer func() { _ = holder.Close() }()
	for range silentRounds {
		_, _, _ = new(dns.Client).ExchangeContext(t.Context(), new(dns.Msg).SetQuestion("fast.test.", dns.TypeA), server) // fails
		time.Sleep(time.Second)                                                                                           // for two health checks
		query()
	}
	expect("after it has stopped", func(c upstreamCounts) bool { return c.answers == 0 && c.failed > 0 }, 1)
}

func TestUpstreamProblems(t *testing.T) {
	rounds := func(list ...upstreamCounts) []upstreamCounts { return list }
	four := func(c upstreamCounts) []upstreamCounts { return slices.Repeat(rounds(c), upstreamRounds) }
	answers := upstreamCounts{answers: 10, seconds: .1}
	silent := upstreamCounts{failed: 12}
	const a, b = "198.51.100.1:53", "198.51.100.2:53"
	for _, tc := range []struct {
		name   string
		rounds map[string][]upstreamCounts
		want   []string
	}{
		{"all answer", map[string][]upstreamCounts{a: four(answers), b: four(answers)}, nil},
		{"no queries", map[string][]upstreamCounts{a: four(upstreamCounts{})}, nil},
		{"just started", map[string][]upstreamCounts{a: rounds(silent, silent)}, nil},
		{"the only one is silent", map[string][]upstreamCounts{a: four(silent)}, []string{"fail upstream resolver " + a + " does not answer"}},
		{"one of two is silent", map[string][]upstreamCounts{a: rounds(answers, silent, silent, silent), b: four(answers)}, []string{"warn upstream resolver " + a + " does not answer"}},
		{"another has no queries", map[string][]upstreamCounts{a: four(silent), b: four(upstreamCounts{})}, []string{"fail upstream resolver " + a + " does not answer"}},
		{"it answers again", map[string][]upstreamCounts{a: rounds(silent, silent, silent, answers)}, nil},
		{"it answers again after failures in the same round", map[string][]upstreamCounts{a: rounds(silent, silent, silent, upstreamCounts{answers: 3, failed: 2})}, nil},
		{"it restarts", map[string][]upstreamCounts{a: rounds(answers, upstreamCounts{answers: 4, failed: 9}, silent, answers)}, nil},
		{"one lost query on an idle site", map[string][]upstreamCounts{a: rounds(upstreamCounts{}, upstreamCounts{failed: 1}, upstreamCounts{failed: 1}, upstreamCounts{})}, nil},
		{"most queries are lost", map[string][]upstreamCounts{a: four(upstreamCounts{answers: 6, failed: 8})}, []string{"fail upstream resolver " + a + " answers only some queries"}},
		{"some queries are lost", map[string][]upstreamCounts{a: four(upstreamCounts{answers: 20, failed: 1})}, []string{"warn upstream resolver " + a + " answers only some queries"}},
		{"SERVFAIL for all names", map[string][]upstreamCounts{a: four(upstreamCounts{answers: 5, servfail: 5})}, []string{"fail upstream resolver " + a + " returns SERVFAIL for all names"}},
		{"SERVFAIL for some names", map[string][]upstreamCounts{a: four(upstreamCounts{answers: 5, servfail: 4})}, nil},
		{"SERVFAIL just now", map[string][]upstreamCounts{a: rounds(upstreamCounts{answers: 5, servfail: 5})}, nil},
		{"REFUSED", map[string][]upstreamCounts{a: four(upstreamCounts{answers: 5, refused: 5})}, []string{"warn upstream resolver " + a + " returns REFUSED or NOTIMP for all names: it does not resolve names for DNS"}},
		{"slow", map[string][]upstreamCounts{a: four(upstreamCounts{answers: 4, seconds: 5})}, []string{"warn upstream resolver " + a + " takes 1.2 s to answer: names outside of the hosted cluster resolve slowly"}},
		{"few slow answers", map[string][]upstreamCounts{a: four(upstreamCounts{answers: 1, seconds: 1.5})}, nil},
		{"a loop", map[string][]upstreamCounts{"192.0.2.6:53": four(answers)}, []string{"fail upstream resolver 192.0.2.6:53 is one of oooi's own DNS servers: queries loop"}},
		{"another port of the same host", map[string][]upstreamCounts{"192.0.2.6:5353": four(answers)}, nil},
		{"DNS over TLS", map[string][]upstreamCounts{"198.51.100.1:853": four(silent)}, []string{"fail upstream resolver 198.51.100.1:853 does not answer"}},
	} {
		var got []string
		for _, p := range upstreamProblems(tc.rounds, []netip.Addr{netip.MustParseAddr("192.0.2.6")}) {
			if p.Code != problem.UpstreamFailing {
				t.Errorf("%s: code %s", tc.name, p.Code)
			}
			got = append(got, fmt.Sprintf("%s %s", p.Severity, p.Message))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
