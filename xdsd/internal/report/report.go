// Package report writes the results of xdsd's controllers to statuses and Events.
package report

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Status applies the status of an object of api/v1alpha1 with a field manager. It takes over fields of other managers
// that are in status, deletes fields that the manager applied before and that are not in status, and leaves all others
// unchanged. If the object does not exist, it does nothing and returns nil.
func Status(ctx context.Context, c client.Client, kind string, key client.ObjectKey, status any, fieldManager string) error {
	object, err := Object(kind, key, status)
	if err != nil {
		return err
	}
	err = c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(fieldManager), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("applying the status of %s %s: %w", kind, key, err)
	}
	return nil
}

// Object returns an object of api/v1alpha1 with only its status, to be applied.
func Object(kind string, key client.ObjectKey, status any) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("encoding the status of %s %s: %w", kind, key, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("encoding the status of %s %s: %w", kind, key, err)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": kind,
		"metadata": map[string]any{"namespace": key.Namespace, "name": key.Name},
		"status":   fields,
	}}, nil
}

// Note returns a text that fits into an Event's note: text itself, or its first 1,000 bytes and "...".
func Note(text string) string {
	const maxLength = 1000 // the API permits 1024
	if len(text) > maxLength {
		text = strings.ToValidUTF8(text[:maxLength], "") + "..."
	}
	return text
}
