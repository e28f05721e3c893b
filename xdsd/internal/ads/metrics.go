package ads

import "github.com/prometheus/client_golang/prometheus"

const namespace, subsystem = "xdsd", "ads"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, name), help, labels, nil)
}

var (
	pushesDesc = desc("pushes_total", "Snapshots made of a proxy's listeners, clusters and routes.", "proxy")
	nacksDesc  = desc("nacks_total", "Responses that an Envoy refused, by type of resource.", "proxy", "type")

	streamsDesc   = desc("streams", "Connected Envoys.", "proxy")
	resourcesDesc = desc("resources", "Resources served, by type.", "proxy", "type")
	endpointsDesc = desc("endpoints", "Endpoints handed over, of all proxies.")
)

// newLatency has no label for the proxy: a histogram is many series.
func newLatency() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "ack_seconds",
		Help:    "From a response to its acknowledgement, by type of resource.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15), // to 16 s: clusters are acknowledged when warm
	}, []string{"type"})
}

// collector reads a Server when it is asked, so that the series of a proxy go when
// the proxy goes.
type collector struct{ *Server }

// Describe is prometheus.Collector's.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{pushesDesc, nacksDesc, streamsDesc, resourcesDesc, endpointsDesc} {
		ch <- d
	}
}

// Collect is prometheus.Collector's.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	counter := func(d *prometheus.Desc, value uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	gauge(endpointsDesc, c.endpoints)
	for name, p := range c.proxies {
		if p.config == nil {
			continue // named by nobody but its peer
		}
		counter(pushesDesc, p.pushes, name)
		gauge(streamsDesc, len(p.streams), name)
		for kind, n := range p.count() {
			gauge(resourcesDesc, n, name, kind)
		}
		for typeURL, n := range p.nacks {
			counter(nacksDesc, n, name, kind(typeURL))
		}
	}
}
