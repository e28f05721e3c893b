package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/watch"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	syncedDesc = desc("xdsd_synced", "Whether the configuration comes from the API server (1), or only from the snapshot file (0).")
	ageDesc    = desc("xdsd_snapshot_age_seconds", "Seconds since a watch of the API server was lost; 0 while every watch is connected.")
	keptDesc   = desc("xdsd_kept_objects", "Number of objects that disappeared from the API server and stay in use, by resource.", "resource")

	problemsDesc   = desc("xdsd_problems", "Number of faults found in the objects, by reason.", "reason")
	routesDesc     = desc("xdsd_routes", "Names that a proxy routes, on all its ports.", "proxy")
	unresolvedDesc = desc("xdsd_unresolved_upstreams", "Upstreams of a proxy without a target, because their Service or address does not exist.", "proxy")
)

// Collector returns a collector of a store's state. It reads the store at each scrape, so that the series of a proxy
// end when the proxy is deleted.
func Collector(store *watch.Store) prometheus.Collector { return collector{store} }

type collector struct{ store *watch.Store }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{syncedDesc, ageDesc, keptDesc, problemsDesc, routesDesc, unresolvedDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	status := c.store.Status()
	synced := 0.0
	if status.Synced {
		synced = 1
	}
	gauge(syncedDesc, synced)
	gauge(ageDesc, status.Age().Seconds())
	for resource, n := range watch.CountKept(status.Resources) {
		gauge(keptDesc, float64(n), resource)
	}
	s := c.store.Snapshot()
	if s == nil {
		return
	}
	byReason := map[string]int{}
	for _, p := range s.Problems {
		byReason[string(p.Reason)]++
	}
	for reason, n := range byReason {
		gauge(problemsDesc, float64(n), reason)
	}
	for _, p := range s.ProxyServers {
		routes, unresolved := 0, 0
		for _, l := range p.Listeners {
			routes += len(l.Routes)
		}
		for _, u := range p.Upstreams {
			if u.Missing != "" {
				unresolved++
			}
		}
		gauge(routesDesc, float64(routes), p.Key())
		gauge(unresolvedDesc, float64(unresolved), p.Key())
	}
}
