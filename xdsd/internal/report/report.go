// Package report is how the controllers in xdsd tell what they found: in the status of objects,
// and in Events.
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

// Status writes a status as one field manager's, and leaves alone what is others'. An
// object that is gone meanwhile needs none.
func Status(ctx context.Context, c client.Client, kind string, key client.ObjectKey, status any, as string) error {
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

// Note is a text as long as the note of an Event may be.
func Note(text string) string {
	const longest = 1000 // in the API: 1024
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "..."
	}
	return text
}
