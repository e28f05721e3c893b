package views

import (
	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/watch"
)

// Metrics of the stores. They are registered once per process, because plugins share the stores.
var (
	syncedDesc = prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, "oooi", "synced"),
		"1 if the objects were read from the source, 0 if they come from the snapshot file or none were read.",
		[]string{"source"}, nil)
	ageDesc = prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, "oooi", "snapshot_age_seconds"),
		"Time since the objects were last known to be current, 0 while every watch is connected.",
		[]string{"source"}, nil)
	buildsDesc = prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, "oooi", "snapshots_total"),
		"Number of snapshots computed from the objects.", []string{"source"}, nil)
	failedDesc = prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, "oooi", "snapshot_write_failed"),
		"1 if the last write of the snapshot file failed.", []string{"source"}, nil)
	watchesDesc = prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, "oooi", "failed_watches"),
		"Number of watches that are not connected, by the API server's reason, or Unreachable.", []string{"source", "reason"}, nil)
	keptDesc = prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, "oooi", "kept_objects"),
		"Number of objects that disappeared from the API server and stay in use, by resource.", []string{"source", "resource"}, nil)
	clustersDesc = prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, "oooi", "hosted_clusters"),
		"Number of hosted clusters in the snapshot.", []string{"source"}, nil)
	problemsDesc = prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, "oooi", "problems"),
		"Number of faults found in the objects, by reason.", []string{"source", "reason"}, nil)
)

func init() { prometheus.MustRegister(collector{}) }

// collector collects the metrics of the running stores.
type collector struct{}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{syncedDesc, ageDesc, buildsDesc, failedDesc, watchesDesc, keptDesc, clustersDesc, problemsDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (collector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range shared.running() {
		gauge := func(d *prometheus.Desc, value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{s.name}, labels...)...)
		}
		status := s.Status()
		gauge(syncedDesc, boolValue(status.Synced))
		gauge(ageDesc, status.Age().Seconds())
		ch <- prometheus.MustNewConstMetric(buildsDesc, prometheus.CounterValue, float64(status.Builds), s.name)
		gauge(failedDesc, boolValue(status.SnapshotFailure != ""))
		watches := map[string]int{}
		for i := range status.Resources {
			if r := &status.Resources[i]; !r.Connected && !r.Missing && r.Reason != "" {
				watches[r.Reason]++
			}
		}
		for reason, n := range watches {
			gauge(watchesDesc, float64(n), reason)
		}
		for resource, n := range watch.CountKept(status.Resources) {
			gauge(keptDesc, float64(n), resource)
		}
		snapshot := s.Snapshot()
		if snapshot == nil {
			continue
		}
		gauge(clustersDesc, float64(len(snapshot.Clusters)))
		byReason := map[string]int{}
		for _, p := range snapshot.Problems {
			byReason[string(p.Reason)]++
		}
		for reason, n := range byReason {
			gauge(problemsDesc, float64(n), reason)
		}
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
