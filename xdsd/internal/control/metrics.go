package control

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

var (
	readyDesc = prometheus.NewDesc("xdsd_ready", "Whether the condition Ready of an Infra or a ProxyServer is true (1) or not (0).",
		[]string{"kind", "object", "reason"}, nil)
	appsDesc = prometheus.NewDesc("xdsd_apps_ingress", "Phase of an Infra's apps ingress, with its reason; always 1.", []string{"infra", "phase", "reason"}, nil)
)

// statusMetrics exports the last status of each object. The series of an object end when it is deleted.
type statusMetrics struct {
	mu    sync.Mutex
	ready map[[2]string]metav1.Condition // by kind and "namespace/name"
	apps  map[string]v1alpha1.AppsIngressStatus
}

func newStatusMetrics() *statusMetrics {
	return &statusMetrics{ready: map[[2]string]metav1.Condition{}, apps: map[string]v1alpha1.AppsIngressStatus{}}
}

// setReady records the condition Ready of an object. Without one it ends the series.
func (m *statusMetrics) setReady(kind string, key client.ObjectKey, conditions []metav1.Condition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := [2]string{kind, key.String()}
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		m.ready[id] = *ready
	} else {
		delete(m.ready, id)
	}
}

// setApps records status.appsIngress of an Infra; nil ends the series.
func (m *statusMetrics) setApps(key client.ObjectKey, status *v1alpha1.AppsIngressStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if status != nil {
		m.apps[key.String()] = *status
	} else {
		delete(m.apps, key.String())
	}
}

// Describe implements prometheus.Collector.
func (m *statusMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- readyDesc
	ch <- appsDesc
}

// Collect implements prometheus.Collector.
func (m *statusMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, c := range m.ready {
		value := 0.0
		if c.Status == metav1.ConditionTrue {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, value, id[0], id[1], c.Reason)
	}
	for key, s := range m.apps {
		ch <- prometheus.MustNewConstMetric(appsDesc, prometheus.GaugeValue, 1, key, string(s.Phase), string(s.Reason))
	}
}
