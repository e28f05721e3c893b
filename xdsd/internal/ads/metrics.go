package ads

import "github.com/prometheus/client_golang/prometheus"

// metrics are a Server's metrics. Series of a proxy exist from its first Set until it is deleted: clients, which may
// name any proxy, must not create series.
type metrics struct {
	streams *prometheus.GaugeVec
	nacks   *prometheus.CounterVec
	latency *prometheus.HistogramVec // without the label proxy, because each value adds a series for every bucket
}

func newMetrics() metrics {
	return metrics{
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "xdsd_ads_streams", Help: "Connected Envoys.",
		}, []string{"proxy"}),
		nacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "xdsd_ads_nacks_total", Help: "Responses that an Envoy rejected, by resource type.",
		}, []string{"proxy", "type"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "xdsd_ads_ack_seconds",
			Help:    "Time from a response to its acknowledgement, by resource type.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15), // up to 16 s: Envoy acknowledges clusters once they are warm
		}, []string{"type"}),
	}
}

func (m *metrics) remove(proxy string) {
	m.streams.DeleteLabelValues(proxy)
	m.nacks.DeletePartialMatch(prometheus.Labels{"proxy": proxy})
}

// countStreams updates the number of connected Envoys of a proxy. The caller holds mu.
func (s *Server) countStreams(p *proxy) {
	if p.version != "" && s.proxies[p.name] == p {
		s.metrics.streams.WithLabelValues(p.name).Set(float64(len(p.streams)))
	}
}
