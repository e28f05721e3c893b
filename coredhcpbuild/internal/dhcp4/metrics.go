package dhcp4

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Reasons why a packet gets no reply: values of the label reason.
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
	received, sent, dropped, omitted *prometheus.CounterVec
	seconds                          *prometheus.HistogramVec
	inFlight                         prometheus.GaugeFunc
	probes                           prometheus.Counter
}

func newMetrics(inFlight func() int) *metrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	return &metrics{
		received: counter("coredhcp_dhcp4_received_total", "Packets received from clients, by message type.", "type"),
		sent:     counter("coredhcp_dhcp4_sent_total", "Replies sent, by message type.", "type"),
		dropped:  counter("coredhcp_dhcp4_dropped_total", "Requests dropped without a reply, by reason.", "reason"),
		omitted:  counter("coredhcp_dhcp4_options_left_out_total", "Options omitted from replies because they exceed the client's maximum message size.", "option"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "coredhcp_dhcp4_handle_seconds",
			Help:    "Time that the plugins took for a packet, by message type.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 11), // 10 us to 10 s
		}, []string{"type"}),
		probes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coredhcp_dhcp4_probes_total", Help: "Broadcast probes received from other oooi pods.",
		}),
		inFlight: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coredhcp_dhcp4_in_flight", Help: "Packets that wait for or are processed by the plugins.",
		}, func() float64 { return float64(inFlight()) }),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.received, m.sent, m.dropped, m.omitted, m.seconds, m.inFlight, m.probes}
}
