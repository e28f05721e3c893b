package control

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// manager is the field manager of what control writes.
const manager = "xdsd-control"

// applyStatus writes a status as one field manager's, and leaves alone what is others'. An
// object that is gone meanwhile needs none.
func applyStatus(ctx context.Context, c client.Client, kind string, key client.ObjectKey, status any, as string) error {
	data, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("encoding the status of %s %s: %w", kind, key, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return fmt.Errorf("encoding the status of %s %s: %w", kind, key, err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": kind,
		"metadata": map[string]any{"namespace": key.Namespace, "name": key.Name},
		"status":   fields,
	}}
	err = c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(as), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("applying the status of %s %s: %w", kind, key, err)
	}
	return nil
}

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
		const longest = 1000 // of a note, in the API
		note := c.Type + ": " + c.Message
		if len(note) > longest {
			note = strings.ToValidUTF8(note[:longest], "") + "..."
		}
		recorder.Eventf(object, nil, kind, c.Reason, "Observe", "%s", note)
	}
}

// good reports whether a condition is as one would have it.
func good(c metav1.Condition) bool {
	if c.Type == v1alpha1.ConditionAppsDomainMismatch {
		return c.Status == metav1.ConditionFalse
	}
	return c.Status == metav1.ConditionTrue
}
