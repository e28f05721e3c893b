package dhcp4

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Why a packet has no answer: values of a metric's label.
const (
	dropMalformed       = "malformed"
	dropNotARequest     = "not_a_request"
	dropHardware        = "hardware"
	dropType            = "type"
	dropRetransmission  = "retransmission"
	dropDraining        = "draining"
	dropQueueFull       = "queue_full"
	dropClientQueueFull = "client_queue_full"
	dropSilent          = "silent"
	dropNoAddress       = "no_address"
	dropNoServerID      = "no_server_id"
	dropOtherServer     = "other_server"
	dropPanic           = "panic"
	dropSend            = "send_failed"
)

type metrics struct {
	received, sent, dropped, left *prometheus.CounterVec
	seconds                       *prometheus.HistogramVec
	inFlight                      prometheus.GaugeFunc
}

func newMetrics(inFlight func() int) *metrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "coredhcp", Subsystem: "dhcp4", Name: name, Help: help}, []string{label})
	}
	return &metrics{
		received: counter("received_total", "Packets of clients, by type of message.", "type"),
		sent:     counter("sent_total", "Answers, by type of message.", "type"),
		dropped:  counter("dropped_total", "Packets without an answer that had one coming, by reason.", "reason"),
		left:     counter("options_left_out_total", "Options that an answer had no room for, since its client takes no longer ones.", "option"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "coredhcp", Subsystem: "dhcp4", Name: "handle_seconds",
			Help:    "For how long plugins had a packet, by type of message.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 11), // 10 us to 10 s
		}, []string{"type"}),
		inFlight: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "coredhcp", Subsystem: "dhcp4", Name: "in_flight", Help: "Packets that wait or are with the plugins.",
		}, func() float64 { return float64(inFlight()) }),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.received, m.sent, m.dropped, m.left, m.seconds, m.inFlight}
}
