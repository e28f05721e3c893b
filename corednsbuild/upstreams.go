package main

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
)

const (
	// upstreamRounds is the number of probe rounds to evaluate, about a minute.
	upstreamRounds = 4
	// silentRounds is the number of rounds in a row with failed health checks and without an answer after which a resolver
	// does not answer. Two rounds may have two failures within a second.
	silentRounds = 3
	// minFailedShare is the share of failed health checks from which the loss of queries is a failure.
	minFailedShare = 0.25
	// A resolver is slow if minAnswers answers or more took slowAnswer on average. Clients repeat a query or fail after some
	// seconds.
	minAnswers = 5
	slowAnswer = time.Second
)

// upstreams evaluates upstream resolvers by CoreDNS's metrics, which count since its start. It is safe for concurrent
// use, except observe.
type upstreams struct {
	mu      sync.Mutex
	samples []map[string]upstreamCounts // by resolver, the last one last
}

// upstreamCounts are counters of an upstream resolver.
type upstreamCounts struct {
	// answers is the number of responses, and seconds their total time.
	answers, seconds float64
	// servfail counts SERVFAIL responses, and refused counts REFUSED and NOTIMP responses.
	servfail, refused float64
	// failed is the number of failed health checks. CoreDNS checks a resolver after a query times out, and then twice
	// a second until the resolver responds.
	failed float64
}

// plus returns the counters plus factor times those in o.
func (c upstreamCounts) plus(o upstreamCounts, factor float64) upstreamCounts {
	return upstreamCounts{
		c.answers + factor*o.answers, c.seconds + factor*o.seconds, c.servfail + factor*o.servfail, c.refused + factor*o.refused, c.failed + factor*o.failed,
	}
}

// observe reads the metrics of CoreDNS, once in each round of probes.
func (u *upstreams) observe(metrics prometheus.Gatherer) error {
	families, err := metrics.Gather()
	if err != nil {
		return fmt.Errorf("reading the metrics of upstream resolvers: %w", err)
	}
	now := map[string]upstreamCounts{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			to := labels["to"]
			c := now[to]
			switch f.GetName() {
			case "coredns_proxy_request_duration_seconds":
				answers := float64(m.GetHistogram().GetSampleCount())
				c.answers += answers
				c.seconds += m.GetHistogram().GetSampleSum()
				switch labels["rcode"] {
				case "SERVFAIL":
					c.servfail += answers
				case "REFUSED", "NOTIMP":
					c.refused += answers
				}
			case "coredns_proxy_healthcheck_failures_total":
				c.failed += m.GetCounter().GetValue()
			default:
				continue
			}
			now[to] = c
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.samples = append(u.samples, now)
	u.samples = u.samples[max(0, len(u.samples)-upstreamRounds-1):]
	return nil
}

// rounds returns the counters of each round, by resolver.
func (u *upstreams) rounds() map[string][]upstreamCounts {
	u.mu.Lock()
	defer u.mu.Unlock()
	rounds := map[string][]upstreamCounts{}
	for i := 1; i < len(u.samples); i++ {
		for to, counts := range u.samples[i] {
			rounds[to] = append(rounds[to], counts.plus(u.samples[i-1][to], -1))
		}
	}
	return rounds
}

// upstreamProblems returns the problems of upstream resolvers from the counters of each round. While a resolver
// works, none is a failure. own are addresses of DNS.
func upstreamProblems(rounds map[string][]upstreamCounts, own []netip.Addr) []problem.Problem {
	var list []problem.Problem
	works := false
	for _, to := range slices.Sorted(maps.Keys(rounds)) {
		p, used := upstreamProblem(to, rounds[to], own)
		if p != nil {
			list = append(list, *p)
		}
		works = works || used && (p == nil || p.Severity != problem.Fail)
	}
	for i := range list {
		if works && list[i].Severity == problem.Fail {
			list[i].Severity = problem.Warn
			list[i] = list[i].WithEvidence("another resolver responds")
		}
	}
	return list
}

// upstreamProblem returns the problem of a resolver, nil if it has none, and whether it received queries.
func upstreamProblem(to string, rounds []upstreamCounts, own []netip.Addr) (found *problem.Problem, used bool) {
	total := upstreamCounts{}
	for _, r := range rounds {
		total = total.plus(r, 1)
	}
	if total.answers+total.failed == 0 {
		return nil, false
	}
	complete := len(rounds) == upstreamRounds
	last := rounds[max(0, len(rounds)-silentRounds):]
	average := total.seconds / max(1, total.answers)
	const code = problem.UpstreamFailing
	answers := fmt.Sprintf("%.0f responses within a minute", total.answers)
	var p problem.Problem
	switch at, _ := netip.ParseAddrPort(to); {
	case at.Port() == 53 && slices.Contains(own, at.Addr().Unmap()):
		p = problem.Failed(code, model.Ref{}, "upstream resolver %s is one of oooi's own DNS servers: queries loop", to).
			WithRemedy("set networkConfig.dnsServers to resolvers that do not forward to DNS")
	case len(last) == silentRounds && every(last, func(c upstreamCounts) bool { return c.failed > 0 && c.answers == 0 }):
		p = problem.Failed(code, model.Ref{}, "upstream resolver %s does not answer", to).
			WithEvidence(fmt.Sprintf("%.0f health checks failed within a minute", total.failed))
	case complete && every(rounds, func(c upstreamCounts) bool { return c.failed > 0 && c.answers > 0 }):
		p = problem.Warned(code, model.Ref{}, "upstream resolver %s answers only some queries", to)
		if total.failed >= minFailedShare*(total.failed+total.answers) {
			p.Severity = problem.Fail
		}
		p = p.WithEvidence(fmt.Sprintf("%.0f health checks failed within a minute", total.failed), answers)
	case complete && total.answers >= minAnswers && total.servfail == total.answers:
		p = problem.Failed(code, model.Ref{}, "upstream resolver %s returns SERVFAIL for all names", to).WithEvidence(answers)
	case complete && total.answers >= minAnswers && total.refused == total.answers:
		p = problem.Warned(code, model.Ref{}, "upstream resolver %s returns REFUSED or NOTIMP for all names: it does not resolve names for DNS", to).
			WithEvidence(answers)
	case total.answers >= minAnswers && average >= slowAnswer.Seconds():
		p = problem.Warned(code, model.Ref{}, "upstream resolver %s takes %.1f s to answer: names outside of the hosted cluster resolve slowly", to, average).
			WithEvidence(answers).WithRemedy("find the cause of the delay, for example with dig @%s on the pod's node, or set other resolvers in "+
			"networkConfig.dnsServers of the Infra", host(to))
	default:
		return nil, true
	}
	return &p, true
}

func every(rounds []upstreamCounts, is func(upstreamCounts) bool) bool {
	return !slices.ContainsFunc(rounds, func(c upstreamCounts) bool { return !is(c) })
}

// host returns the host of "host:port", or the text itself if it lacks a port.
func host(to string) string {
	if h, _, err := net.SplitHostPort(to); err == nil {
		return h
	}
	return to
}
