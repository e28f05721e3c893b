package main

import (
	"fmt"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// answerTimeWindow is the number of probes of which the answers count: those of about a minute.
const answerTimeWindow = 4

// answerTimes computes how fast upstream resolvers have answered lately. CoreDNS counts since its start, so that a resolver
// that slows down later would not show. It is safe for concurrent use, except observe.
type answerTimes struct {
	answers, seconds *prometheus.Desc

	mu      sync.Mutex
	samples []map[string]answered // by resolver, the last one last
}

// answered are the number of answers of an upstream resolver, and the time that they took in seconds.
type answered struct {
	answers uint64
	seconds float64
}

func newAnswerTimes() *answerTimes {
	return &answerTimes{
		answers: prometheus.NewDesc("coredns_oooi_upstream_answers", "Answers of an upstream resolver in the last minute.", []string{"to"}, nil),
		seconds: prometheus.NewDesc("coredns_oooi_upstream_answer_seconds", "Average time that an upstream resolver took for an answer in the last minute.", []string{"to"}, nil),
	}
}

// observe reads the metrics of CoreDNS.
func (a *answerTimes) observe(metrics prometheus.Gatherer) error {
	families, err := metrics.Gather()
	if err != nil {
		return fmt.Errorf("reading the metrics of upstream resolvers: %w", err)
	}
	now := map[string]answered{}
	for _, f := range families {
		if f.GetName() != "coredns_proxy_request_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			to := label(m, "to")
			now[to] = answered{now[to].answers + m.GetHistogram().GetSampleCount(), now[to].seconds + m.GetHistogram().GetSampleSum()}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.samples = append(a.samples, now)
	a.samples = a.samples[max(0, len(a.samples)-answerTimeWindow-1):]
	return nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// recent returns the answers since the oldest sample.
func (a *answerTimes) recent() map[string]answered {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.samples) == 0 {
		return nil
	}
	oldest, recent := a.samples[0], maps.Clone(a.samples[len(a.samples)-1])
	for to, total := range recent {
		before := oldest[to]
		recent[to] = answered{total.answers - before.answers, total.seconds - before.seconds}
	}
	return recent
}

// Describe implements prometheus.Collector.
func (a *answerTimes) Describe(ch chan<- *prometheus.Desc) {
	ch <- a.answers
	ch <- a.seconds
}

// Collect implements prometheus.Collector.
func (a *answerTimes) Collect(ch chan<- prometheus.Metric) {
	for to, recent := range a.recent() {
		ch <- prometheus.MustNewConstMetric(a.answers, prometheus.GaugeValue, float64(recent.answers), to)
		if recent.answers > 0 {
			ch <- prometheus.MustNewConstMetric(a.seconds, prometheus.GaugeValue, recent.seconds/float64(recent.answers), to)
		}
	}
}
