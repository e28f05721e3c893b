package ingress

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Metrics in addition to those of controller-runtime.
var (
	objectsDesc    = prometheus.NewDesc("xdsd_virtual_ingresses", "VirtualIngresses that this replica reconciles.", nil, nil)
	unresolvedDesc = prometheus.NewDesc("xdsd_virtual_ingress_unresolved", "VirtualIngresses that are not ready, by reason.", []string{"reason"}, nil)
)

// statusCache caches the last status of each VirtualIngress, which the informer may not have received yet. It is a
// Prometheus collector.
type statusCache struct {
	leads   <-chan struct{}
	latency prometheus.Histogram

	mu       sync.Mutex
	statuses map[types.NamespacedName]cachedStatus
	changes  map[types.NamespacedName]time.Time // when the first unprocessed change of a selected Service arrived
}

// cachedStatus is the status of the VirtualIngress with this UID.
type cachedStatus struct {
	uid    types.UID
	status v1alpha1.VirtualIngressStatus
}

func newStatusCache(leads <-chan struct{}) *statusCache {
	return &statusCache{
		leads: leads,
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "xdsd_virtual_ingress_latency_seconds",
			Help:    "Time from the change of a Service to the update of its Ingress.",
			Buckets: []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		statuses: map[types.NamespacedName]cachedStatus{}, changes: map[types.NamespacedName]time.Time{},
	}
}

// leading reports whether this replica leads.
func (c *statusCache) leading() bool {
	select {
	case <-c.leads:
		return true
	default:
		return false
	}
}

// noteChange records that a Service that a VirtualIngress selects has changed, if this replica leads.
func (c *statusCache) noteChange(v types.NamespacedName) {
	if !c.leading() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes[v].IsZero() {
		c.changes[v] = time.Now()
	}
}

// takeChange returns when the first unprocessed change arrived, or the zero time, and marks all changes as
// processed.
func (c *statusCache) takeChange(v types.NamespacedName) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.changes[v]
	delete(c.changes, v)
	return at
}

// get returns the last status of a VirtualIngress, and whether it is known.
func (c *statusCache) get(v *v1alpha1.VirtualIngress) (v1alpha1.VirtualIngressStatus, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cached, ok := c.statuses[keyOf(v)]
	return *cached.status.DeepCopy(), ok && cached.uid == v.UID
}

func (c *statusCache) set(v *v1alpha1.VirtualIngress, status v1alpha1.VirtualIngressStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statuses[keyOf(v)] = cachedStatus{v.UID, status}
}

func (c *statusCache) forget(v types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.statuses, v)
	delete(c.changes, v)
}

// Describe implements prometheus.Collector.
func (c *statusCache) Describe(ch chan<- *prometheus.Desc) {
	ch <- objectsDesc
	ch <- unresolvedDesc
	c.latency.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c *statusCache) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reasons := map[string]int{}
	for _, reason := range Reasons() {
		reasons[reason] = 0
	}
	for _, cached := range c.statuses {
		if ready := meta.FindStatusCondition(cached.status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
			reasons[ready.Reason]++
		}
	}
	ch <- prometheus.MustNewConstMetric(objectsDesc, prometheus.GaugeValue, float64(len(c.statuses)))
	for reason, count := range reasons {
		ch <- prometheus.MustNewConstMetric(unresolvedDesc, prometheus.GaugeValue, float64(count), reason)
	}
	c.latency.Collect(ch)
}

// Reasons returns the reasons of the condition Ready while a VirtualIngress is not ready.
func Reasons() []string {
	return []string{
		v1alpha1.ReasonNoMatchingService, v1alpha1.ReasonMultipleMatches, v1alpha1.ReasonPortNotFound, v1alpha1.ReasonConsentMissing,
		v1alpha1.ReasonUnsupported, v1alpha1.ReasonHostClaimed, v1alpha1.ReasonConflict, v1alpha1.ReasonRejected, v1alpha1.ReasonContested,
	}
}

// State is the content of /state. It contains no secrets.
type State struct {
	// Leads reports whether this replica is the leader.
	Leads bool `json:"leads"`
	// Synced reports whether all kinds of objects have been listed once.
	Synced bool `json:"synced"`
	// Services is the number of known Services.
	Services int `json:"services"`
	// VirtualIngresses are those that this replica has reconciled, sorted by name.
	VirtualIngresses []VirtualIngressState `json:"virtualIngresses"`
}

// VirtualIngressState is the state of a VirtualIngress.
type VirtualIngressState struct {
	// Name is the "namespace/name" of the VirtualIngress.
	Name string `json:"name"`
	// Status is the last written status.
	Status v1alpha1.VirtualIngressStatus `json:"status"`
}

// State returns the current state of the Controller.
func (c *Controller) State() State {
	statuses := c.reconciler.statuses
	s := State{Leads: statuses.leading(), Synced: c.synced.Load(), Services: c.reconciler.directory.size(), VirtualIngresses: []VirtualIngressState{}}
	statuses.mu.Lock()
	defer statuses.mu.Unlock()
	for key, cached := range maps.All(statuses.statuses) {
		s.VirtualIngresses = append(s.VirtualIngresses, VirtualIngressState{key.String(), cached.status})
	}
	slices.SortFunc(s.VirtualIngresses, func(a, b VirtualIngressState) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// Ready reports whether all kinds of objects have been listed once, and returns the body of /readyz: the booleans
// synced and leads.
func (c *Controller) Ready() (bool, any) {
	synced := c.synced.Load()
	return synced, map[string]bool{"synced": synced, "leads": c.reconciler.statuses.leading()}
}
