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

// manager is the field manager of what control writes.
const manager = "xdsd-control"

// announce tells, as Events of the object, which conditions have changed.
func announce(recorder events.EventRecorder, object runtime.Object, before, after []metav1.Condition) {
	for _, c := range after {
		was := meta.FindStatusCondition(before, c.Type)
		switch {
		case was == nil && (c.Status == metav1.ConditionUnknown || good(c) && c.Type == v1alpha1.ConditionAppsDomainMismatch):
			continue // nothing has happened yet
		case was != nil && was.Status == c.Status && was.Reason == c.Reason:
			continue
		}
		kind := corev1.EventTypeWarning
		if good(c) {
			kind = corev1.EventTypeNormal
		}
		recorder.Eventf(object, nil, kind, c.Reason, "Observe", "%s", report.Note(c.Type+": "+c.Message))
	}
}

// good reports whether a condition is as one would have it.
func good(c metav1.Condition) bool {
	if c.Type == v1alpha1.ConditionAppsDomainMismatch {
		return c.Status == metav1.ConditionFalse
	}
	return c.Status == metav1.ConditionTrue
}
