package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/densityops/oooi/test/lab"
)

// TestAnswerTimesAreRecent queries through a server whose upstream resolver becomes slow after many fast answers.
func TestAnswerTimesAreRecent(t *testing.T) {
	conn, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const delay = 300 * time.Millisecond
	resolver := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		if strings.HasPrefix(query.Question[0].Name, "slow") {
			time.Sleep(delay)
		}
		_ = w.WriteMsg(new(dns.Msg).SetReply(query))
	})}
	lab.RunDNS(t, resolver)
	to := conn.LocalAddr().String()
	server := address(t, start(t, ".:0 {\n bind 127.0.0.1\n forward . "+to+"\n}"), 0)
	times := newAnswerTimes()
	query := func(names ...string) {
		t.Helper()
		for _, name := range names {
			exchange(t, "udp", server, new(dns.Msg).SetQuestion(name, dns.TypeA))
		}
		if err := times.observe(prometheus.DefaultGatherer); err != nil {
			t.Fatal(err)
		}
	}
	query()
	query("fast.test.", "fast.test.", "fast.test.", "fast.test.", "fast.test.", "fast.test.", "fast.test.", "fast.test.")
	if got := times.recent()[to]; got.answers != 8 || got.seconds > 8*delay.Seconds() {
		t.Errorf("while it is fast: %+v", got)
	}
	for range answerTimeWindow {
		query()
	}
	query("slow.test.", "slow.test.")
	if got := times.recent()[to]; got.answers != 2 || got.seconds < 2*delay.Seconds() {
		t.Errorf("after it has become slow: %+v", got)
	}
	if n := testutil.CollectAndCount(times, "coredns_oooi_upstream_answer_seconds"); n < 1 {
		t.Errorf("%d resolvers have a time", n)
	}
	for range answerTimeWindow {
		query()
	}
	if got := times.recent()[to]; got.answers != 0 {
		t.Errorf("without queries: %+v", got)
	}
}
