package control

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/xdsd/internal/report"
)

const (
	// fieldManager is the field manager of objects that control writes.
	fieldManager = "xdsd-control"
	// appsFieldManager is the field manager of Infra.status.appsIngress.
	appsFieldManager = fieldManager + "-apps"
)

// recordEvents records an Event of the object for each condition that has changed.
func recordEvents(recorder events.EventRecorder, object runtime.Object, before, after []metav1.Condition) {
	for _, c := range after {
		old := meta.FindStatusCondition(before, c.Type)
		switch {
		case old == nil && (c.Status == metav1.ConditionUnknown || isDesired(c) && isDetail(c)):
			continue // no Event for an initial value
		case old != nil && old.Status == c.Status && old.Reason == c.Reason:
			continue
		}
		kind := corev1.EventTypeWarning
		if isDesired(c) {
			kind = corev1.EventTypeNormal
		}
		// The action has the type, because Events with the same reason and action are combined, and several conditions are Ready.
		recorder.Eventf(object, nil, kind, c.Reason, "Observe"+c.Type, "%s", report.Note(c.Type+": "+c.Message))
	}
}

// isDesired reports whether a condition has the status of a healthy object.
func isDesired(c metav1.Condition) bool {
	if c.Type == v1alpha1.ConditionAppsDomainMismatch {
		return c.Status == metav1.ConditionFalse
	}
	return c.Status == metav1.ConditionTrue
}

// isDetail reports whether control records no Event for a condition of a new object that has its desired status.
func isDetail(c metav1.Condition) bool {
	switch c.Type {
	case v1alpha1.ConditionAppsDomainMismatch, v1alpha1.ConditionWithinLimits, v1alpha1.ConditionDHCPReady, v1alpha1.ConditionDNSReady,
		v1alpha1.ConditionProxyReady,
		v1alpha1.ConditionVLANReady, v1alpha1.ConditionUpstreamReady, v1alpha1.ConditionBackendsReady:
		return true
	}
	return false
}
