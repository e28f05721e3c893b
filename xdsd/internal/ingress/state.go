package ingress

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// reasons returns the reasons of the condition Ready while a VirtualIngress is not ready.
func reasons() []string {
	return []string{
		v1alpha1.ReasonNoMatchingService, v1alpha1.ReasonMultipleMatches, v1alpha1.ReasonPortNotFound, v1alpha1.ReasonConsentMissing,
		v1alpha1.ReasonUnsupported, v1alpha1.ReasonHostClaimed, v1alpha1.ReasonConflict, v1alpha1.ReasonRejected, v1alpha1.ReasonContested,
	}
}

// metrics returns the metrics in addition to those of controller-runtime.
func (c *Controller) metrics() []prometheus.Collector {
	list := []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "xdsd_virtual_ingresses", Help: "VirtualIngresses that this replica watches.",
	}, func() float64 { return float64(len(c.virtualIngresses())) })}
	for _, reason := range reasons() {
		list = append(list, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "xdsd_virtual_ingress_unresolved", Help: "VirtualIngresses that are not ready, by reason.",
			ConstLabels: prometheus.Labels{"reason": reason},
		}, func() float64 {
			count := 0
			for _, v := range c.virtualIngresses() {
				if ready := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady); ready != nil &&
					ready.Status != metav1.ConditionTrue && ready.Reason == reason {
					count++
				}
			}
			return float64(count)
		}))
	}
	return list
}

// State is the content of /readyz and /state.
type State struct {
	// Leads reports whether this replica is the leader.
	Leads bool `json:"leads"`
	// Synced reports whether all kinds of objects have been listed once.
	Synced bool `json:"synced"`
}

// State returns the current state of the Controller.
func (c *Controller) State() State {
	s := State{Synced: c.synced()}
	select {
	case <-c.manager.Elected():
		s.Leads = true
	default:
	}
	return s
}

// virtualIngresses returns the watched VirtualIngresses; none before they have been listed once. They are not copied,
// and must not be modified.
func (c *Controller) virtualIngresses() []v1alpha1.VirtualIngress {
	list := &v1alpha1.VirtualIngressList{}
	if !c.synced() || c.manager.GetCache().List(context.Background(), list, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	return list.Items
}

func (c *Controller) synced() bool {
	return !slices.ContainsFunc(c.informers, func(i cache.Informer) bool { return !i.HasSynced() })
}
