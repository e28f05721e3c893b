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
	readyDesc = prometheus.NewDesc("xdsd_ready", "Whether an Infra or a ProxyServer is ready (1) or not (0), as its condition Ready says.", []string{"kind", "object", "reason"}, nil)
	appsDesc  = prometheus.NewDesc("xdsd_apps_ingress", "The phase of an Infra's applications, with its reason: always 1.", []string{"infra", "phase", "reason"}, nil)
)

// verdicts are the last ones on every object, for metrics. The series of an object end with
// the object.
type verdicts struct {
	mu    sync.Mutex
	ready map[[2]string]metav1.Condition // by kind and "namespace/name"
	apps  map[string]v1alpha1.AppsIngressStatus
}

func newVerdicts() *verdicts {
	return &verdicts{ready: map[[2]string]metav1.Condition{}, apps: map[string]v1alpha1.AppsIngressStatus{}}
}

// setReady takes down what conditions say; none for an object that is gone.
func (v *verdicts) setReady(kind string, key client.ObjectKey, conditions []metav1.Condition) {
	v.mu.Lock()
	defer v.mu.Unlock()
	id := [2]string{kind, key.String()}
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		v.ready[id] = *ready
	} else {
		delete(v.ready, id)
	}
}

// setApps takes down the state of an Infra's applications; nil for none.
func (v *verdicts) setApps(key client.ObjectKey, status *v1alpha1.AppsIngressStatus) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if status != nil {
		v.apps[key.String()] = *status
	} else {
		delete(v.apps, key.String())
	}
}

// Describe is prometheus.Collector's.
func (v *verdicts) Describe(ch chan<- *prometheus.Desc) {
	ch <- readyDesc
	ch <- appsDesc
}

// Collect is prometheus.Collector's.
func (v *verdicts) Collect(ch chan<- prometheus.Metric) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, c := range v.ready {
		value := 0.0
		if c.Status == metav1.ConditionTrue {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, value, id[0], id[1], c.Reason)
	}
	for key, s := range v.apps {
		ch <- prometheus.MustNewConstMetric(appsDesc, prometheus.GaugeValue, 1, key, string(s.Phase), string(s.Reason))
	}
}
