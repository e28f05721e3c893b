package leasedb

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

const (
	metricNamespace = "coredhcp"
	metricSubsystem = "leasedb"
)

// Metrics of the plugin. Metrics of addresses are computed when they are collected.
var (
	poolLabels = []string{"pool", "family"}

	repliesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "replies_total",
		Help: "Replies by type.",
	}, append([]string{"type"}, poolLabels...))
	silencesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "silences_total",
		Help: "Messages without a reply, by reason.",
	}, append([]string{"reason"}, poolLabels...))
	storeSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "store_seconds",
		Help:    "Duration of one operation of the store.",
		Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 3},
	}, []string{"operation"})
	storeErrorsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: metricNamespace, Subsystem: metricSubsystem, Name: "store_errors_total",
		Help: "Failed operations of the store, by operation. \"conflict\" counts writes that were rejected because another replica wrote first.",
	}, []string{"operation"})

	addressesDesc = desc("addresses", "Addresses by state: bound, released, held (offered), quarantined, free, and unused (free ones that a probe has "+
		"verified).", "state")
	sizeDesc      = desc("size", "Addresses in the ranges.")
	exhaustedDesc = desc("exhausted_total", "Clients that got no offer because no address was free.")
	inUseDesc     = desc("in_use_total", "Free addresses that a probe found in use.")
	jumpsDesc     = desc("clock_jumps_total", "Jumps of the system clock. They change no lease.")
	offsetDesc    = desc("clock_offset_seconds", "System clock minus the clock that leases use.")
	syncedDesc    = desc("synced", "1 if the store's current content is known, which new bindings require.")
	loadedDesc    = desc("loaded", "1 if bindings are known, from the store or the snapshot file.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(metricNamespace, metricSubsystem, name), help, append(labels, poolLabels...), nil)
}

// Collector returns a collector of the metrics of all pools.
func Collector() prometheus.Collector { return collector{} }

type collector struct{}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{addressesDesc, sizeDesc, exhaustedDesc, inUseDesc, jumpsDesc, offsetDesc, syncedDesc, loadedDesc} {
		ch <- d
	}
	for _, v := range []prometheus.Collector{repliesTotal, silencesTotal, storeSeconds, storeErrorsTotal} {
		v.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
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

// countReply counts a reply by type.
func (i *instance) countReply(kind string) {
	repliesTotal.WithLabelValues(kind, i.config.pool, family).Inc()
}

func (i *instance) countSilence(why pool.Reason) {
	silencesTotal.WithLabelValues(string(why), i.config.pool, family).Inc()
}

// An instrumentedStore counts and times the operations of a store, and remembers their last results.
type instrumentedStore struct {
	store.Store

	mu      sync.Mutex
	results map[string]Operation // by operation
	// failing are the clients whose operations failed last, by operation. Beyond maxFailing, none is added.
	failing map[string]map[string]bool
}

const maxFailing = 1000

// Operations of a store.
const (
	opPut    = "put"
	opGet    = "get"
	opDelete = "delete"
	opMark   = "mark"
)

// An Operation has the last results of one operation of a store, such as put.
type Operation struct {
	// Succeeded and Failed are the times of the last success and the last failure; zero for none. A reply that the
	// binding differs or does not exist is a success.
	Succeeded time.Time `json:"succeeded,omitzero"`
	Failed    time.Time `json:"failed,omitzero"`
	// Error is the error of the last failure.
	Error string `json:"error,omitempty"`
	// Failing is the number of clients for which the operation failed last, at most 1000, and Since is when Failing
	// was last 0.
	Failing int       `json:"failing,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// operations returns a copy of the last results.
func (m *instrumentedStore) operations() map[string]Operation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.results)
}

// writeFailure returns the time and error of the last write, empty if it succeeded.
func (m *instrumentedStore) writeFailure() string {
	var last Operation
	for operation, o := range m.operations() {
		if operation == opGet {
			continue
		}
		if o.Succeeded.After(last.Succeeded) {
			last.Succeeded = o.Succeeded
		}
		if o.Failed.After(last.Failed) {
			last.Failed, last.Error = o.Failed, o.Error
		}
	}
	if !last.Failed.After(last.Succeeded) {
		return ""
	}
	return last.Failed.Format(time.RFC3339) + ": " + last.Error
}

// observe records the result of an operation for a client, or on an address; empty if it has neither.
func (m *instrumentedStore) observe(operation, client string, started time.Time, err error) {
	storeSeconds.WithLabelValues(operation).Observe(time.Since(started).Seconds())
	switch {
	case err == nil, errors.Is(err, store.ErrNotFound):
	case errors.Is(err, store.ErrConflict):
		storeErrorsTotal.WithLabelValues("conflict").Inc()
	default:
		storeErrorsTotal.WithLabelValues(operation).Inc()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.results == nil {
		m.results, m.failing = map[string]Operation{}, map[string]map[string]bool{}
	}
	if m.failing[operation] == nil {
		m.failing[operation] = map[string]bool{}
	}
	failing := m.failing[operation]
	o := m.results[operation]
	switch now := time.Now().UTC(); {
	case err == nil, errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrUnusable):
		o.Succeeded = now
		delete(failing, client)
	default:
		o.Failed, o.Error = now, err.Error()
		if len(failing) == 0 {
			o.Since = now
		}
		if len(failing) < maxFailing {
			failing[client] = true
		}
	}
	if o.Failing = len(failing); o.Failing == 0 {
		o.Since = time.Time{}
	}
	m.results[operation] = o
}

// Put implements store.Store.
func (m *instrumentedStore) Put(ctx context.Context, b store.Binding) (store.Binding, error) {
	started := time.Now()
	written, err := m.Store.Put(ctx, b)
	m.observe(opPut, b.Holder, started, err)
	return written, err
}

// Mark implements store.Marker. It returns the zero time if the store does not implement it.
func (m *instrumentedStore) Mark() time.Time {
	if marker, ok := m.Store.(store.Marker); ok {
		return marker.Mark()
	}
	return time.Time{}
}

// SetMark implements store.Marker. It does nothing if the store does not implement it.
func (m *instrumentedStore) SetMark(at time.Time) error {
	marker, ok := m.Store.(store.Marker)
	if !ok {
		return nil
	}
	started := time.Now()
	err := marker.SetMark(at)
	m.observe(opMark, "", started, err)
	return err
}

// Get implements store.Store.
func (m *instrumentedStore) Get(ctx context.Context, addr netip.Addr) (store.Binding, error) {
	started := time.Now()
	b, err := m.Store.Get(ctx, addr)
	m.observe(opGet, addr.String(), started, err)
	return b, err
}

// Delete implements store.Store.
func (m *instrumentedStore) Delete(ctx context.Context, b store.Binding) error {
	started := time.Now()
	err := m.Store.Delete(ctx, b)
	m.observe(opDelete, b.Holder, started, err)
	return err
}
