package ads

import "github.com/prometheus/client_golang/prometheus"

const namespace, subsystem = "xdsd", "ads"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, name), help, labels, nil)
}

var (
	pushesDesc = desc("pushes_total", "Versions of a proxy's listeners, clusters and routes.", "proxy")
	nacksDesc  = desc("nacks_total", "Responses that an Envoy rejected, by resource type.", "proxy", "type")

	streamsDesc   = desc("streams", "Connected Envoys.", "proxy")
	resourcesDesc = desc("resources", "Resources served, by resource type.", "proxy", "type")
	endpointsDesc = desc("endpoints", "Endpoints served, of all proxies.")
)

// newLatency returns the histogram of acknowledgement latencies. It has no label for the proxy, because each label
// value adds a series for every bucket.
func newLatency() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "ack_seconds",
		Help:    "Time from a response to its acknowledgement, by resource type.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15), // up to 16 s: Envoy acknowledges clusters once they are warm
	}, []string{"type"})
}

// collector reads the state of a Server at each scrape, so that the series of a proxy end when it is deleted.
type collector struct{ *Server }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{pushesDesc, nacksDesc, streamsDesc, resourcesDesc, endpointsDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	counter := func(d *prometheus.Desc, value uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	endpoints := 0
	for _, a := range c.assignments {
		endpoints += countEndpoints(a.message)
	}
	gauge(endpointsDesc, endpoints)
	for name, p := range c.proxies {
		if p.config == nil {
			continue // an Envoy connected, but Set was never called: clients must not create series
		}
		counter(pushesDesc, p.pushes, name)
		gauge(streamsDesc, len(p.streams), name)
		for kind, n := range p.count() {
			gauge(resourcesDesc, n, name, kind)
		}
		for typeURL, n := range p.nacks {
			counter(nacksDesc, n, name, kinds[typeURL])
		}
	}
}
