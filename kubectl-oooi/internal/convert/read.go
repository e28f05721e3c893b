package convert

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
)

// object is one that was read.
type object = documents.Object

// strict decodes an object. What an API server has added to it is left out before.
func strict(o *object, into any) error {
	delete(o.Object, "status")
	if err := o.Strict(into); err != nil {
		return fmt.Errorf("%s: %w", o, err)
	}
	return nil
}

// clean is an object with nothing but what its author writes.
func clean(o *object) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind()}}
	u.SetName(o.GetName())
	if o.GetNamespace() != "" {
		u.SetNamespace(o.GetNamespace())
	}
	annotations := o.GetAnnotations()
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	if len(annotations) > 0 {
		u.SetAnnotations(annotations)
	}
	if len(o.GetLabels()) > 0 {
		u.SetLabels(o.GetLabels())
	}
	if spec := o.Object["spec"]; spec != nil {
		u.Object["spec"] = withoutNulls(spec)
	}
	return u
}

// withoutNulls takes fields out that are there with no value, which is as if they were not.
func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			if v == nil {
				delete(value, key)
			} else {
				value[key] = withoutNulls(v)
			}
		}
	case []any:
		for i, v := range value {
			value[i] = withoutNulls(v)
		}
	}
	return value
}
