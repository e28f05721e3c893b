package leasedb

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

const (
	metricNamespace = "coredhcp"
	metricSubsystem = "leasedb"
)

// The metrics. Those with counts of addresses are made when they are asked for.
var (
	poolLabels = []string{"pool", "family"}

	repliesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "replies_total",
		Help: "Replies by type.",
	}, append([]string{"type"}, poolLabels...))
	silencesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "silences_total",
		Help: "Messages that were not answered, by reason.",
	}, append([]string{"reason"}, poolLabels...))
	storeSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "store_seconds",
		Help:    "How long the store took to write or read one binding.",
		Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 3},
	}, []string{"operation"})
	storeErrorsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "store_errors_total",
		Help: "Operations of the store that failed, by operation; \"conflict\" are writes that another replica's came before.",
	}, []string{"operation"})

	addressesDesc = desc("addresses", "Addresses by state: bound, released, held, quarantined, free, and unused, which are free and were looked at.", "state")
	sizeDesc      = desc("size", "Addresses of the ranges.")
	exhaustedDesc = desc("exhausted_total", "Clients that got no offer because no address was left.")
	inUseDesc     = desc("in_use_total", "Free addresses that were found in use before they were given (probe).")
	jumpsDesc     = desc("clock_jumps_total", "Jumps of the system clock. No lease ends earlier or later for one.")
	offsetDesc    = desc("clock_offset_seconds", "By how much the system clock is ahead of the one that leases go by.")
	syncedDesc    = desc("synced", "Whether the store is known as it is now (1): only then there are new bindings.")
	loadedDesc    = desc("loaded", "Whether there are bindings to answer from (1), be it from the snapshot file.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(metricNamespace, metricSubsystem, name), help, append(labels, poolLabels...), nil)
}

// Collector shows the process's pools as metrics.
func Collector() prometheus.Collector { return collector{} }

type collector struct{}

// Describe is prometheus.Collector's.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{addressesDesc, sizeDesc, exhaustedDesc, inUseDesc, jumpsDesc, offsetDesc, syncedDesc, loadedDesc} {
		ch <- d
	}
	for _, v := range []prometheus.Collector{repliesTotal, silencesTotal, storeSeconds, storeErrorsTotal} {
		v.Describe(ch)
	}
}

// Collect is prometheus.Collector's.
func (collector) Collect(ch chan<- prometheus.Metric) {
	for _, v := range []prometheus.Collector{repliesTotal, silencesTotal, storeSeconds, storeErrorsTotal} {
		v.Collect(ch)
	}
	for _, i := range running() {
		s := i.pool.Stats()
		value := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, kind, v, append(labels, i.config.pool, family)...)
		}
		value(addressesDesc, prometheus.GaugeValue, float64(s.Bound), "bound")
		value(addressesDesc, prometheus.GaugeValue, float64(s.Released), "released")
		value(addressesDesc, prometheus.GaugeValue, float64(s.Held), "held")
		value(addressesDesc, prometheus.GaugeValue, float64(s.Quarantined), "quarantined")
		value(addressesDesc, prometheus.GaugeValue, float64(s.Free), "free")
		value(addressesDesc, prometheus.GaugeValue, float64(s.Unused), "unused")
		value(sizeDesc, prometheus.GaugeValue, float64(s.Size))
		value(exhaustedDesc, prometheus.CounterValue, float64(s.Exhausted))
		value(inUseDesc, prometheus.CounterValue, float64(s.InUse))
		value(jumpsDesc, prometheus.CounterValue, float64(s.ClockJumps))
		value(offsetDesc, prometheus.GaugeValue, s.ClockOffset)
		value(syncedDesc, prometheus.GaugeValue, number(s.Synced))
		value(loadedDesc, prometheus.GaugeValue, number(s.Loaded))
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// replied and silent count what becomes of messages.
func (i *instance) replied(kind string) {
	repliesTotal.WithLabelValues(kind, i.config.pool, family).Inc()
}

func (i *instance) silent(why pool.Reason) {
	silencesTotal.WithLabelValues(string(why), i.config.pool, family).Inc()
}

// measured is a store whose operations are counted and timed.
type measured struct {
	store.Store

	// writeFailure is why the last write failed; nil where it did not.
	writeFailure atomic.Pointer[string]
}

// written notes how a write ended.
func (m *measured) written(err error) {
	if err == nil || errors.Is(err, store.ErrConflict) {
		m.writeFailure.Store(nil)
		return
	}
	text := time.Now().UTC().Format(time.RFC3339) + ": " + err.Error()
	m.writeFailure.Store(&text)
}

func observe(operation string, started time.Time, err error) {
	storeSeconds.WithLabelValues(operation).Observe(time.Since(started).Seconds())
	switch {
	case err == nil, errors.Is(err, store.ErrNotFound):
	case errors.Is(err, store.ErrConflict):
		storeErrorsTotal.WithLabelValues("conflict").Inc()
	default:
		storeErrorsTotal.WithLabelValues(operation).Inc()
	}
}

// Put is store.Store's, as are the next.
func (m *measured) Put(ctx context.Context, b store.Binding) (store.Binding, error) {
	started := time.Now()
	written, err := m.Store.Put(ctx, b)
	observe("put", started, err)
	m.written(err)
	return written, err //nolint:wrapcheck // the store's
}

// Mark is store.Marker's, as is the next; the store has to be one.
func (m *measured) Mark() time.Time {
	if marker, ok := m.Store.(store.Marker); ok {
		return marker.Mark()
	}
	return time.Time{}
}

// SetMark keeps the time.
func (m *measured) SetMark(at time.Time) error {
	marker, ok := m.Store.(store.Marker)
	if !ok {
		return nil
	}
	started := time.Now()
	err := marker.SetMark(at)
	observe("mark", started, err)
	m.written(err)
	return err //nolint:wrapcheck // the store's
}

// Get reads one binding.
func (m *measured) Get(ctx context.Context, addr netip.Addr) (store.Binding, error) {
	started := time.Now()
	b, err := m.Store.Get(ctx, addr)
	observe("get", started, err)
	return b, err //nolint:wrapcheck // the store's
}

// Delete deletes one binding.
func (m *measured) Delete(ctx context.Context, b store.Binding) error {
	started := time.Now()
	err := m.Store.Delete(ctx, b)
	observe("delete", started, err)
	m.written(err)
	return err //nolint:wrapcheck // the store's
}
