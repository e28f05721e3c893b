package control

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/watch"
)

var (
	readyDesc = prometheus.NewDesc("xdsd_ready", "Whether the condition Ready of an Infra or a ProxyServer is true (1) or not (0).",
		[]string{"kind", "object", "reason"}, nil)
	appsDesc = prometheus.NewDesc("xdsd_apps_ingress", "Phase of an Infra's apps ingress, with its reason; always 1.", []string{"infra", "phase", "reason"}, nil)
)

// statusMetrics exports the status of each object, if this replica leads.
type statusMetrics struct {
	store   *watch.Store
	elected <-chan struct{}
}

// Describe implements prometheus.Collector.
func (m *statusMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- readyDesc
	ch <- appsDesc
}

// Collect implements prometheus.Collector.
func (m *statusMetrics) Collect(ch chan<- prometheus.Metric) {
	s := m.store.Snapshot()
	select {
	case <-m.elected:
	default:
		return
	}
	if s == nil {
		return
	}
	ready := func(kind, key string, conditions []metav1.Condition) {
		if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c != nil {
			value := 0.0
			if c.Status == metav1.ConditionTrue {
				value = 1
			}
			ch <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, value, kind, key, c.Reason)
		}
	}
	for _, i := range s.Infras {
		key := i.Key()
		if object, _ := m.store.Infra(key); object != nil {
			ready("Infra", key, object.Status.Conditions)
			if apps := object.Status.AppsIngress; apps != nil {
				ch <- prometheus.MustNewConstMetric(appsDesc, prometheus.GaugeValue, 1, key, string(apps.Phase), string(apps.Reason))
			}
		}
	}
	for _, p := range s.ProxyServers {
		key := p.Key()
		if object := m.store.ProxyServer(key); object != nil {
			ready("ProxyServer", key, object.Status.Conditions)
		}
	}
}
