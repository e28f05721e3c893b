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

// reasons are the reasons of the condition Ready while a VirtualIngress is not ready.
var reasons = []string{
	v1alpha1.ReasonNoMatchingService, v1alpha1.ReasonMultipleMatches, v1alpha1.ReasonPortNotFound, v1alpha1.ReasonConsentMissing,
	v1alpha1.ReasonNoReadyEndpoints, v1alpha1.ReasonUnsupported, v1alpha1.ReasonHostClaimed,
	v1alpha1.ReasonConflict, v1alpha1.ReasonRejected, v1alpha1.ReasonContested,
	v1alpha1.ReasonPending, v1alpha1.ReasonNotAccepted, v1alpha1.ReasonRefsNotResolved,
}

var (
	countDesc      = prometheus.NewDesc("xdsd_virtual_ingresses", "VirtualIngresses that this replica watches.", nil, nil)
	unresolvedDesc = prometheus.NewDesc("xdsd_virtual_ingress_unresolved", "VirtualIngresses that are not ready, by reason.", []string{"reason"}, nil)
)

// collector exports the metrics in addition to controller-runtime's.
type collector struct{ *Controller }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- countDesc
	ch <- unresolvedDesc
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	list, unresolved := c.virtualIngresses(), map[string]int{}
	for i := range list {
		if ready := meta.FindStatusCondition(list[i].Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
			unresolved[ready.Reason]++
		}
	}
	ch <- prometheus.MustNewConstMetric(countDesc, prometheus.GaugeValue, float64(len(list)))
	for _, reason := range reasons {
		ch <- prometheus.MustNewConstMetric(unresolvedDesc, prometheus.GaugeValue, float64(unresolved[reason]), reason)
	}
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
