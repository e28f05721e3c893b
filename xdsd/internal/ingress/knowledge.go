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

// Metrics, beside those of controller-runtime, which count and time what is reconciled.
var (
	objectsDesc    = prometheus.NewDesc("xdsd_virtual_ingresses", "VirtualIngresses that this replica reconciles.", nil, nil)
	unresolvedDesc = prometheus.NewDesc("xdsd_virtual_ingress_unresolved", "VirtualIngresses that are not ready, by the reason.", []string{"reason"}, nil)
)

// knowledge is what was last said of each VirtualIngress: its status may not have come back yet.
// It is a collector of metrics.
type knowledge struct {
	leads   <-chan struct{}
	latency prometheus.Histogram

	mu     sync.Mutex
	said   map[types.NamespacedName]verdict
	events map[types.NamespacedName]time.Time // when a Service changed that matters
}

// verdict is a status, of the object with the uid.
type verdict struct {
	uid    types.UID
	status v1alpha1.VirtualIngressStatus
}

func newKnowledge(leads <-chan struct{}) *knowledge {
	return &knowledge{
		leads: leads,
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "xdsd_virtual_ingress_latency_seconds",
			Help:    "Time from the change of a Service to the update of its Ingress.",
			Buckets: []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		said: map[types.NamespacedName]verdict{}, events: map[types.NamespacedName]time.Time{},
	}
}

// leading reports whether this replica writes.
func (k *knowledge) leading() bool {
	select {
	case <-k.leads:
		return true
	default:
		return false
	}
}

// seen takes down that a Service has changed that matters to a VirtualIngress.
func (k *knowledge) seen(v types.NamespacedName) {
	if !k.leading() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.events[v].IsZero() {
		k.events[v] = time.Now()
	}
}

// arrived returns when the first change came that is being dealt with now, and counts from anew.
func (k *knowledge) arrived(v types.NamespacedName) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.events[v]
	delete(k.events, v)
	return at
}

// last returns what was said of an object.
func (k *knowledge) last(v *v1alpha1.VirtualIngress) (v1alpha1.VirtualIngressStatus, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	said, ok := k.said[keyOf(v)]
	return *said.status.DeepCopy(), ok && said.uid == v.UID
}

func (k *knowledge) say(v *v1alpha1.VirtualIngress, status v1alpha1.VirtualIngressStatus) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.said[keyOf(v)] = verdict{v.UID, status}
}

func (k *knowledge) forget(v types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.said, v)
	delete(k.events, v)
}

// Describe is prometheus.Collector's.
func (k *knowledge) Describe(ch chan<- *prometheus.Desc) {
	ch <- objectsDesc
	ch <- unresolvedDesc
	k.latency.Describe(ch)
}

// Collect is prometheus.Collector's.
func (k *knowledge) Collect(ch chan<- prometheus.Metric) {
	k.mu.Lock()
	defer k.mu.Unlock()
	reasons := map[string]int{}
	for _, reason := range Reasons() {
		reasons[reason] = 0
	}
	for _, said := range k.said {
		if ready := meta.FindStatusCondition(said.status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
			reasons[ready.Reason]++
		}
	}
	ch <- prometheus.MustNewConstMetric(objectsDesc, prometheus.GaugeValue, float64(len(k.said)))
	for reason, count := range reasons {
		ch <- prometheus.MustNewConstMetric(unresolvedDesc, prometheus.GaugeValue, float64(count), reason)
	}
	k.latency.Collect(ch)
}

// Reasons are those for which a VirtualIngress is not ready.
func Reasons() []string {
	return []string{
		v1alpha1.ReasonNoMatchingService, v1alpha1.ReasonMultipleMatches, v1alpha1.ReasonPortNotFound, v1alpha1.ReasonConsentMissing,
		v1alpha1.ReasonUnsupported, v1alpha1.ReasonHostClaimed, v1alpha1.ReasonConflict, v1alpha1.ReasonRejected, v1alpha1.ReasonContested,
	}
}

// State is what /state shows. It holds no secret.
type State struct {
	// Leads: this replica is the one that writes.
	Leads bool `json:"leads"`
	// Synced: everything that there is has been read.
	Synced bool `json:"synced"`
	// Services is how many are known.
	Services int `json:"services"`
	// VirtualIngresses are those that this replica has looked after, sorted.
	VirtualIngresses []Seen `json:"virtualIngresses"`
}

// Seen is what became of a VirtualIngress.
type Seen struct {
	// Name is "namespace/name".
	Name string `json:"name"`
	// Status is what was written last.
	Status v1alpha1.VirtualIngressStatus `json:"status"`
}

// State returns what is known now.
func (c *Controller) State() State {
	k := c.reconciler.known
	s := State{Leads: k.leading(), Synced: c.synced.Load(), Services: c.reconciler.directory.size(), VirtualIngresses: []Seen{}}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, said := range maps.All(k.said) {
		s.VirtualIngresses = append(s.VirtualIngresses, Seen{key.String(), said.status})
	}
	slices.SortFunc(s.VirtualIngresses, func(a, b Seen) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// Ready reports whether everything has been read, and what there is to say of it.
func (c *Controller) Ready() (bool, any) {
	synced := c.synced.Load()
	return synced, map[string]bool{"synced": synced, "leads": c.reconciler.known.leading()}
}
